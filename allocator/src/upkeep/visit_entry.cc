// Room 19, upkeep: where a visit begins and how its thread goes on. See visit.h.
//
// The looker has set the program counter to freestone_visit_enter and the stack pointer to the end of the room's stack;
// every other register still holds the thread's own value, and is saved in the room. It gives them back itself, while
// the thread waits in freestone_visit_answer. If that function returns, the thread goes on by itself.

#include "upkeep/visit.h"

namespace freestone {

#if defined(__x86_64__)

static_assert(offsetof(SavedByLooker, mask) == 216 && offsetof(SavedByLooker, extended) == 256);
static_assert(offsetof(VisitRoom, saved) == 64);

// 0x800e7: x87, SSE, AVX, AVX-512 and the extended general registers. The area's header must be zero before the first
// save. The last jump reads its target from memory, after all registers have their values.
asm(R"(
  .text
  .balign 16
  .globl freestone_visit_enter
  .type freestone_visit_enter, @function
freestone_visit_enter:
  endbr64
  cld
  leaq freestone_visit_room+320(%rip), %r12
  movl $1, %eax
  cpuid
  movl %ecx, %r13d
  xorl %eax, %eax
  leaq 512(%r12), %rdi
  movl $8, %ecx
  rep stosq
  btl $27, %r13d
  jnc 1f
  movl $0x800e7, %eax
  xorl %edx, %edx
  xsave64 (%r12)
  jmp 2f
1:
  fxsave64 (%r12)
2:
  fninit
  subq $16, %rsp
  movl $0x1f80, (%rsp)
  ldmxcsr (%rsp)
  call freestone_visit_answer
  btl $27, %r13d
  jnc 3f
  movl $0x800e7, %eax
  xorl %edx, %edx
  xrstor64 (%r12)
  jmp 4f
3:
  fxrstor64 (%r12)
4:
  movl $14, %eax
  movl $2, %edi
  leaq freestone_visit_room+64+216(%rip), %rsi
  xorl %edx, %edx
  movl $8, %r10d
  syscall
  pushq freestone_visit_room+64+18*8(%rip)
  popfq
  movq freestone_visit_room+64+0*8(%rip), %r15
  movq freestone_visit_room+64+1*8(%rip), %r14
  movq freestone_visit_room+64+2*8(%rip), %r13
  movq freestone_visit_room+64+3*8(%rip), %r12
  movq freestone_visit_room+64+4*8(%rip), %rbp
  movq freestone_visit_room+64+5*8(%rip), %rbx
  movq freestone_visit_room+64+6*8(%rip), %r11
  movq freestone_visit_room+64+7*8(%rip), %r10
  movq freestone_visit_room+64+8*8(%rip), %r9
  movq freestone_visit_room+64+9*8(%rip), %r8
  movq freestone_visit_room+64+10*8(%rip), %rax
  movq freestone_visit_room+64+11*8(%rip), %rcx
  movq freestone_visit_room+64+12*8(%rip), %rdx
  movq freestone_visit_room+64+13*8(%rip), %rsi
  movq freestone_visit_room+64+14*8(%rip), %rdi
  movq freestone_visit_room+64+19*8(%rip), %rsp
  jmp *freestone_visit_room+64+16*8(%rip)
  .size freestone_visit_enter, .-freestone_visit_enter
)");

#elif defined(__aarch64__)

static_assert(offsetof(SavedByLooker, context) == 128 && offsetof(ucontext_t, uc_stack) == 16);
static_assert(offsetof(ucontext_t, uc_sigmask) == 40 && offsetof(ucontext_t, uc_mcontext) == 176);
static_assert(offsetof(mcontext_t, regs) == 8 && offsetof(mcontext_t, pc) == 264);
static_assert(offsetof(mcontext_t, __reserved) == 288);

// No register may be lost, and a jump needs one: the kernel's return from a signal sets them all at once. The vector
// registers lie in the frame as the kernel wants them (fpsimd_context), with the end of the list behind. The frame
// names the alternate stack that the thread has, so it keeps that.
asm(R"(
  .text
  .balign 16
  .globl freestone_visit_enter
  .type freestone_visit_enter, %function
freestone_visit_enter:
  hint #34
  adrp x19, freestone_visit_room
  add x19, x19, :lo12:freestone_visit_room
  add x20, x19, #64
  add x21, x20, #592
  movz w0, #0x8001
  movk w0, #0x4650, lsl #16
  mov w1, #528
  stp w0, w1, [x21]
  mrs x0, fpsr
  mrs x1, fpcr
  stp w0, w1, [x21, #8]
  add x2, x21, #16
  stp q0, q1, [x2], #32
  stp q2, q3, [x2], #32
  stp q4, q5, [x2], #32
  stp q6, q7, [x2], #32
  stp q8, q9, [x2], #32
  stp q10, q11, [x2], #32
  stp q12, q13, [x2], #32
  stp q14, q15, [x2], #32
  stp q16, q17, [x2], #32
  stp q18, q19, [x2], #32
  stp q20, q21, [x2], #32
  stp q22, q23, [x2], #32
  stp q24, q25, [x2], #32
  stp q26, q27, [x2], #32
  stp q28, q29, [x2], #32
  stp q30, q31, [x2], #32
  stp xzr, xzr, [x2]
  msr fpcr, xzr
  mov x29, xzr
  mov x30, xzr
  bl freestone_visit_answer
  stp xzr, xzr, [x20, #128]
  mov x0, xzr
  add x1, x20, #144
  mov x8, #132
  svc #0
  mov sp, x20
  mov x8, #139
  svc #0
  .size freestone_visit_enter, .-freestone_visit_enter
)");

#endif

}  // namespace freestone
