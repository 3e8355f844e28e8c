/* Aborts at the first call: a library that loads, and whose program never gets anywhere. */
#include <stddef.h>
#include <stdlib.h>

static void* control_crash(void* pointer) {
  (void)pointer;
  abort();
}
#define CONTROL_AFTER_ALLOC(pointer, bytes) control_crash(pointer)
#define CONTROL_BEFORE_FREE(pointer) control_crash(pointer)
#include "forward.h"

/* A program that allocates nothing would never notice: the crash does not wait for it. */
__attribute__((constructor)) static void control_start(void) { abort(); }
