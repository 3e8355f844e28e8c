/* Forwards every call to glibc: the cost of being preloaded at all. */
#include "forward.h"
