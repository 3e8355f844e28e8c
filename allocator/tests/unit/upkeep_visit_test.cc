// Room 18: visits whose looker died. A fault leads a thread into the room, as ptrace would; nobody takes it back.
#include <gtest/gtest.h>

#include <cfenv>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "cache/registry.h"
#include "front/heap.h"
#include "heaps/heap_object.h"
#include "limits/limits.h"
#include "profile/profile.h"
#include "profile/profile_store.h"
#include "region/account.h"
#include "region/metadata.h"
#include "report/live_page.h"
#include "sampling/sampling.h"
#include "span/mapping.h"
#include "unit/support.h"
#include "upkeep/visit.h"

extern "C" {
void freestone_visit_enter();
// Loads all registers from visit_in, faults, and stores them in visit_out.
void visit_probe();
alignas(64) unsigned char visit_in[4096];
alignas(64) unsigned char visit_out[4096];
unsigned visit_wide;  // how wide the vector registers are: 0, 1 or 2
}

namespace freestone {
namespace {

constexpr usize kGeneral = 16 * 8;
#if defined(__x86_64__)
constexpr usize kVectorsAt = 256;
constexpr usize kWideAt = 1024;
asm(R"(
  .macro each_general op, area
    \op \area, 0, rbx; \op \area, 1, rbp; \op \area, 2, r12; \op \area, 3, r13; \op \area, 4, r14; \op \area, 5, r15
    \op \area, 6, rax; \op \area, 7, rcx; \op \area, 8, rdx; \op \area, 9, rsi; \op \area, 10, rdi; \op \area, 11, r8
    \op \area, 12, r9; \op \area, 13, r10; \op \area, 14, r11
  .endm
  .macro load_one area, number, name
    movq \area+8*\number(%rip), %\name
  .endm
  .macro store_one area, number, name
    movq %\name, \area+8*\number(%rip)
  .endm
  .text
  .globl visit_probe
  .type visit_probe, @function
visit_probe:
  pushq %rbx; pushq %rbp; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  cmpl $1, visit_wide(%rip)
  jb 1f
  .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
  vmovdqu visit_in+256+32*\n(%rip), %ymm\n
  .endr
  je 1f
  .irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
  vmovdqu64 visit_in+1024+64*(\n-16)(%rip), %zmm\n
  .endr
  kmovw visit_in+2048(%rip), %k3
1:
  each_general load_one, visit_in
  stc
  movq %rsp, visit_in+8*15(%rip)
  ud2
  movq %rsp, visit_out+8*15(%rip)
  each_general store_one, visit_out
  setc visit_out+2050(%rip)
  cmpl $1, visit_wide(%rip)
  jb 1f
  .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
  vmovdqu %ymm\n, visit_out+256+32*\n(%rip)
  .endr
  je 1f
  .irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
  vmovdqu64 %zmm\n, visit_out+1024+64*(\n-16)(%rip)
  .endr
  kmovw %k3, visit_out+2048(%rip)
1:
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbp; popq %rbx
  ret
  .size visit_probe, .-visit_probe
)");

void lead(ucontext_t& context) {
  SavedByLooker& saved = freestone_visit_room.saved;
  const auto& r = context.uc_mcontext.gregs;
  const greg_t in_order[] = {r[REG_R15], r[REG_R14], r[REG_R13], r[REG_R12], r[REG_RBP], r[REG_RBX], r[REG_R11],
                             r[REG_R10], r[REG_R9],  r[REG_R8],  r[REG_RAX], r[REG_RCX], r[REG_RDX], r[REG_RSI],
                             r[REG_RDI], -1,         r[REG_RIP] + 2, 0,      r[REG_EFL], r[REG_RSP]};
  std::memcpy(saved.registers, in_order, sizeof in_order);
  std::memcpy(&saved.mask, &context.uc_sigmask, sizeof saved.mask);
  context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(&freestone_visit_enter);
  context.uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(&freestone_visit_room + 1);
}

unsigned width() {
  if (__builtin_cpu_supports("avx512f")) return 2;
  return __builtin_cpu_supports("avx") ? 1 : 0;
}

#elif defined(__aarch64__)
constexpr usize kVectorsAt = 256;
asm(R"(
  .text
  .globl visit_probe
  .type visit_probe, %function
visit_probe:
  sub sp, sp, #176
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  adrp x30, visit_in
  add x30, x30, :lo12:visit_in
  mov x0, sp
  str x0, [x30, #248]
  add x0, x30, #256
  .irp n, 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30
  ldr q\n, [x0], #16
  .endr
  .irp n, 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31
  ldr q\n, [x0], #16
  .endr
  .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29
  ldr x\n, [x30, #8*\n]
  .endr
  ldr x30, [x30, #240]
  .inst 0
  str x30, [sp, #160]
  adrp x30, visit_out
  add x30, x30, :lo12:visit_out
  .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29
  str x\n, [x30, #8*\n]
  .endr
  ldr x0, [sp, #160]
  str x0, [x30, #240]
  mov x0, sp
  str x0, [x30, #248]
  add x0, x30, #256
  .irp n, 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30
  str q\n, [x0], #16
  .endr
  .irp n, 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31
  str q\n, [x0], #16
  .endr
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
  .size visit_probe, .-visit_probe
)");

void lead(ucontext_t& context) {
  mcontext_t& saved = freestone_visit_room.saved.context.uc_mcontext;
  context.uc_mcontext.pc += 4;
  std::memcpy(saved.regs, context.uc_mcontext.regs, sizeof saved.regs);
  saved.sp = context.uc_mcontext.sp;
  saved.pc = context.uc_mcontext.pc;
  saved.pstate = context.uc_mcontext.pstate;
  freestone_visit_room.saved.context.uc_sigmask = context.uc_sigmask;
  context.uc_mcontext.pc = reinterpret_cast<unsigned long>(&freestone_visit_enter);
  context.uc_mcontext.sp = reinterpret_cast<unsigned long>(&freestone_visit_room + 1);
}

unsigned width() { return 0; }
#endif

void on_fault(int, siginfo_t*, void* context) { lead(*static_cast<ucontext_t*>(context)); }

class upkeep_visit : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ensure_started(), Mode::active);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigfillset(&action.sa_mask);  // so the mask that comes back is the room's
    sigaction(SIGILL, &action, &before_);
  }
  void TearDown() override { sigaction(SIGILL, &before_, nullptr); }

  static i64 visit(Errand errand, u64 argument = 0) {
    VisitRoom& room = freestone_visit_room;
    room.errand = errand;
    room.argument = argument;
    room.patience_ms = 0;
    room.state.store_relaxed(VisitRoom::kAsked);
    visit_wide = width();
    visit_probe();
    EXPECT_EQ(room.state.load_relaxed(), VisitRoom::kLeft);
    return room.result;
  }
  static std::string text() {
    return {reinterpret_cast<const char*>(freestone_visit_room.answer), freestone_visit_room.answer_bytes};
  }

  struct sigaction before_;
};

// VISIT-1
TEST_F(upkeep_visit, AThreadThatNobodyTakesBackGoesOnWithAllItHad) {
  sigset_t mask, after;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR2);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::fesetround(FE_UPWARD);
  char other_stack[16 * 1024];
  const stack_t alternate = {other_stack, 0, sizeof other_stack};
  sigaltstack(&alternate, nullptr);
  for (unsigned round = 0; round < 50; ++round) {
    for (usize i = 0; i < sizeof visit_in; ++i) visit_in[i] = static_cast<unsigned char>(i * 7 + round * 31 + i / 256);
    std::memset(visit_out, 0, sizeof visit_out);
    visit(round % 2 == 0 ? Errand::none : Errand::is_profiling);
#if defined(__x86_64__)
    ASSERT_EQ(std::memcmp(visit_in, visit_out, kGeneral), 0);
    ASSERT_EQ(visit_out[2050], 1) << "the carry flag";
    ASSERT_EQ(std::memcmp(visit_in + kVectorsAt, visit_out + kVectorsAt, visit_wide >= 1 ? 16 * 32 : 0), 0);
    ASSERT_EQ(std::memcmp(visit_in + kWideAt, visit_out + kWideAt, visit_wide >= 2 ? 16 * 64 + 2 : 0), 0);
#else
    ASSERT_EQ(std::memcmp(visit_in, visit_out, kVectorsAt + 32 * 16), 0);
#endif
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  stack_t now;
  sigaltstack(nullptr, &now);
  EXPECT_EQ(now.ss_sp, other_stack);
  const stack_t none = {nullptr, SS_DISABLE, 0};
  sigaltstack(&none, nullptr);
  sigprocmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(std::memcmp(&mask, &after, 8), 0);
  sigemptyset(&mask);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

TEST_F(upkeep_visit, AThreadThatHoldsALockIsNotLetToWaitForIt) {
  profile_store.lock.lock();
  EXPECT_EQ(visit(Errand::start_profile, 4096), EBUSY);
  EXPECT_EQ(visit(Errand::write_profile), EBUSY);
  profile_store.lock.unlock();
  EXPECT_FALSE(profile_is_active());
}

// A search for leaks would read all of a sanitizer's shadow memory.
constexpr Errand kSearch = FREESTONE_SANITIZED ? Errand::is_profiling : Errand::write_leaks;
constexpr Errand kErrands[] = {
    Errand::start_profile, Errand::is_profiling, Errand::write_profile, Errand::make_place, kSearch,
    Errand::show_page,     Errand::hide_page,    Errand::stop_profile,
};
constexpr u64 argument_of(Errand errand) { return errand == Errand::make_place ? 4096 : 0; }

// VISIT-3
TEST_F(upkeep_visit, NoErrandWaitsForALockThatStaysHeld) {
  Mutex* const locks[] = {&metadata_lock,    &growth_lock,         &span_lock,   &mapping_lock, &cache_registry_lock,
                          &heap_object_lock, &profile_store.lock, &report_lock, &attention_lock};
  for (Mutex* lock : locks) {
    for (const Errand errand : kErrands) {
      lock->lock();
      visit(errand, argument_of(errand));
      lock->unlock();
    }
  }
  visit(Errand::hide_page);
  EXPECT_EQ(visit(Errand::stop_profile), 0);
}

TEST_F(upkeep_visit, NoErrandNeedsMoreThanHalfOfTheStack) {
  char* const stack = freestone_visit_room.stack;
  void* block = nullptr;
  for (u64 format = 0; format <= static_cast<u64>(ProfileFormat::heap_v2); ++format) {
    for (const Errand errand : kErrands) {
      std::memset(stack, 0x5a, sizeof freestone_visit_room.stack);
      if (errand == Errand::write_profile) {
        deallocate(block);
        block = allocate(1000);  // so that there is a stack to name
      }
      const i64 result = visit(errand, errand == Errand::write_profile ? format : argument_of(errand));
      EXPECT_EQ(result, errand == Errand::is_profiling ? 1 : 0) << static_cast<u64>(errand);
      usize untouched = 0;
      while (stack[untouched] == 0x5a) ++untouched;
      EXPECT_GT(untouched, sizeof freestone_visit_room.stack / 2) << static_cast<u64>(errand);
    }
  }
  deallocate(block);
}

// VISIT-2
TEST_F(upkeep_visit, AProfileEndsWhenItsLookerIsGone) {
  ASSERT_EQ(visit(Errand::start_profile, 4096), 0);
  EXPECT_EQ(visit(Errand::start_profile, 4096), EALREADY);
  EXPECT_EQ(visit(Errand::is_profiling), 1);
  EXPECT_NE(attention.load_relaxed() & kAttentionLook, 0U);
  const u64 now = os::coarse_milliseconds();
  end_forgotten_looks(now + 5'000);
  EXPECT_TRUE(profile_is_active()) << "too early";
  freestone_visit_room.renewals[0].add_relaxed(1);
  end_forgotten_looks(now + 3'600'000);
  EXPECT_TRUE(profile_is_active()) << "the looker has said so, though the program was idle since";
  end_forgotten_looks(now + 3'611'000);
  EXPECT_FALSE(profile_is_active());
  EXPECT_EQ(attention.load_relaxed() & kAttentionLook, 0U);
}

TEST_F(upkeep_visit, APageEndsWhenItsLookerIsGone) {
  ASSERT_EQ(visit(Errand::show_page), 0);
  EXPECT_TRUE(page_is_looked_at());
  end_forgotten_looks(os::coarse_milliseconds() + 11'000);
  EXPECT_FALSE(page_is_looked_at());
  const std::string path = "/dev/shm/freestone-" + std::to_string(getpid());
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_F(upkeep_visit, APageEndsWithTheProfileOfTheSameLooker) {
  for (const bool renewed : {false, true}) {
    ASSERT_EQ(visit(Errand::start_profile, 4096), 0);
    const u64 begun = os::coarse_milliseconds();
    while (os::coarse_milliseconds() < begun + 20) os::sleep_microseconds(1000);
    ASSERT_EQ(visit(Errand::show_page), 0);
    if (renewed) freestone_visit_room.renewals[1].add_relaxed(1);
    end_forgotten_looks(begun + 10'010);
    EXPECT_FALSE(profile_is_active());
    EXPECT_EQ(page_is_looked_at(), renewed);
  }
  visit(Errand::hide_page);
}

TEST_F(upkeep_visit, WhatWasSampledIsWrittenIntoMemory) {
  ASSERT_EQ(visit(Errand::start_profile, 1), 0);
  void* block = allocate(1000);
  EXPECT_EQ(visit(Errand::write_profile, static_cast<u64>(ProfileFormat::pprof)), 0);
  EXPECT_NE(text().find("inuse_space"), std::string::npos);
  EXPECT_EQ(visit(Errand::write_profile, static_cast<u64>(ProfileFormat::heap_v2)), 0);
  EXPECT_EQ(text().rfind("heap_v2/1", 0), 0U);
  EXPECT_EQ(visit(Errand::write_profile, kConfigured), 0);
  EXPECT_NE(text().find("inuse_space"), std::string::npos);
  deallocate(block);
  EXPECT_EQ(visit(Errand::stop_profile), 0);
  EXPECT_FALSE(profile_is_active());
}

u64 live_samples() {
  u64 count = 0;
  LockGuard guard(profile_store.lock);
  profile_store.for_each_live([&](const LiveSample&) { ++count; });
  return count;
}
Amount live_sums() {
  LockGuard guard(profile_store.lock);
  return profile_store.totals().live;
}

// STORE-1
TEST_F(upkeep_visit, AProfileHoldsNoSampleOfAnEarlierOne) {
  for (const u64 mean : {u64{1}, u64{128 * 1024}}) {  // every block is tracked; or some are served apart
    std::vector<void*> kept;
    ASSERT_EQ(visit(Errand::start_profile, mean), 0);
    while (kept.size() < 5000 || live_samples() == 0) kept.push_back(allocate(4000));
    EXPECT_GT(live_samples(), 0U);
    EXPECT_EQ(visit(Errand::stop_profile), 0);
    ASSERT_EQ(visit(Errand::start_profile, mean), 0);
    EXPECT_EQ(live_samples(), 0U);
    EXPECT_EQ(live_sums().bytes, 0);
    void* own = nullptr;
    while (live_samples() == 0) {
      deallocate(own);
      own = allocate(4000);
    }
    for (void* block : kept) deallocate(block);  // those that were sampled earlier take nothing from the sums
    EXPECT_EQ(live_samples(), 1U);
    EXPECT_GE(live_sums().bytes, 4000 - 1e-6);
    deallocate(own);
    EXPECT_NEAR(live_sums().bytes, 0, 1e-3);
    EXPECT_EQ(visit(Errand::stop_profile), 0);
  }
}

}  // namespace
}  // namespace freestone
