// Sequences of the whole C interface against a model, with threads and forks. Every call is one that a correct program
// may make, so each answer can be judged: contents stay, blocks do not overlap, memory is zero or refused where that is
// promised.
//
// An input is a list of operations. Some run the operations that follow on another thread, on two threads at once, or
// in the child of a fork.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>

#include "freestone/freestone.h"
#include "fuzz/input.h"

extern "C" {
void* freestone_malloc(size_t);
void freestone_free(void*);
void* freestone_calloc(size_t, size_t);
void* freestone_realloc(void*, size_t);
void* freestone_reallocarray(void*, size_t, size_t);
void* freestone_aligned_alloc(size_t, size_t);
int freestone_posix_memalign(void**, size_t, size_t);
void* freestone_memalign(size_t, size_t);
void* freestone_valloc(size_t);
void* freestone_pvalloc(size_t);
size_t freestone_malloc_usable_size(void*);
void freestone_cfree(void*);
void freestone_free_sized(void*, size_t);
void freestone_free_aligned_sized(void*, size_t, size_t);
int freestone_malloc_trim(size_t);
int freestone_mallopt(int, int);
struct mallinfo2 freestone_mallinfo2();
int freestone_malloc_info(int, FILE*);
}

namespace {

using fuzz::Input;

constexpr size_t kSlots = 48;
constexpr size_t kHeaps = 3;
constexpr size_t kPage = 4096;

struct Held {
  unsigned char* start = nullptr;
  size_t size = 0;
  size_t alignment = 0;  // that was asked for by a call that names one; 0: none
  int heap = -1;         // the heap object that it is from
  uint8_t mark = 0;
};

// What the program knows. `blocks` is shared by threads; the rest is divided among them by slots.
std::array<Held, kSlots> held;
std::array<freestone_heap*, kHeaps> heaps;
std::mutex blocks_mutex;
std::map<uintptr_t, size_t> blocks;
bool limited = false;     // allocations may fail
bool is_child = false;    // other threads' share of the model may be half changed
bool concurrent = false;  // another thread runs beside this one
unsigned forks_left = 0;
unsigned threads_left = 0;

// The bytes that are looked at: both ends, and one of each page.
template <typename Visit>
void for_marked(size_t size, Visit visit) {
  constexpr size_t kEnd = 48;
  for (size_t k = 0; k < size && k < kEnd; ++k) visit(k);
  for (size_t k = kPage; k<size; k += size>(size_t{1} << 20) ? 16 * kPage : kPage) visit(k);
  for (size_t k = size > kEnd ? size - kEnd : 0; k < size; ++k) visit(k);
}
uint8_t mark_at(uint8_t mark, size_t k) { return static_cast<uint8_t>(mark + k * 31 + (k >> 12)); }
void fill(const Held& h) {
  for_marked(h.size, [&](size_t k) { h.start[k] = mark_at(h.mark, k); });
}
void expect_content(const Held& h, size_t size) {
  for_marked(h.size, [&](size_t k) {
    if (k < size) FUZZ_EXPECT(h.start[k] == mark_at(h.mark, k));
  });
}

void admit(Held& h, void* memory, size_t size, size_t alignment, uint8_t mark, int heap = -1) {
  if (memory == nullptr) {
    FUZZ_EXPECT(limited || heap >= 0 || size > (size_t{1} << 40) || alignment > (size_t{1} << 30));
    return;
  }
  const auto address = reinterpret_cast<uintptr_t>(memory);
  h = {static_cast<unsigned char*>(memory), size, alignment, heap, mark};
  FUZZ_EXPECT(address % (alignment > 16 ? alignment : size >= 16 || heap >= 0 ? 16 : 8) == 0);
  if (!is_child) {
    const std::lock_guard lock(blocks_mutex);
    const auto above = blocks.lower_bound(address);
    FUZZ_EXPECT(above == blocks.end() || above->first >= address + (size > 0 ? size : 1));
    FUZZ_EXPECT(above == blocks.begin() || std::prev(above)->first + std::prev(above)->second <= address);
    blocks[address] = size > 0 ? size : 1;
  }
  fill(h);
}
// Before the call that ends the block: another thread may be given its address at once.
void leave(Held& h) {
  if (is_child) return;
  const std::lock_guard lock(blocks_mutex);
  blocks.erase(reinterpret_cast<uintptr_t>(h.start));
}

size_t draw_size(Input& input) {
  const uint8_t law = input.byte();
  if (law < 120) return law;
  if (law < 200) return input.number(2) % 4096;
  if (law < 240) {  // around each border of classes
    const size_t power = size_t{16} << law % 17;
    return power + power / 8 * (input.byte() % 8) + input.byte() % 33 - 16;
  }
  if (law < 252) return input.number(3) % (3U << 20);
  if (law < 254) return input.number(4) % (size_t{80} << 20);
  return law == 254 ? ~size_t{0} - input.byte() : (size_t{1} << 47) + input.number(5);
}
// Memory beyond this is not asked for: it would be the machine's limit that is tested.
bool is_sensible(size_t size) { return size <= (size_t{80} << 20) || size > (size_t{1} << 46); }

void release(Held& h, uint8_t how) {
  if (h.start == nullptr) return;
  expect_content(h, h.size);
  leave(h);
  Held gone = h;
  h = {};
  errno = 77;
  if (gone.heap >= 0) {
    freestone_heap_deallocate(heaps[static_cast<size_t>(gone.heap)], gone.start);
  } else if (gone.alignment != 0) {
    how % 2 == 0 ? freestone_free_aligned_sized(gone.start, gone.alignment, gone.size) : freestone_free(gone.start);
  } else {
    switch (how % 4) {
      case 0: freestone_free_sized(gone.start, gone.size); break;
      case 1: freestone_cfree(gone.start); break;
      case 2:
        if (gone.size == 0) {
          freestone_free(gone.start);
        } else {
          FUZZ_EXPECT(freestone_realloc(gone.start, 0) == nullptr);
        }
        break;
      default: freestone_free(gone.start);
    }
  }
  FUZZ_EXPECT(errno == 77);
}

void allocate(Held& h, uint8_t how, Input& input) {
  release(h, how);
  const size_t size = draw_size(input);
  if (!is_sensible(size)) return;
  const uint8_t mark = input.byte();
  const size_t alignment = size_t{8} << input.byte() % 14;
  errno = 0;
  switch (how % 9) {
    case 0:
    case 1: return admit(h, freestone_malloc(size), size, 0, mark);
    case 2: {
      const size_t count = 1 + mark % 5;
      void* memory = freestone_calloc(count, size);
      if (memory != nullptr)
        for_marked(count * size, [&](size_t k) { FUZZ_EXPECT(static_cast<unsigned char*>(memory)[k] == 0); });
      return admit(h, memory, memory == nullptr && size > SIZE_MAX / count ? SIZE_MAX : count * size, 0, mark);
    }
    case 3: return admit(h, freestone_aligned_alloc(alignment, size), size, alignment, mark);
    case 4: {
      void* memory = nullptr;
      const int answer = freestone_posix_memalign(&memory, alignment, size);
      FUZZ_EXPECT((answer == 0) == (memory != nullptr) && errno == 0);
      FUZZ_EXPECT(answer == 0 || answer == ENOMEM);
      return admit(h, memory, size, alignment, mark);
    }
    case 5: return admit(h, freestone_memalign(alignment, size), size, alignment, mark);
    case 6: {
      void* memory = mark % 2 == 0 ? freestone_valloc(size) : freestone_pvalloc(size);
      FUZZ_EXPECT(reinterpret_cast<uintptr_t>(memory) % kPage == 0);
      admit(h, memory, size, 0, mark);
      // Which alignment and size it was given are not the program's to name: free() only.
      if (h.start != nullptr && h.heap < 0) {
        expect_content(h, h.size);
        leave(h);
        freestone_free(h.start);
        h = {};
      }
      return;
    }
    case 7: return admit(h, freestone_realloc(nullptr, size), size, 0, mark);
    default: return admit(h, freestone_reallocarray(nullptr, 1, size), size, 0, mark);
  }
}

void resize(Held& h, uint8_t how, Input& input) {
  if (h.start == nullptr) return;
  size_t size = how % 3 == 0 ? draw_size(input) : h.size + input.byte() % 64 - (h.size > 32 ? 32 : h.size);
  if (size == 0) size = 1;
  if (!is_sensible(size)) return;
  expect_content(h, h.size);
  const Held before = h;
  const uint8_t mark = input.byte();
  leave(h);
  void* moved = nullptr;
  if (h.heap >= 0) {
    moved = freestone_heap_reallocate(heaps[static_cast<size_t>(h.heap)], h.start, size);
  } else {
    moved = how % 2 == 0 ? freestone_realloc(h.start, size) : freestone_reallocarray(h.start, size, 1);
  }
  if (moved == nullptr) {  // then the block is as it was
    FUZZ_EXPECT(limited || h.heap >= 0 || size > (size_t{1} << 40));
    expect_content(h, h.size);
    if (!is_child) {
      const std::lock_guard lock(blocks_mutex);
      blocks[reinterpret_cast<uintptr_t>(h.start)] = h.size > 0 ? h.size : 1;
    }
    return;
  }
  const auto* bytes = static_cast<const unsigned char*>(moved);
  for_marked(before.size, [&](size_t k) {
    if (k < size) FUZZ_EXPECT(bytes[k] == mark_at(before.mark, k));
  });
  h = {};
  admit(h, moved, size, 0, mark, before.heap);
}

void use_heap(Held& h, size_t number, uint8_t how, Input& input) {
  freestone_heap*& heap = heaps[number];
  if (how % 16 == 0) {
    if (heap == nullptr) {
      heap = freestone_heap_create(how % 32 == 0 ? 0 : size_t{64} << (10 + input.byte() % 14));
      FUZZ_EXPECT(heap != nullptr || limited);
      return;
    }
    FUZZ_EXPECT(freestone_heap_validate(heap) == 0);
    size_t live = 0;
    for (Held& other : held) {
      if (other.heap != static_cast<int>(number)) continue;
      expect_content(other, other.size);
      leave(other);
      other = {};
      ++live;
    }
    FUZZ_EXPECT(freestone_heap_destroy(heap) == live);
    heap = nullptr;
    return;
  }
  if (heap == nullptr) return;
  release(h, how);
  const size_t size = draw_size(input);
  if (!is_sensible(size)) return;
  const uint8_t mark = input.byte();
  const size_t alignment = size_t{1} << input.byte() % 22;
  if (how % 3 == 0)
    return admit(h, freestone_heap_allocate_aligned(heap, size, alignment), size, alignment > 16 ? alignment : 0, mark,
                 static_cast<int>(number));
  void* memory = how % 3 == 1 ? freestone_heap_allocate(heap, size) : freestone_heap_allocate_zeroed(heap, size);
  if (memory != nullptr && how % 3 == 2)
    for_marked(size, [&](size_t k) { FUZZ_EXPECT(static_cast<unsigned char*>(memory)[k] == 0); });
  admit(h, memory, size, 0, mark, static_cast<int>(number));
  if (h.start != nullptr) FUZZ_EXPECT(freestone_heap_usable_size(heap, h.start) >= size);
}

int count_held(void* context, void* block, size_t bytes) {
  auto& found = *static_cast<size_t*>(context);
  for (const Held& h : held)
    if (h.start == block) FUZZ_EXPECT(bytes >= h.size), ++found;
  return 1;
}

void set_limits(uint64_t hard) {
  freestone_limits limits{FREESTONE_LIMITS_VERSION, 0, 0, hard};
  const int answer = freestone_set_limits(&limits);
  FUZZ_EXPECT(answer == 0);
  limited = limited || hard != 0;
}

const char* scratch_path() {
  static char path[64];
  std::snprintf(path, sizeof path, "/tmp/freestone-fuzz-%d", static_cast<int>(getpid()));
  return path;
}

// Calls that ask or set, and change no block.
void ask(uint8_t how, Input& input, const Held& h) {
  freestone_stats stats{};
  stats.version = FREESTONE_STATS_VERSION;
  switch (how % 16) {
    case 0: freestone_malloc_trim(input.number(3)); break;
    case 1: freestone_trim(input.number(3)); break;
    case 2: freestone_flush_thread(); break;
    case 3: FUZZ_EXPECT(freestone_get_stats(&stats) == 0); break;
    case 4: {
      if (concurrent || is_child) break;
      size_t live = 0;
      for (const Held& other : held) live += other.start != nullptr && other.size > 0 ? 1 : 0;
      size_t found = 0;
      const int answer = freestone_walk(count_held, &found);
      FUZZ_EXPECT(answer == ENOMEM ? limited : found >= live);
      break;
    }
    case 5:
      if (!concurrent) FUZZ_EXPECT(freestone_validate(nullptr) == 0);
      break;
    case 6: {
      const size_t size = draw_size(input) % (size_t{1} << 30);
      FUZZ_EXPECT(freestone_good_size(size) >= size);
      break;
    }
    case 7: {
      static FILE* const nowhere = std::fopen("/dev/null", "w");
      FUZZ_EXPECT(freestone_malloc_info(0, nowhere) == 0);
      break;
    }
    case 8: FUZZ_EXPECT(freestone_stats_write(1023, FREESTONE_JSON) == EIO); break;
    case 9: freestone_mallopt(M_ARENA_MAX, input.byte() % 17); break;
    case 10: freestone_mallinfo2(); break;
    case 11: input.byte() % 4 != 0 ? freestone_prof_start() : freestone_prof_stop(); break;
    case 12:
      if (freestone_prof_is_active() != 0) freestone_prof_dump(scratch_path());
      break;
    case 13: {
      constexpr const char* kSettings[][2] = {
          {"dirty_bytes", "0"}, {"dirty_bytes", "8m"}, {"dirty_decay_ms", "0"},    {"dirty_decay_ms", "250"},
          {"cache_bytes", "0"}, {"cache_bytes", "1m"}, {"prof_sample_bytes", "1"}, {"prof_sample_bytes", "64k"}};
      const auto& setting = kSettings[input.byte() % 8];
      FUZZ_EXPECT(freestone_option_set(setting[0], setting[1]) == 0);
      break;
    }
    case 14:
      if (h.start != nullptr && h.heap < 0) FUZZ_EXPECT(freestone_malloc_usable_size(h.start) >= h.size);
      break;
    default:
      if (concurrent || is_child) break;
      FUZZ_EXPECT(freestone_get_stats(&stats) == 0);
      set_limits(input.byte() % 2 == 0 ? 0 : stats.charged_bytes + (uint64_t{input.byte()} << 16));
      if (limited && input.byte() % 2 == 0) set_limits(0);
  }
}

void run(Input& input, size_t first_slot, size_t slots);

void in_child(Input part, size_t first_slot, size_t slots) {
  const pid_t child = fork();
  FUZZ_EXPECT(child >= 0);
  if (child == 0) {
    alarm(300);
    is_child = true;
    const bool beside_others = concurrent;
    concurrent = false;
    run(part, first_slot, slots);
    for (size_t k = first_slot; k < first_slot + slots; ++k) release(held[k], 3);
    // What threads that are not in the child had charged for and not yet taken, or given back and not yet discharged,
    // stays in its account.
    const char* damage = nullptr;
    if (freestone_validate(&damage) != 0 && !(beside_others && std::strstr(damage, "account") != nullptr))
      fuzz::broken(damage, "in the child of a fork");
    freestone_malloc_trim(0);
    unlink(scratch_path());
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) fuzz::broken("the child of a fork goes on", "in_child");
  FUZZ_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void run(Input& input, size_t first_slot, size_t slots) {
  while (!input.empty()) {
    const uint8_t what = input.byte();
    const uint8_t how = input.byte();
    Held& h = held[first_slot + what % slots];
    const bool whole = slots == kSlots;  // heaps and limits belong to the one thread that has all slots
    if (what < 110) {
      allocate(h, how, input);
    } else if (what < 170) {
      release(h, how);
    } else if (what < 200) {
      if (h.alignment <= 16) resize(h, how, input);
    } else if (what < 222) {
      if (whole && !is_child) use_heap(h, what % kHeaps, how, input);
    } else if (what < 250) {
      ask(how, input, h);
    } else if (what == 250) {
      if (forks_left == 0 || is_child) continue;
      --forks_left;
      in_child(input.take(how), first_slot, slots);
    } else if (threads_left > 0 && whole && !is_child) {
      --threads_left;
      Input part = input.take(how);
      if (what < 253) {
        std::thread([&] { run(part, 0, kSlots); }).join();
      } else {
        Input other = input.take(how);
        concurrent = true;
        std::thread beside([&] { run(part, 0, kSlots / 2); });
        run(other, kSlots / 2, kSlots / 2);
        beside.join();
        concurrent = false;
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  forks_left = 1;
  threads_left = 2;
  Input input(data, size);
  run(input, 0, kSlots);
  set_limits(0);
  limited = false;
  for (Held& h : held) release(h, 3);
  for (freestone_heap*& heap : heaps) {
    FUZZ_EXPECT(freestone_heap_destroy(heap) == 0);
    heap = nullptr;
  }
  freestone_prof_stop();
  unlink(scratch_path());
  freestone_option_set("dirty_bytes", "8m");
  freestone_option_set("dirty_decay_ms", "250");
  freestone_option_set("cache_bytes", "1m");
  FUZZ_EXPECT(blocks.empty());
  FUZZ_EXPECT(freestone_validate(nullptr) == 0);
  return 0;
}
