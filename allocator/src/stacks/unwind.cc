// Room 13, stacks: see unwind.h.

#include "stacks/unwind.h"

#include <ucontext.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "stacks/memory_maps.h"
#include "stacks/python_frames.h"

namespace freestone {

namespace {

FREESTONE_THREAD_LOCAL StackBounds last_bounds;  // the stack that this thread last ran on

FREESTONE_INLINE void read_registers(Registers& r) {
  r.known = 0;
#if defined(__x86_64__)
  usize rbx, rbp, rsp, r12, r13, r14, r15, pc;
  asm volatile(
      "movq %%rbx, %0\n movq %%rbp, %1\n movq %%rsp, %2\n movq %%r12, %3\n movq %%r13, %4\n movq %%r14, %5\n movq "
      "%%r15, %6\n"
      "leaq 0(%%rip), %7\n movq %7, %7"
      : "=m"(rbx), "=m"(rbp), "=m"(rsp), "=m"(r12), "=m"(r13), "=m"(r14), "=m"(r15), "=r"(pc));
  r.set(3, rbx);
  r.set(6, rbp);
  r.set(7, rsp);
  r.set(12, r12);
  r.set(13, r13);
  r.set(14, r14);
  r.set(15, r15);
  r.pc = pc;
#else
  usize saved[12], sp, pc;
  asm volatile(
      "stp x19, x20, [%2]\n stp x21, x22, [%2, #16]\n stp x23, x24, [%2, #32]\n stp x25, x26, [%2, #48]\n stp x27, "
      "x28, [%2, #64]\n"
      "stp x29, x30, [%2, #80]\n mov %0, sp\n adr %1, ."
      : "=&r"(sp), "=&r"(pc)
      : "r"(saved)
      : "memory");
  for (unsigned i = 0; i < 12; ++i) r.set(19 + i, saved[i]);
  r.set(31, sp);
  r.pc = pc;
#endif
  r.pc_is_call = false;
}

// Finds the caller by the frame pointer, which points at the caller's frame pointer. The return address lies above
// that.
bool step_by_frame_pointer(Registers& r, const StackBounds& stack) {
  if (!r.knows(Registers::kFrame)) return false;
  const usize frame = r.value[Registers::kFrame];
  if (frame % sizeof(usize) != 0 || frame < r.stack() || !stack.holds(frame, 2 * sizeof(usize))) return false;
  const auto* words = reinterpret_cast<const usize*>(frame);
  const usize pc = words[1];
  const usize next = words[0];
  if (pc < 4096 || (next != 0 && next <= frame)) return false;
  r.known = 0;
  r.set(Registers::kFrame, next);
  r.set(Registers::kStack, frame + 2 * sizeof(usize));
  r.pc = pc;
  r.pc_is_call = true;
  return true;
}

// Puts Python's calls among the C frames while the walk finds these, from the innermost outwards.
class PythonCalls {
 public:
  explicit PythonCalls(const PythonStack* python) : python_(python) {}

  // The last frame put spans [low, high) of the stack. The calls that it runs go before it.
  void place(usize* frames, unsigned& count, unsigned capacity, usize low, usize high) {
    for (; python_ != nullptr && level_ < python_->level_count && python_->levels[level_].marker < high; ++level_) {
      if (python_->levels[level_].marker < low || count == 0) continue;
      const usize evaluator = frames[--count];
      put(frames, count, capacity - 1, python_->levels[level_].end);
      frames[count++] = evaluator;
    }
  }
  // Adds the calls that the C stack did not reach.
  void place_rest(usize* frames, unsigned& count, unsigned capacity) {
    if (python_ != nullptr) put(frames, count, capacity, python_->call_count);
  }

 private:
  void put(usize* frames, unsigned& count, unsigned capacity, unsigned end) {
    for (; next_ < end && count < capacity; ++next_) frames[count++] = kPythonCall | next_;
  }

  const PythonStack* python_;
  unsigned level_ = 0;
  unsigned next_ = 0;
};

// Walks from `r` outwards. Leaves out the first frames as long as they lie inside [own_start, own_end).
unsigned walk(Registers& r, const StackBounds& stack, usize* frames, unsigned capacity, Unwind how, usize own_start,
              usize own_end, const PythonStack* python) {
  PythonCalls calls(python);
  unsigned count = 0;
  bool inside = own_end != 0;
  bool tables = true;  // our own frames always go by tables, because this library has them
  for (unsigned steps = 0; count < capacity && steps < kFramesMax + 32; ++steps) {
    const usize before = r.stack();
    bool outermost = false;
    if (!(tables && step_by_tables(r, stack, &outermost)) && (outermost || !step_by_frame_pointer(r, stack))) break;
    // A chain of frame pointers may lead into data. No code has an address with the highest bit set, which tells
    // Python's calls.
    if (r.pc < 4096 || (r.pc & kPythonCall) != 0 || r.stack() < before || !stack.holds(r.stack(), 0)) break;
    inside = inside && r.pc - own_start < own_end - own_start;
    if (inside) continue;
    calls.place(frames, count, capacity, before, r.stack());
    if (count == capacity) break;
    frames[count++] = r.pc;
    tables = how == Unwind::tables;
  }
  calls.place_rest(frames, count, capacity);
  return count;
}

}  // namespace

StackBounds stack_bounds(usize stack_pointer) {
  if (last_bounds.holds(stack_pointer, 1)) return {stack_pointer, last_bounds.high};
  StackBounds found{};
  for_each_mapped([&](const Mapping& mapping) {
    if (stack_pointer < mapping.start || stack_pointer >= mapping.end) return mapping.start <= stack_pointer;
    found = {mapping.start, mapping.end};
    return false;
  });
  // The thread's control block lies at the top of its stack. What is mapped above it belongs to others.
  const auto self = reinterpret_cast<usize>(__builtin_thread_pointer());
  if (self > stack_pointer && self < found.high) found.high = self;
  last_bounds = found;
  return {stack_pointer, found.high};
}

__attribute__((noinline)) unsigned capture_stack(usize* frames, unsigned capacity, Unwind how,
                                                 const PythonStack* python) {
  static Atomic<usize> own_start, own_end;  // the end is stored last: its release publishes the start
  Registers r;
  read_registers(r);
  usize start = 0, end = own_end.load_acquire();
  if (end != 0) {
    start = own_start.load_relaxed();
  } else if (find_module(r.pc, &start, &end)) {
    own_start.store_relaxed(start);
    own_end.store_release(end);
  }
  const StackBounds stack = stack_bounds(r.stack());
  if (stack.high == 0) return 0;
  return walk(r, stack, frames, capacity, how, start, end, python);
}

unsigned capture_interrupted(const void* context, usize* frames, unsigned capacity, Unwind how) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
  Registers r;
  r.known = 0;
#if defined(__x86_64__)
  constexpr int kPlaces[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                               REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  for (unsigned i = 0; i < 16; ++i) r.set(i, static_cast<usize>(machine.gregs[kPlaces[i]]));
  r.pc = static_cast<usize>(machine.gregs[REG_RIP]);
#else
  for (unsigned i = 0; i < 31; ++i) r.set(i, machine.regs[i]);
  r.set(31, machine.sp);
  r.pc = machine.pc;
#endif
  r.pc_is_call = false;
  frames[0] = r.pc + 1;  // frames are return addresses, and readers look at the byte before
  const StackBounds stack = stack_bounds(r.stack());
  return stack.high == 0 ? 1 : 1 + walk(r, stack, frames + 1, capacity - 1, how, 0, 0, nullptr);
}

}  // namespace freestone
