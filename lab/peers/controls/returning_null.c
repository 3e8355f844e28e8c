/* glibc's allocator whose every allocation after the first FREESTONE_CONTROL_AFTER (default 1000) answers NULL. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

static void* control_refuse(void* pointer);
#define CONTROL_AFTER_ALLOC(pointer, bytes) control_refuse(pointer)
#include "forward.h"

static uint64_t granted = UINT64_MAX; /* the dynamic linker's own calls come before the constructor */
static _Atomic uint64_t allocations;

static void* control_refuse(void* pointer) {
  if (atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) < granted)
    return pointer; /* relaxed: a counter */
  errno = ENOMEM;
  return NULL; /* the block is lost on purpose: freeing it would undo a successful realloc */
}

__attribute__((constructor)) static void control_configure(void) {
  atomic_store_explicit(&allocations, 0, memory_order_relaxed);
  granted = control_parameter("FREESTONE_CONTROL_AFTER", 1000);
}
