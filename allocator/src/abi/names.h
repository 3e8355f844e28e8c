// Room 19, abi: how the C library's names are exported.
#pragma once

#include "base/compiler.h"

// ABI(void*, malloc(size_t bytes)) is `void* malloc(size_t bytes)`. A sanitizer brings its own malloc: there our name
// gets a prefix, which the tests use.
#if FREESTONE_PREFIXED
#define ABI(result, signature) result freestone_##signature
#else
#define ABI(result, signature) result signature
#endif
