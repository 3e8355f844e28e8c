// Room 20, abi: how the C library's names are exported.
#pragma once

#include "base/compiler.h"

// ABI(void*, malloc(size_t bytes)) is `void* malloc(size_t bytes)`, and ABI_CALL(malloc(8)) is `malloc(8)`. A sanitizer
// brings its own malloc: there our name gets a prefix, which the tests use.
#if FREESTONE_PREFIXED
#define ABI_CALL(call) freestone_##call
#else
#define ABI_CALL(call) call
#endif
#define ABI(result, signature) result ABI_CALL(signature)

// Declares a function of another file by the name that nobody outside the library can replace.
#if FREESTONE_PREFIXED
#define ABI_OWN(result, name, parameters) ABI(result, name parameters)
#else
#define ABI_OWN(result, name, parameters) FREESTONE_HIDDEN result name parameters asm("freestone_own_" #name)
#endif

// A further name of a function of this file: exported, or one that nobody outside the library can replace.
#define ALSO_EXPORTED(name, function) asm(".globl " name "\n.set " name ", " function)
#define ALSO_HIDDEN(name, function) asm(".globl " name "\n.hidden " name "\n.set " name ", " function)
