// Room 16, leaks: see leak_scan.h.

#include "leaks/leak_scan.h"

#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <initializer_list>
#include <new>

#include "base/atomic.h"
#include "front/sampled.h"
#include "hardened/checked.h"
#include "hardened/large.h"
#include "platform/file.h"
#include "platform/os.h"
#include "profile/profile_report.h"
#include "profile/profile_store.h"
#include "region/metadata.h"
#include "region/region.h"
#include "slab/ground.h"
#include "span/mapping.h"
#include "span/run.h"
#include "span/span_heap.h"
#include "stacks/memory_maps.h"
#include "stacks/unwind.h"

namespace freestone {

namespace {

// A signal stops the threads: its handler waits. The signal's frame has all the thread's registers. It lies on the
// alternate stack of a thread that has one: Go's stacks have no room for it.
constexpr unsigned kThreadsMax = 4096;
struct Stopped {
  Atomic<usize> stack_pointer;  // relaxed, as all: published by stopped_count; 0: not written yet
  Atomic<usize> frame;
  Atomic<usize> frame_end;
};
FREESTONE_FAR Stopped stopped[kThreadsMax];
Atomic<u32> places_taken;   // relaxed: each thread takes another
Atomic<u32> stopped_count;  // release and acquire: what the thread that stopped has stored
Atomic<u32> keep_stopped;
FREESTONE_FAR unsigned asked[kThreadsMax];  // the threads that were signalled, but those that ended since

void on_stop(int, siginfo_t*, void* context) {
  const auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  constexpr usize kRedZone = 128;
  const auto stack_pointer = static_cast<usize>(machine.gregs[REG_RSP]) - kRedZone;
  // The kernel says behind the first 464 bytes how many there are.
  const auto* vectors = reinterpret_cast<const u32*>(machine.fpregs);
  const usize frame_end = address_of(vectors) + (vectors[116] == 0x4650'5853 ? vectors[117] : 512);
#else
  const usize stack_pointer = machine.sp;
  const usize frame_end = address_of(&machine + 1);
#endif
  if (const u32 place = places_taken.fetch_add_relaxed(1); place < kThreadsMax) {
    stopped[place].stack_pointer.store_relaxed(stack_pointer);
    stopped[place].frame.store_relaxed(address_of(context));
    stopped[place].frame_end.store_relaxed(frame_end);
  }
  stopped_count.add_release(1);
  while (keep_stopped.load_acquire() != 0) os::sleep_microseconds(200);
}

class StoppedThreads {
 public:
  StoppedThreads() {
    places_taken.store_relaxed(0);
    stopped_count.store_relaxed(0);
    for (Stopped& each : stopped) each.stack_pointer.store_relaxed(0);
    // A real-time signal that the program does not use; the one of the last search, if there was any.
    struct sigaction action;
    for (signal_ = SIGRTMAX - 1; signal_ > SIGRTMIN; --signal_) {
      sigaction(signal_, nullptr, &action);
      if ((action.sa_flags & SA_SIGINFO) != 0 ? action.sa_sigaction == on_stop : action.sa_handler == SIG_DFL) break;
    }
    action = {};
    action.sa_sigaction = on_stop;
    action.sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK;
    sigfillset(&action.sa_mask);
    sigaction(signal_, &action, nullptr);
    keep_stopped.store_release(1);
    // Some thread may block the signal, so the wait is bounded. Its whole stack then counts as used.
    for (unsigned waited = 0; waited < 2000; ++waited) {
      if (stopped_count.load_acquire() >= asked_ && !ask_others()) break;
      if (some_go_on_) break;
      os::sleep_microseconds(500);
      if (waited % 4 == 3) forget_ended();
    }
  }
  ~StoppedThreads() {
    keep_stopped.store_release(0);
    os::sleep_microseconds(1000);
    // The handler stays. A thread that blocked the signal may still receive it, and then returns at once.
  }
  StoppedThreads(const StoppedThreads&) = delete;
  StoppedThreads& operator=(const StoppedThreads&) = delete;

  // False where the kernel refuses to list or to signal threads: they would unmap what is searched.
  bool are_all() const { return !some_go_on_; }
  // Where the used part of the stack [start, end) begins.
  static usize used_from(usize start, usize end) {
    for (const Stopped& each : stopped) {
      if (const usize at = each.stack_pointer.load_relaxed(); at >= start && at < end) return at;
    }
    return start;
  }
  // Calls visit(start, end) for the registers of each.
  template <typename Visit>
  static void for_each_frame(Visit visit) {
    for (const Stopped& each : stopped) {
      if (each.stack_pointer.load_relaxed() != 0) visit(each.frame.load_relaxed(), each.frame_end.load_relaxed());
    }
  }

 private:
  // Signals the threads that were not signalled yet: one that was not stopped may have started them. Whether there are
  // any.
  bool ask_others() {
    const unsigned before = asked_;
    const auto ask_one = [](void* self, unsigned tid) { static_cast<StoppedThreads*>(self)->ask(tid); };
    if (!os::for_each_thread(ask_one, this)) some_go_on_ = true;
    return asked_ != before;
  }
  void ask(unsigned tid) {
    if (tid == os::thread_id() || asked_ == kThreadsMax) return;
    if (tid == os::process_id() && os::thread_has_ended(tid)) return;  // a zombie while others go on
    for (unsigned i = 0; i < asked_; ++i) {
      if (asked[i] == tid) return;
    }
    if (!os::signal_thread(tid, signal_)) {
      asked[asked_++] = tid;
    } else if (!os::thread_has_ended(tid)) {
      some_go_on_ = true;
    }
  }
  // A thread that ends blocks signals first: it was signalled and never stops.
  void forget_ended() {
    for (unsigned i = 0; i < asked_;) {
      if (os::thread_has_ended(asked[i])) {
        asked[i] = asked[--asked_];
      } else {
        ++i;
      }
    }
  }

  int signal_;
  bool some_go_on_ = false;
  unsigned asked_ = 0;
};

}  // namespace

class Scan {
 public:
  Scan(Reachable& result, const os::PageTable& pages) : result_(result), pages_(pages) {}

