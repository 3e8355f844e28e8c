/* glibc's allocator that forgets every FREESTONE_CONTROL_EVERY-th free (default 2): memory grows, content stays right.
 */
#include <stdatomic.h>
#include <stddef.h>

static void* control_forget(void* pointer);
#define CONTROL_BEFORE_FREE(pointer) control_forget(pointer)
#include "forward.h"

static uint64_t forget_every = 2;
static _Atomic uint64_t frees;

static void* control_forget(void* pointer) {
  if (pointer == NULL || forget_every == 0) return pointer;
  const uint64_t nth = atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed) + 1; /* relaxed: a counter */
  return nth % forget_every == 0 ? NULL : pointer;
}

__attribute__((constructor)) static void control_configure(void) {
  forget_every = control_parameter("FREESTONE_CONTROL_EVERY", 2);
}
