// Room 1, base: included before everything else in the hardened library. Its own copies, also those that the compiler
// inserts, bypass the checked functions that it exports (abi/libc_memory.cc).
#pragma once

#ifndef FREESTONE_DEFINES_MEMORY
asm("memcpy = freestone_plain_memcpy");
asm("memmove = freestone_plain_memmove");
asm("memset = freestone_plain_memset");
#endif
