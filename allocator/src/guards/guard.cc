// Room 15, guards: see guard.h.

#include "guards/guard.h"

#include <signal.h>
#include <ucontext.h>

#include <cstring>

#include "config/options.h"
#include "front/sampled.h"
#include "platform/message.h"
#include "platform/mutex.h"
#include "platform/leaving.h"
#include "profile/profile.h"
#include "profile/profile_report.h"

namespace freestone {

namespace {

constexpr unsigned kGuardFrames = 48;
constexpr u8 kSlack = 0xB7;  // fills the bytes beside the block in its pages

enum class State : u8 { empty, live, freed };

struct Stack {
  u32 thread;
  u32 depth;
  usize frames[kGuardFrames];
};

struct Slot {
  State state;
  UnitIndex first;
  usize block;
  usize bytes;
  usize pages_start;  // the accessible pages of a live block
  usize pages_end;
  usize closed_bytes;  // of its units, what faults and has no memory
  Stack allocated;
  Stack freed;
  u32 next;  // in the queue of freed slots, or of empty ones
};

constexpr u32 kNone = ~u32{0};

constinit Mutex guard_lock{LockName::guard};
u32 slots_made FREESTONE_GUARDED_BY(guard_lock) = 0;  // every slot below was used at least once
u32 live_slots FREESTONE_GUARDED_BY(guard_lock) = 0;
u32 oldest_freed FREESTONE_GUARDED_BY(guard_lock) = kNone;
u32 newest_freed FREESTONE_GUARDED_BY(guard_lock) = kNone;
u32 empty_slots FREESTONE_GUARDED_BY(guard_lock) = kNone;
// Pieces of the table of slots. Each is made once, under the lock, and published to every fault and free, so the option
// guard_slots may change at any time.
constexpr u32 kPieceSlots = 1024;
constexpr u32 kSlotsMax = 65536;  // of the option
Atomic<Slot*> pieces[kSlotsMax / kPieceSlots];

Slot& slot_at_index(u32 index) { return pieces[index / kPieceSlots].load_acquire()[index % kPieceSlots]; }

struct sigaction previous_segv, previous_bus;

void take_stack(Stack& stack) {
  usize frames[kFramesMax];
  const unsigned depth = capture_profile_stack(frames);
  stack.thread = os::thread_id();
  stack.depth = min_of(depth, kGuardFrames);
  std::memcpy(stack.frames, frames, stack.depth * sizeof(usize));
}

// Whether the range faults from here on and has no memory.
bool forbid(Slot& slot, usize start, usize end, bool takes_memory = false) {
  if (start == end) return true;
  if (os::keeps_pages()) return false;
  void* const pages = reinterpret_cast<void*>(start);
  os::announce_guard(pages, end - start);
  bool closed = !os::guard_install(pages, end - start);
  if (!closed) {
    const bool is_empty = takes_memory && !os::purge(pages, end - start);
    closed = !os::protect_none(pages, end - start) && is_empty;
  }
  if (closed) {
    slot.closed_bytes += end - start;
    sampled_closed_bytes.add_relaxed(end - start);
  }
  return closed;
}

// Undoes both ways of forbidding. False if the kernel refuses: with all mappings used up, or beyond a limit that was
// lowered.
bool allow(usize start, usize end) {
  os::guard_remove(reinterpret_cast<void*>(start), end - start);
  return !os::commit(reinterpret_cast<void*>(start), end - start);
}

Slot* slot_of(UnitIndex first) {
  const u64 number = SampledRecord(first).guard().load_relaxed();
  return number == 0 ? nullptr : &slot_at_index(static_cast<u32>(number - 1));
}

usize span_start(const Slot& slot) { return address_of(unit_address(slot.first)); }
usize span_end(const Slot& slot) { return span_start(slot) + units_to_bytes(SampledRecord(slot.first).units()); }

void forget_locked(Slot& slot) FREESTONE_REQUIRES(guard_lock) {
  slot.state = State::empty;
  sampled_closed_bytes.sub_relaxed(slot.closed_bytes);
  SampledRecord(slot.first).guard().store_relaxed(0);
}

// Forgets the block that has been free for longest. The caller gives its units back. kNone if there is none, or if it
// must stay (GUARD-1).
u32 forget_oldest_locked(UnitIndex& units) FREESTONE_REQUIRES(guard_lock) {
  const u32 index = oldest_freed;
  if (index == kNone) return kNone;
  Slot& slot = slot_at_index(index);
  if (!allow(span_start(slot), span_end(slot))) return kNone;
  oldest_freed = slot.next;
  if (oldest_freed == kNone) newest_freed = kNone;
  forget_locked(slot);
  units = slot.first;
  return index;
}

void put_empty_locked(u32 index) FREESTONE_REQUIRES(guard_lock) {
  slot_at_index(index).next = empty_slots;
  empty_slots = index;
}

// A slot that was never used.
u32 make_slot_locked() FREESTONE_REQUIRES(guard_lock) {
  Atomic<Slot*>& piece = pieces[slots_made / kPieceSlots];
  if (piece.load_relaxed() == nullptr)
    piece.store_release(static_cast<Slot*>(os::map(round_up(kPieceSlots * sizeof(Slot), os::page_bytes()))));
  return piece.load_relaxed() == nullptr ? kNone : slots_made++;
}

// A slot for a new block: an unused one, or that of the block that has been free for longest. The caller gives the old
// units back.
u32 take_slot_locked(UnitIndex& old_units) FREESTONE_REQUIRES(guard_lock) {
  const auto limit = min_of(static_cast<u32>(options.guard_slots), kSlotsMax);
  if (live_slots >= limit - limit / 4) return kNone;
  u32 index = empty_slots;
  if (index != kNone) {
    empty_slots = slot_at_index(index).next;
  } else {
    index = slots_made < limit ? make_slot_locked() : forget_oldest_locked(old_units);
  }
  if (index != kNone) ++live_slots;
  return index;
}

void put_stack(const char* title, const Stack& stack) {
  (Message(title) << " by thread " << stack.thread << ':').write();
  print_stack(stack.frames, stack.depth);
}

void put_history(const Slot& slot) {
  put_stack(" allocated", slot.allocated);
  if (slot.state == State::freed) put_stack(" freed", slot.freed);
}

void put_headline(const char* kind, const Slot& slot) {
  Message line;
  line << kind << " of " << reinterpret_cast<void*>(slot.block) << " (block of " << u64{slot.bytes} << " bytes)";
  line.write();
}

[[noreturn]] void report_misuse(const char* kind, const Slot& slot, const char* where) {
  put_headline(kind, slot);
  Stack here;
  take_stack(here);
  put_stack(where, here);
  put_history(slot);
  end_by_failure(kind, reinterpret_cast<void*>(slot.block), "guarded sample");
}

// Whether nobody wrote to [from, to).
bool slack_is_intact(usize from, usize to) {
  for (const auto* byte = reinterpret_cast<const u8*>(from); address_of(byte) < to; ++byte) {
    if (*byte != kSlack) return false;
  }
  return true;
}

void distance_line(usize address, const Slot& slot, const char* access) {
  Message line(" ");
  line << access << " at " << reinterpret_cast<void*>(address) << ", ";
  if (address < slot.block) {
    line << u64{slot.block - address} << " bytes before the block";
  } else if (address >= slot.block + slot.bytes) {
    line << u64{address - slot.block - slot.bytes} << " bytes after its end";
  } else {
    line << u64{address - slot.block} << " bytes into the block";
  }
  line.write();
}

const char* access_of(const void* context) {
#if defined(__x86_64__)
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "write" : "read";
#else
  (void)context;
  return "access";
#endif
}

// The slot whose units hold the address; null if there is none.
Slot* slot_at(usize address) {
  const auto* pointer = reinterpret_cast<const void*>(address);
  if (!in_window(pointer)) return nullptr;
  const UnitIndex first = sampled_first_unit(pointer);
  return first == kNoUnit ? nullptr : slot_of(first);
}

void hand_on(int signal, siginfo_t* info, void* context, const struct sigaction& previous) {
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr)
    return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  // The instruction runs again and ends the process in the ordinary way, so the core file shows the right place.
  struct sigaction ordinary {};
  ordinary.sa_handler = SIG_DFL;
  sigaction(signal, &ordinary, nullptr);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  static Atomic<u32> reported;  // only the first fault writes, so that no other mixes into its lines
  const usize address = address_of(info->si_addr);
  const Slot* slot = info->si_code > 0 ? slot_at(address) : nullptr;
  if (slot != nullptr && reported.exchange_seq(1) == 0) {
    const char* kind = slot->state == State::freed ? "use after free"
                       : address < slot->block     ? "heap buffer underflow"
                                                   : "heap buffer overflow";
    put_headline(kind, *slot);
    distance_line(address, *slot, access_of(context));
    Stack here;
    here.thread = os::thread_id();
    here.depth = capture_interrupted(context, here.frames, kGuardFrames, static_cast<Unwind>(options.prof_unwind));
    put_stack(" at", here);
    put_history(*slot);
  }
  hand_on(signal, info, context, signal == SIGBUS ? previous_bus : previous_segv);
}

}  // namespace

