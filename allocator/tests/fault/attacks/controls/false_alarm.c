// Accuses correct programs: every two hundredth free aborts with a message. A suite that counts that as a detection is
// broken.
#include <stdlib.h>
#include <unistd.h>

#include "nocheck.h"

static _Atomic unsigned frees;

EXPORT void* malloc(size_t bytes) { return nocheck_malloc(bytes); }
EXPORT void free(void* block) {
  if (block != NULL && ++frees % 200 == 0) {
    static const char message[] = "false_alarm: double free\n";
    if (write(2, message, sizeof message - 1) > 0) abort();
  }
  nocheck_free(block);
}
REST_OF_INTERFACE
