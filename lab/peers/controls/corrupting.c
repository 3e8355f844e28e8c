/* glibc's allocator that flips one byte of a live block at every FREESTONE_CONTROL_EVERY-th allocation (default 100).
 *
 * The victim is the most recent block of at least 64 bytes that is still live; its byte in the middle is inverted, so
 * glibc's own headers stay whole and only the program's data is wrong.
 */
#include <stdatomic.h>
#include <stddef.h>

static void* control_note(void* pointer, size_t bytes);
static void* control_forget_victim(void* pointer);
#define CONTROL_AFTER_ALLOC(pointer, bytes) control_note(pointer, bytes)
#define CONTROL_BEFORE_REALLOC(pointer) control_forget_victim(pointer)
#define CONTROL_BEFORE_FREE(pointer) control_forget_victim(pointer)
#include "forward.h"

enum { kVictimBytes = 64 };

static uint64_t corrupt_every = 100;
static _Atomic uint64_t allocations;
static _Atomic(unsigned char*) victim;

static void* control_note(void* pointer, size_t bytes) {
  if (pointer == NULL) return pointer;
  const uint64_t nth = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1; /* relaxed: a counter */
  if (corrupt_every != 0 && nth % corrupt_every == 0) {
    unsigned char* block = atomic_exchange(&victim, NULL); /* taken: nobody else may corrupt it a second time */
    if (block != NULL && block != pointer) block[kVictimBytes / 2] ^= 0xff;
  }
  if (bytes >= kVictimBytes) atomic_store(&victim, (unsigned char*)pointer);
  return pointer;
}

static void* control_forget_victim(void* pointer) {
  unsigned char* expected = pointer;
  if (pointer != NULL) atomic_compare_exchange_strong(&victim, &expected, NULL);
  return pointer;
}

__attribute__((constructor)) static void control_configure(void) {
  corrupt_every = control_parameter("FREESTONE_CONTROL_EVERY", 100);
}
