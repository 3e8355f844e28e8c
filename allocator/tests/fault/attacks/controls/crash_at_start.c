// Dies before main. A suite that counts its death as a detection is broken.
#include <stdlib.h>

#include "nocheck.h"

EXPORT void* malloc(size_t bytes) { return nocheck_malloc(bytes); }
EXPORT void free(void* block) { nocheck_free(block); }
REST_OF_INTERFACE

__attribute__((constructor)) static void die(void) { abort(); }
