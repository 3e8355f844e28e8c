// Room 1, base: every file of the library includes this first, except those that do the program's own work. The library
// copies, clears and compares by functions of its own (plain_memory.cc), and so does the code that the compiler
// inserts. Another library may define libc's names, and its functions may allocate. That must not happen while a lock
// is held.
//
// Where FREESTONE_LIBC_MEMORY is defined, what realloc copies and calloc clears is left to libc: there no lock is held.
// The hardened library exports these names itself, so there libc's functions have another one (abi/libc_memory.cc).
#pragma once

#ifndef FREESTONE_DEFINES_MEMORY
#if defined(FREESTONE_LIBC_MEMORY) && !defined(FREESTONE_EXPORTS_MEMORY)
// libc's own
#elif defined(FREESTONE_LIBC_MEMORY)
asm("memcpy = freestone_libc_memcpy");
asm("memmove = freestone_libc_memmove");
asm("memset = freestone_libc_memset");
#else
asm("memcpy = freestone_plain_memcpy");
asm("memmove = freestone_plain_memmove");
asm("memset = freestone_plain_memset");
#endif
asm("memcmp = freestone_plain_memcmp");
asm("memchr = freestone_plain_memchr");
asm("strlen = freestone_plain_strlen");
asm("strcmp = freestone_plain_strcmp");
asm("strncmp = freestone_plain_strncmp");
asm("strchr = freestone_plain_strchr");
asm("strrchr = freestone_plain_strrchr");
asm("strstr = freestone_plain_strstr");
#endif