  bool prepare() {
    heap_start_ = address_of(unit_address(region.heap_start));
    heap_end_ = address_of(unit_address(region.frontier.load_acquire()));
    result_.bits_bytes_ = round_up((heap_end_ - heap_start_) / 16 / 8 + 8, os::page_bytes());
    result_.bits_ = static_cast<u64*>(os::map(result_.bits_bytes_));
    const usize blocks = mapping_counts().blocks;
    result_.mapped_bytes_ = round_up((blocks + 64) * sizeof(Reachable::Mapped), os::page_bytes());
    result_.mapped_ = static_cast<Reachable::Mapped*>(os::map(result_.mapped_bytes_));
    pending_bytes_ = kMiB;
    pending_ = static_cast<Range*>(os::map(pending_bytes_));
    if (result_.bits_ == nullptr || result_.mapped_ == nullptr || pending_ == nullptr) return false;
    for_each_mapping(
        [](void* self, void* block, usize bytes) {
          auto& r = static_cast<Scan*>(self)->result_;
          if ((r.mapped_count_ + 1) * sizeof(Reachable::Mapped) <= r.mapped_bytes_)
            r.mapped_[r.mapped_count_++] = {address_of(block), address_of(block) + bytes, false, 0};
        },
        this);
    std::sort(result_.mapped_, result_.mapped_ + result_.mapped_count_,
              [](const auto& a, const auto& b) { return a.start < b.start; });
    if (result_.mapped_count_ > 0) mapped_low_ = result_.mapped_[0].start;
    if (result_.mapped_count_ > 0) mapped_high_ = result_.mapped_[result_.mapped_count_ - 1].end;
    {
      LockGuard guard(growth_lock);
      for (const TableRange& table : {mapped_tags(), mapped_metadata()})
        leave_out(table.start, table.start + table.bytes);
    }
    {
      LockGuard guard(profile_store.lock);
      leave_out(profile_store.base(), profile_store.base() + profile_store.mapped());
    }
    leave_out(address_of(result_.bits_), address_of(result_.bits_) + result_.bits_bytes_);
    leave_out(address_of(result_.mapped_), address_of(result_.mapped_) + result_.mapped_bytes_);
    leave_out(address_of(pending_), address_of(pending_) + pending_bytes_);
    for (usize i = 0, count = metadata_ranges(metadata_, kLeftOutMax / 2); i < count; ++i)
      leave_out(metadata_[i].start, metadata_[i].end);
    const MappingTable table = mapping_table();
    leave_out(table.start, table.end);
    const auto leave_out_one = [](void* self, usize from, usize to) { static_cast<Scan*>(self)->leave_out(from, to); };
    for_each_mapped_range(leave_out_one, this);
    usize start, end;
    if (find_module(address_of(reinterpret_cast<const void*>(&capture_stack)), &start, &end)) leave_out(start, end);
    return left_out_count_ < kLeftOutMax;
  }