void* guard_allocate(usize bytes, usize alignment) {
  const usize page = os::page_bytes();
  if (page > kUnitBytes || alignment > page || bytes > kGuardedBytesMax) return nullptr;
  const usize accessible = round_up(max_of<usize>(bytes, 1), page);
  const usize units = bytes_to_units(accessible + 2 * page);
  UnitIndex old_units = kNoUnit;
  u32 index;
  bool right;
  {
    LockGuard guard(guard_lock);
    index = take_slot_locked(old_units);
    static u32 turn FREESTONE_GUARDED_BY(guard_lock) = 0;
    right = (turn++ & 1) == 0;
  }
  if (old_units != kNoUnit) return_sampled_units(old_units);
  if (index == kNone) return nullptr;
  // malloc promises an alignment of 16 bytes for every size. So bytes may lie between the end and the guard; the free
  // checks those.
  const usize taken = round_up(max_of<usize>(bytes, 1), max_of<usize>(alignment, 16));
  const UnitIndex first = take_sampled_units(bytes, units, 1, right ? page + accessible - taken : page);
  Slot& slot = slot_at_index(index);  // nobody else's until the record names it
  if (first == kNoUnit) {
    LockGuard guard(guard_lock);
    put_empty_locked(index);
    --live_slots;
    return nullptr;
  }
  slot.first = first;
  slot.block = address_of(sampled_block(first));
  slot.bytes = bytes;
  slot.pages_start = address_of(unit_address(first)) + page;
  slot.pages_end = slot.pages_start + accessible;
  slot.freed.depth = 0;
  take_stack(slot.allocated);
  slot.state = State::live;
  std::memset(reinterpret_cast<void*>(slot.pages_start), kSlack, slot.block - slot.pages_start);
  std::memset(reinterpret_cast<void*>(slot.block + bytes), kSlack, slot.pages_end - slot.block - bytes);
  if constexpr (kMitigations.zero_on_free)
    std::memset(sampled_block(first), 0, bytes);  // such a build hands out clear memory
  slot.closed_bytes = 0;
  forbid(slot, span_start(slot), slot.pages_start);
  forbid(slot, slot.pages_end, span_end(slot));
  SampledRecord(first).guard().store_relaxed(u64{index} + 1);
  return reinterpret_cast<void*>(slot.block);
}

