// Room 4, platform: see own_stack.h.

#include "platform/own_stack.h"

#include <signal.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "platform/message.h"
#include "platform/os.h"

namespace freestone::os {

namespace {

// Statistics and profiles are written in 8 KiB of it.
constexpr usize kStackBytes = 32 * kKiB;
alignas(16) FREESTONE_FAR char own_stack[kStackBytes];
// The thread that is on it; 0: none. The child of a fork finds a number of its parent, which no thread of its own has.
Atomic<u32> owner;

void call_on(char* end, void (*work)()) {
#if defined(__x86_64__)
  asm volatile(
      "movq %%rsp, %%rbx\n\t"
      "movq %[end], %%rsp\n\t"
      "callq *%[work]\n\t"
      "movq %%rbx, %%rsp"
      : [end] "+&D"(end), [work] "+&S"(work)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
        "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
#elif defined(__aarch64__)
  asm volatile(
      "mov x19, sp\n\t"
      "mov sp, %[end]\n\t"
      "blr %[work]\n\t"
      "mov sp, x19"
      : [end] "+&r"(end), [work] "+&r"(work)
      :
      : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
        "x17", "x19", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",
        "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29",
        "v30", "v31", "memory", "cc");
#endif
}

bool take_stack() {
  const u32 self = thread_id();
  u32 other = 0;
  if (owner.replace_seq(other, self)) return true;
  return other != self && thread_is_gone(other) && owner.replace_seq(other, self);
}

}  // namespace

bool run_on_own_stack(void (*work)()) {
  if constexpr (FREESTONE_SANITIZED) {  // it knows only the stacks of threads
    work();
    return true;
  }
  if (!take_stack()) return false;
  call_on(own_stack + kStackBytes, work);
  owner.store_release(0);
  return true;
}

FREESTONE_AT_START bool catch_signal(const char* option, u64 number, void (*handler)(int)) {
  if (number == 0) return false;
  const int signal = static_cast<int>(number);
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  const bool is_taken = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
  action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);  // run_on_own_stack
  if (!is_taken && sigaction(signal, &action, nullptr) == 0) return true;
  Message message;
  message << "option " << option << ": signal " << number << (is_taken ? " has a handler" : " cannot be caught");
  (message << "; expected another one").write();
  return false;
}

}  // namespace freestone::os