  bool run(usize program_frames) {
    // Only now: before a thread stopped it may have grown the heap, whose guards must not be read, or unmapped a block.
    for_each_heap_piece([this](UnitIndex first, UnitIndex end) {
      leave_out(address_of(unit_address(first)), address_of(unit_address(end)));
    });
    const auto note = [&](const Mapping& mapping) {
      for (usize i = first_behind(mapping.start); mapping.readable && i < result_.mapped_count_; ++i) {
        auto& [start, end, reached, there] = result_.mapped_[i];
        if (start >= mapping.end) break;
        there += min_of(end, mapping.end) - max_of(start, mapping.start);
      }
      return true;
    };
    const auto search = [&](const Mapping& mapping) {
      // Memory shared with other processes or devices holds no pointers to the heap. A data segment is private.
      if (!mapping.readable || !mapping.writable || mapping.shared) return true;
      const bool is_own_stack = program_frames >= mapping.start && program_frames < mapping.end;
      scan_outside(is_own_stack ? program_frames : StoppedThreads::used_from(mapping.start, mapping.end), mapping.end);
      return true;
    };
    const bool complete = left_out_count_ < kLeftOutMax && for_each_mapped(note) && for_each_mapped(search);
    StoppedThreads::for_each_frame([this](usize start, usize end) { scan(start, end); });
    drain();
    os::unmap(pending_, pending_bytes_);
    return complete && !failed_;
  }

 private:
  struct Range {
    usize start;
    usize end;
  };

  void leave_out(usize start, usize end) {
    if (start < end && left_out_count_ < kLeftOutMax) left_out_[left_out_count_++] = {start, end};
  }

  // Scans [start, end) except what is left out and what is not in memory: a page that never existed holds no pointer.
  void scan_outside(usize start, usize end) {
    while (start < end) {
      usize stop = end;
      bool skipped = false;
      for (usize i = 0; i < left_out_count_; ++i) {
        if (left_out_[i].start <= start && start < left_out_[i].end) {
          start = left_out_[i].end;
          skipped = true;
        } else if (left_out_[i].start > start) {
          stop = min_of(stop, left_out_[i].start);
        }
      }
      if (skipped) continue;
      scan_resident(start, stop);
      drain();
      start = stop;
    }
  }

  // Everything, where the kernel does not say which pages there are.
  void scan_resident(usize start, usize end) {
    const usize page = os::page_bytes();
    constexpr usize kPages = os::PageTable::kPagesMax;
    bool in_memory[kPages];
    for (usize at = round_down(start, page); at < end; at += kPages * page) {
      const usize count = min_of(kPages * page, round_up(end, page) - at) / page;
      const bool known = pages_.look(at, count, in_memory);
      for (usize k = 0; k < count; ++k) {
        if (!known || in_memory[k]) scan(max_of(start, at + k * page), min_of(end, at + (k + 1) * page));
      }
    }
  }

  __attribute__((no_sanitize("address"))) void scan(usize start, usize end) {
    for (usize at = round_up(start, sizeof(usize)); at + sizeof(usize) <= end; at += sizeof(usize))
      consider(*reinterpret_cast<const usize*>(at));
  }

  void consider(usize value) {
    if (value >= heap_start_ && value < heap_end_) return reach_in_region(value);
    if (value >= mapped_low_ && value < mapped_high_) return reach_mapping(value);
  }