bool is_guarded(UnitIndex first) { return SampledRecord(first).guard().load_relaxed() != 0; }

void guard_check_free(void* block, UnitIndex first) {
  (void)block;
  Slot& slot = *slot_of(first);
  bool twice;
  {
    LockGuard guard(guard_lock);
    twice = slot.state != State::live;
    if (!twice) {
      take_stack(slot.freed);
      slot.state = State::freed;
    }
  }
  if (twice) report_misuse("double free", slot, " freed again");
  if (!slack_is_intact(slot.pages_start, slot.block)) report_misuse("heap buffer underflow", slot, " seen at its free");
  if (!slack_is_intact(slot.block + slot.bytes, slot.pages_end))
    report_misuse("heap buffer overflow", slot, " seen at its free");
}

// A block whose memory would stay does not wait among the freed ones: they may be many, and large.
void guard_deallocate(UnitIndex first) {
  Slot& slot = *slot_of(first);
  SampledRecord(first).block().store_relaxed(0);
  // Without the lock (LEAVING-2): until it is in the queue the slot is this thread's.
  const bool waits = forbid(slot, slot.pages_start, slot.pages_end, true) || !allow(span_start(slot), span_end(slot));
  {
    LockGuard guard(guard_lock);
    --live_slots;
    const auto index = static_cast<u32>(SampledRecord(first).guard().load_relaxed() - 1);
    if (waits) {
      slot.next = kNone;
      (newest_freed == kNone ? oldest_freed : slot_at_index(newest_freed).next) = index;
      newest_freed = index;
      return;
    }
    forget_locked(slot);
    put_empty_locked(index);
  }
  return_sampled_units(first);
}

void guard_release_freed() {
  for (;;) {
    UnitIndex units;
    {
      LockGuard guard(guard_lock);
      const u32 index = forget_oldest_locked(units);
      if (index == kNone) return;
      put_empty_locked(index);
    }
    return_sampled_units(units);
  }
}

void guard_misused(const char* call, const void* block) {
  const Slot* slot = slot_at(address_of(block));
  if (slot == nullptr || slot->state == State::empty) return;
  if (slot->state == State::freed && address_of(block) == slot->block) {
    const bool free_call = std::strcmp(call, "invalid free") == 0;
    report_misuse(free_call ? "double free" : "use after free", *slot, free_call ? " freed again" : " used again");
  }
  distance_line(address_of(block), *slot, call);
  report_misuse(call, *slot, " called");
}

void guard_install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}

FREESTONE_AT_START void guard_before_fork() { guard_lock.hold_for_fork(); }
FREESTONE_AT_START void guard_after_fork_in_parent() { guard_lock.release_after_fork(); }
void guard_after_fork_in_child() { guard_lock.reset_in_child(); }

}  // namespace freestone
