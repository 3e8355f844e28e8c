// Room 1, base: every file of the hardened library includes this first. The library's own copies, and those that the
// compiler inserts, then bypass the checked functions that it exports (abi/libc_memory.cc).
#pragma once

#ifndef FREESTONE_DEFINES_MEMORY
asm("memcpy = freestone_plain_memcpy");
asm("memmove = freestone_plain_memmove");
asm("memset = freestone_plain_memset");
#endif