  void reach_in_region(usize value) {
    UnitIndex unit = unit_of(reinterpret_cast<const void*>(value));
    u8 tag = tag_of(unit);
    if (tag == kTagForeign) return reach_mapping(value);
    if (is_nothing(tag)) return;
    if (tag == kTagGround) {
      const GroundBlock block = find_on_ground(reinterpret_cast<const void*>(value));
      if (block.start != nullptr) reach(address_of(block.start), block.bytes);
      return;
    }
    if (tag <= kLastSmallClass) {
      void* block = block_start(tag, reinterpret_cast<const void*>(value));
      if (block != nullptr && !is_block_free(tag, block)) reach(address_of(block), class_info(tag).bytes);
      return;
    }
    if (tag == kTagSampled) {
      const UnitIndex first = sampled_first_unit(reinterpret_cast<const void*>(value));
      const usize block = address_of(sampled_block(first));
      const usize bytes = sampled_bytes(first);
      if (block != 0 && value - block < max_of<usize>(bytes, 1)) reach(block, bytes);
      return;
    }
    while (tag == kTagInside && unit > region.heap_start) tag = tag_of(--unit);
    usize units = 0;
    if (const SizeClass c = class_at(unit); !is_slab_class(c)) units = class_info(c).units;
    if (tag == kTagRun) units = run_units(unit);
    const usize bytes = units == 0 ? 0 : hardened::readable_bytes(unit_address(unit), units_to_bytes(units));
    if (bytes > 0 && value - address_of(unit_address(unit)) <= bytes) reach(address_of(unit_address(unit)), bytes);
  }

  void reach(usize block, usize bytes) {
    const usize granule = (block - heap_start_) / 16;
    u64& word = result_.bits_[granule / 64];
    if ((word & bit(granule % 64)) != 0) return;
    word |= bit(granule % 64);
    push(block, block + bytes);
  }

  // The first own mapping that ends behind the address.
  usize first_behind(usize address) const {
    return partition_point(usize{0}, result_.mapped_count_, [&](usize i) { return result_.mapped_[i].end <= address; });
  }

  void reach_mapping(usize value) {
    const usize index = first_behind(value);
    Reachable::Mapped& mapped = result_.mapped_[index];
    if (index == result_.mapped_count_ || mapped.start > value || mapped.reached) return;
    mapped.reached = true;
    if (mapped.there == mapped.end - mapped.start) push(mapped.start, mapped.end);
  }

  void push(usize start, usize end) {
    if ((pending_count_ + 1) * sizeof(Range) > pending_bytes_) {
      auto* larger = static_cast<Range*>(os::remap(pending_, pending_bytes_, pending_bytes_ * 2));
      if (larger == nullptr) {
        failed_ = true;
        return;
      }
      pending_ = larger;
      pending_bytes_ *= 2;
    }
    pending_[pending_count_++] = {start, end};
  }

  void drain() {
    while (pending_count_ > 0) {
      const Range range = pending_[--pending_count_];
      if (range.end - range.start > 64 * kKiB) {
        scan_resident(range.start, range.end);
      } else {
        scan(range.start, range.end);
      }
    }
  }

  static constexpr usize kLeftOutMax = 2048;
  Reachable& result_;
  const os::PageTable& pages_;
  usize heap_start_ = 0, heap_end_ = 0;
  usize mapped_low_ = 0, mapped_high_ = 0;
  Range left_out_[kLeftOutMax];
  usize left_out_count_ = 0;
  MetadataRange metadata_[kLeftOutMax / 2];
  Range* pending_ = nullptr;
  usize pending_bytes_ = 0;
  usize pending_count_ = 0;
  bool failed_ = false;
};

bool Reachable::find(const ProgramFrames& here) {
  // Too large for a stack; only one search runs at a time.
  alignas(Scan) FREESTONE_FAR static char memory[sizeof(Scan)];
  const os::PageTable pages;
  Scan& scan = *new (memory) Scan(*this, pages);
  if (!scan.prepare()) return false;  // before the threads stop, because it takes locks that they may hold
  StoppedThreads others;
  return others.are_all() && scan.run(here.start);
}

Reachable::~Reachable() {
  if (bits_ != nullptr) os::unmap(bits_, bits_bytes_);
  if (mapped_ != nullptr) os::unmap(mapped_, mapped_bytes_);
}

bool Reachable::holds(const void* block) const {
  for (usize i = 0; i < mapped_count_; ++i) {
    if (mapped_[i].start == address_of(block)) return mapped_[i].reached;
  }
  const usize granule = (address_of(block) - address_of(unit_address(region.heap_start))) / 16;
  return granule / 8 < bits_bytes_ && (bits_[granule / 64] & bit(granule % 64)) != 0;
}

}  // namespace freestone
