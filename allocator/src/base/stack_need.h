// Room 1, base: a slow path faults at its beginning where the stack ends, not in the midst of a change.
#pragma once

#include "base/units.h"

namespace freestone {

// More than malloc, realloc or free takes of a stack, without profiles (stress.stack_end).
inline constexpr usize kStackNeed = 2560;

// STACK-1  Slow paths call this at their entry, before they take a lock or open a cache. So where the stack overflows,
//          a handler may leave by siglongjmp and use the heap again. It only reads, so it takes no page.
inline void need_stack() {
#if defined(__x86_64__)
  asm volatile("testb $0, -%c0(%%rsp)" ::"i"(kStackNeed) : "cc");
#elif defined(__aarch64__)
  asm volatile("sub x16, sp, %0\n\tldrb w16, [x16]" ::"i"(kStackNeed) : "x16");
#else
#error "need_stack: expected x86-64 or aarch64"
#endif
}

}  // namespace freestone
