// Room 4, platform: the instruction that enters the kernel, for the files of this room alone.
#pragma once

#include "base/units.h"

namespace freestone::os {

void count_call(long number);

inline long invoke(long number, usize a = 0, usize b = 0, usize c = 0, usize d = 0, usize e = 0, usize f = 0) {
  count_call(number);
#if defined(__x86_64__)
  long result;
  register usize r10 asm("r10") = d;
  register usize r8 asm("r8") = e;
  register usize r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register usize x0 asm("x0") = a;
  register usize x1 asm("x1") = b;
  register usize x2 asm("x2") = c;
  register usize x3 asm("x3") = d;
  register usize x4 asm("x4") = e;
  register usize x5 asm("x5") = f;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return static_cast<long>(x0);
#else
#error "Freestone runs on Linux x86-64 and aarch64"
#endif
}

inline bool is_error(long result) { return result < 0 && result > -4096; }

}  // namespace freestone::os
