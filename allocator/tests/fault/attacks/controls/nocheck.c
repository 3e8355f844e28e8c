// Known bad: checks nothing. A suite that gives it good marks is broken.
#include "nocheck.h"

EXPORT void* malloc(size_t bytes) { return nocheck_malloc(bytes); }
EXPORT void free(void* block) { nocheck_free(block); }
REST_OF_INTERFACE
