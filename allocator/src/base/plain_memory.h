// Room 1, base: the library's own functions to copy, clear and compare. Every file includes this first, except those
// that do the program's own work; code that the compiler inserts calls them too. Another library may define libc's
// names, with functions that allocate, and that must not happen under a lock.
//
// Where FREESTONE_LIBC_MEMORY is defined, libc does the copies of realloc and the clearing of calloc, under no lock.
// The hardened library exports these names itself and calls libc's functions by others (abi/libc_memory.cc).
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
