// Room 19, abi: how the C library's names are exported.
#pragma once

#include "base/compiler.h"

// Sanitizer builds keep the sanitizer's malloc: there the functions carry a prefix and tests call them by it.
#if FREESTONE_PREFIXED
#define ABI(name) freestone_##name
#else
#define ABI(name) name
#endif
