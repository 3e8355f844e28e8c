// Room 1, base: included before everything else in the hardened library. The library's own copies, those of the
// compiler among them, do not go through the checked functions that it exports (abi/libc_memory.cc).
#pragma once

#ifndef FREESTONE_DEFINES_MEMORY
asm("memcpy = freestone_plain_memcpy");
asm("memmove = freestone_plain_memmove");
asm("memset = freestone_plain_memset");
#endif
