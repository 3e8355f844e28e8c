#include "surface.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
// The C++ library ends a process that finds no memory for an exception. A thread here has one at a time.
static thread_local char exception[1024] __attribute__((aligned(64)));
void* __cxa_allocate_exception(size_t) noexcept { return std::memset(exception, 0, sizeof exception), exception + 512; }
void __cxa_free_exception(void*) noexcept {}
}

namespace torture {

thread_local volatile sig_atomic_t inside = 0;
volatile sig_atomic_t alone = 0;
bool asks = true;
Worker::Block Worker::exchange_[kBlocks];

namespace {

pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;
constexpr int kZero = 0x40;  // jemalloc's MALLOCX_ZERO

bool is_kept() { return errno == kUntouched; }
bool is_kept_or(int error) { return is_kept() || errno == error; }

unsigned char pattern(unsigned char mark, size_t at) { return static_cast<unsigned char>(mark + at * 7 + (at >> 12)); }
// All of a small block, and one byte in some pages of a large one.
size_t stride(size_t at) { return at < 2048 ? 1 : at < (1 << 20) ? 509 : 16381; }

int log_of(size_t power) { return __builtin_ctzl(power); }

int count_block(void* count, void*, size_t) { return ++*static_cast<size_t*>(count), 1; }

}  // namespace

void broken(const char* file, int line, const char* what, long number) {
  dprintf(STDERR_FILENO, "%s:%d: %s (%ld), errno %d\n", file, line, what, number, errno);
  _exit(1);
}

size_t Worker::draw_size() {
  const uint64_t dice = random_.below(100);
  if (dice < 3) return 0;
  if (dice < 60) return random_.below(1024);
  if (dice < 85) return random_.log_uniform(1024, 65536);
  if (dice < 98) return random_.log_uniform(65536, 1 << 20);
  return random_.log_uniform(1 << 20, 48 << 20);
}

void Worker::fill(Block& block) {
  block.mark = static_cast<unsigned char>(random_.next());
  for (size_t at = 0; at < block.size; at += stride(at)) block.start[at] = pattern(block.mark, at);
  if (block.size != 0) block.start[block.size - 1] = pattern(block.mark, block.size - 1);
}

// The bytes that a block has kept after it was resized lack the last one of its new size.
void Worker::check(const Block& block, size_t bytes) {
  for (size_t at = 0; at < bytes; at += stride(at))
    HOLDS(block.start[at] == pattern(block.mark, at), "content changed", at);
  if (bytes == block.size && bytes != 0)
    HOLDS(block.start[bytes - 1] == pattern(block.mark, bytes - 1), "content changed at the end", bytes);
}

// The C++ and jemalloc's calls promise nothing about the errno of a refusal; they may keep it.
void Worker::admit(Block& block, void* start, size_t size, size_t alignment, Kind kind, bool zeroed) {
  const bool may_keep = kind > Kind::paged;
  if (start == nullptr) return HOLDS(errno == ENOMEM || (may_keep && is_kept()), "null without ENOMEM", kind);
  HOLDS(is_kept(), "success changed errno", kind);
  HOLDS(reinterpret_cast<uintptr_t>(start) % alignment == 0, "misaligned", alignment);
  block = {static_cast<unsigned char*>(start), size, alignment, kind, 0};
  for (size_t at = 0; zeroed && at < size; at += stride(at)) HOLDS(block.start[at] == 0, "not zero", at);
  HOLDS(call([&] { return malloc_usable_size(start); }) >= size && is_kept(), "usable size", size);
  fill(block);
}

// What a call is asked for: `size` bytes, for some as so many of `each`.
struct Worker::Ask {
  size_t size;
  size_t each;
  size_t alignment;
};

// A call that makes a block, what it promises, and how often it is taken.
struct Worker::Way {
  unsigned share;
  Kind kind;
  size_t alignment;     // that of every block
  unsigned alignments;  // or one of so many powers of two from 16 on
  bool zeroed;
  void* (*make)(const Ask& ask);
};

const Worker::Way Worker::kWays[] = {
    {15, Kind::plain, 16, 0, false, [](const Ask& ask) { return malloc(ask.size); }},
    {5, Kind::plain, 16, 0, true, [](const Ask& ask) { return calloc(1, ask.size); }},
    {5, Kind::plain, 16, 0, true, [](const Ask& ask) { return calloc(ask.size / ask.each, ask.each); }},
    {5, Kind::plain, 16, 0, false, [](const Ask& ask) { return realloc(nullptr, ask.size); }},
    {5, Kind::plain, 16, 0, false, [](const Ask& ask) { return reallocarray(nullptr, ask.size / ask.each, ask.each); }},
    {2, Kind::aligned, 0, 18, false, [](const Ask& ask) { return memalign(ask.alignment, ask.size); }},
    {2, Kind::aligned, 0, 18, false, [](const Ask& ask) { return aligned_alloc(ask.alignment, ask.size); }},
    {2, Kind::aligned, 0, 18, false,
     [](const Ask& ask) {
       void* start = nullptr;
       const int error = posix_memalign(&start, ask.alignment, ask.size);
       HOLDS((error == 0) == (start != nullptr) && (error == 0 || error == ENOMEM), "posix_memalign", error);
       return start;
     }},
    {2, Kind::paged, 4096, 0, false, [](const Ask& ask) { return valloc(ask.size); }},
    {2, Kind::paged, 4096, 0, false, [](const Ask& ask) { return pvalloc(ask.size); }},
    {2, Kind::made, 16, 0, false, [](const Ask& ask) { return operator new(ask.size); }},
    {2, Kind::made, 16, 0, false, [](const Ask& ask) { return operator new(ask.size, std::nothrow); }},
    {2, Kind::made_array, 16, 0, false, [](const Ask& ask) { return operator new[](ask.size); }},
    {2, Kind::made_array, 16, 0, false, [](const Ask& ask) { return operator new[](ask.size, std::nothrow); }},
    {2, Kind::made_aligned, 0, 9, false,
     [](const Ask& ask) { return operator new(ask.size, std::align_val_t{ask.alignment}); }},
    {2, Kind::made_aligned, 0, 9, false,
     [](const Ask& ask) { return operator new(ask.size, std::align_val_t{ask.alignment}, std::nothrow); }},
    {3, Kind::flagged, 0, 12, false, [](const Ask& ask) { return make_flagged(ask, 0); }},
    {3, Kind::flagged, 0, 12, true, [](const Ask& ask) { return make_flagged(ask, kZero); }},
};

void* Worker::make_flagged(const Ask& ask, int flags) {
  flags |= log_of(ask.alignment);
  HOLDS(nallocx(ask.size, flags) >= ask.size, "good size", ask.size);
  return mallocx(ask.size, flags);
}

void Worker::allocate(Block& block) {
  unsigned shares = 0;
  for (const Way& way : kWays) shares += way.share;
  uint64_t dice = random_.below(shares);
  const Way* way = kWays;
  for (; dice >= way->share; ++way) dice -= way->share;
  const size_t size = draw_size();
  const size_t each = 1 + random_.below(64);
  const size_t alignment = way->alignments == 0 ? way->alignment : size_t{16} << random_.below(way->alignments);
  const Ask ask{size < each ? size : size / each * each, size < each ? 1 : each, alignment};
  try {
    admit(block, call([&] { return way->make(ask); }), ask.size, alignment, way->kind, way->zeroed);
  } catch (const std::bad_alloc&) {
    HOLDS(is_kept_or(ENOMEM), "errno of operator new", size);
  }
}

void Worker::resize(Block& block, size_t size) {
  if (block.kind >= Kind::made && block.kind <= Kind::made_aligned) return release(block);
  const size_t each = 1 + random_.below(3);
  size = size / each * each;
  const bool flagged = block.kind == Kind::flagged;
  check(block, block.size);
  if (flagged)
    HOLDS(call([&] { return xallocx(block.start, size, 0, 0); }) >= block.size && is_kept(), "xallocx", size);
  void* const moved = flagged   ? call([&] { return rallocx(block.start, size, 0); })
                      : draw(2) ? call([&] { return realloc(block.start, size); })
                                : call([&] { return reallocarray(block.start, size / each, each); });
  if (moved == nullptr && size == 0 && !flagged) {
    HOLDS(is_kept(), "realloc to nothing changed errno", 0);
    block = {};
  } else if (moved == nullptr) {
    HOLDS(errno == ENOMEM || (flagged && is_kept()), "null from realloc without ENOMEM", size);
    check(block, block.size);
  } else {
    HOLDS(is_kept(), "realloc changed errno", size);
    const size_t kept = block.size < size ? block.size : size;
    block.start = static_cast<unsigned char*>(moved);
    block.size = size;
    if (!flagged) block.kind = Kind::plain;
    check(block, kept < size ? kept : kept - (kept != 0));
    fill(block);
  }
}

void Worker::release(Block& block) {
  check(block, block.size);
  const bool sized = draw(3);
  const size_t size = block.size;
  unsigned char* const start = block.start;
  const auto aligned = std::align_val_t{block.alignment};
  call([&] {
    switch (block.kind) {
      case Kind::plain: return sized ? free_sized(start, size) : free(start);
      case Kind::aligned: return sized ? free_aligned_sized(start, block.alignment, size) : free(start);
      case Kind::paged: return free(start);
      case Kind::made: return sized ? operator delete(start, size) : operator delete(start);
      case Kind::made_array: return sized ? operator delete[](start, size) : operator delete[](start);
      case Kind::made_aligned: return sized ? operator delete(start, size, aligned) : operator delete(start, aligned);
      case Kind::flagged: return sized ? sdallocx(start, size, log_of(block.alignment)) : dallocx(start, 0);
    }
  });
  HOLDS(is_kept(), "free changed errno", block.kind);
  block = {};
}

void Worker::release_all() {
  for (Block& block : blocks_)
    if (block.start != nullptr) release(block);
  if (alone) return;
  pthread_mutex_lock(&exchange_lock);
  for (Block& block : exchange_)
    if (block.start != nullptr) release(block);
  pthread_mutex_unlock(&exchange_lock);
}

// Sizes and alignments that no heap serves.
void Worker::ask_wrongly(Block& block) {
  const size_t huge = size_t{PTRDIFF_MAX} + 1 + random_.below(1 << 20);
  void* start = nullptr;
  const auto refused = [](void* got, int error, int line) {
    if (got != nullptr || errno != error) broken(__FILE__, line, "a wrong request was served", error);
  };
  refused(call([&] { return malloc(huge); }), ENOMEM, __LINE__);
  refused(call([&] { return calloc(huge, 3); }), ENOMEM, __LINE__);
  refused(call([&] { return memalign(64, huge); }), ENOMEM, __LINE__);
  refused(call([&] { return reallocarray(nullptr, huge, 2); }), ENOMEM, __LINE__);
  refused(call([&] { return aligned_alloc(48, 96); }), EINVAL, __LINE__);
  HOLDS(call([&] { return posix_memalign(&start, 3, 96); }) == EINVAL && is_kept() && start == nullptr, "alignment", 3);
  HOLDS(call([&] { return mallocx(huge, 0); }) == nullptr && nallocx(huge, 0) == 0, "mallocx", 0);
  if (block.kind != Kind::plain || block.start == nullptr) return;
  refused(call([&] { return realloc(block.start, huge); }), ENOMEM, __LINE__);
  check(block, block.size);
}

void Worker::pass(Block& block) {
  if (alone || pthread_mutex_trylock(&exchange_lock) != 0) return;
  Block& other = exchange_[random_.below(kBlocks)];
  const Block mine = block;
  block = other;
  other = mine;
  pthread_mutex_unlock(&exchange_lock);
}

// Blocks above the size of which each has a mapping of its own.
void Worker::use_mapping() {
  Block block;
  admit(block, call([&] { return malloc(34 << 20); }), 34 << 20, 16, Kind::plain, false);
  for (const size_t size : {size_t{45} << 20, size_t{36} << 20, size_t{60} << 20})
    if (block.start != nullptr) resize(block, size);
  if (block.start != nullptr) release(block);
}

void Worker::use_heap_object() {
  freestone_heap* const heap = call([&] { return freestone_heap_create(draw(2) ? 0 : random_.below(4 << 20)); });
  HOLDS(is_kept(), "errno of a heap object", 0);
  if (heap == nullptr) return;
  constexpr size_t kMany = 24;
  unsigned char* blocks[kMany] = {};
  size_t sizes[kMany];
  size_t live = 0;
  for (size_t k = 0; k < 3 * kMany; ++k) {
    unsigned char*& block = blocks[k % kMany];
    const size_t size = 1 + random_.log_uniform(1, 300000);
    const bool zeroed = draw(3);
    void* got = nullptr;
    if (block != nullptr) {
      HOLDS(*block == k % kMany && block[sizes[k % kMany] - 1] == k % kMany, "a heap object's block changed", k);
      HOLDS(freestone_heap_usable_size(heap, block) >= sizes[k % kMany], "usable size in a heap object", k);
      if (draw(2)) {
        call([&] { freestone_heap_deallocate(heap, block); });
        block = nullptr;
        --live;
        continue;
      }
      got = call([&] { return freestone_heap_reallocate(heap, block, size); });
      if (got != nullptr) HOLDS(*static_cast<unsigned char*>(got) == k % kMany, "a heap object's content", k);
    } else {
      got = zeroed    ? call([&] { return freestone_heap_allocate_zeroed(heap, size); })
            : draw(2) ? call([&] { return freestone_heap_allocate(heap, size); })
                      : call([&] { return freestone_heap_allocate_aligned(heap, size, 4096); });
      if (got != nullptr && zeroed) HOLDS(static_cast<char*>(got)[size / 2] == 0, "not zero in a heap object", k);
      live += got != nullptr;
    }
    HOLDS(is_kept(), "errno of a heap object's block", k);
    if (got == nullptr) continue;
    block = static_cast<unsigned char*>(got);
    sizes[k % kMany] = size;
    block[size - 1] = *block = static_cast<unsigned char>(k % kMany);
  }
  freestone_heap_stats stats{FREESTONE_HEAP_STATS_VERSION, 0, 0, 0, 0, 0, 0, 0};
  HOLDS(freestone_heap_get_stats(heap, &stats) == 0 && stats.live_blocks == live, "blocks of a heap object", live);
  HOLDS(freestone_heap_validate(heap) == 0, "a heap object is damaged", 0);
  size_t seen = 0;
  HOLDS(freestone_heap_walk(heap, count_block, &seen) == live && seen == live, "walk over a heap object", seen);
  HOLDS(call([&] { return freestone_heap_destroy(heap); }) == live && is_kept(), "a heap object's end", live);
}

void Worker::use_arena() {
  unsigned number = 0;
  size_t length = sizeof number;
  const int error = mallctl("arenas.create", &number, &length, nullptr, 0);
  HOLDS(error == 0 || error == EAGAIN, "arenas.create", error);
  if (error != 0) return;
  const int flags = static_cast<int>(number + 1) << 20 | kZero;
  for (unsigned k = 0; k < 24; ++k) {
    const size_t size = 1 + random_.log_uniform(1, 100000);
    auto* block = static_cast<unsigned char*>(call([&] { return mallocx(size, flags); }));
    HOLDS(is_kept_or(ENOMEM), "errno of an arena's block", number);
    if (block == nullptr) continue;
    HOLDS(block[0] == 0 && block[size - 1] == 0 && sallocx(block, flags) >= size, "an arena's block", size);
    block[size - 1] = block[0] = 9;
    if (void* grown = draw(3) ? rallocx(block, 2 * size, flags) : nullptr) block = static_cast<unsigned char*>(grown);
    HOLDS(block[0] == 9, "an arena's content", size);
    if (draw(2)) dallocx(block, flags);
  }
  size_t mib[3];
  size_t parts = 3;
  HOLDS(mallctlnametomib("arena.0.destroy", mib, &parts) == 0 && parts == 3, "a name as numbers", parts);
  mib[1] = number;
  HOLDS(mallctlbymib(mib, 3, nullptr, nullptr, nullptr, 0) == 0, "an arena's end", number);
}

// What tells and tidies up without asking the kernel for anything new.
void Worker::look() {
  const size_t size = draw_size();
  size_t value = 0;
  size_t length = sizeof value;
  call([&] {
    switch (random_.below(10)) {
      case 0: return HOLDS(mallinfo2().arena < size_t{PTRDIFF_MAX}, "mallinfo2", 0);
      case 1: return HOLDS(mallopt(M_MXFAST, 64) <= 1, "mallopt", 0);
      case 2: return HOLDS(malloc_trim(size) <= 1, "malloc_trim", size);
      case 3: return HOLDS(freestone_trim(size) <= 1, "freestone_trim", size);
      case 4: return HOLDS(freestone_good_size(size) >= size, "freestone_good_size", size);
      case 5: return freestone_flush_thread();
      case 6: return HOLDS(mallctl("stats.allocated", &value, &length, nullptr, 0) == 0, "stats.allocated", 0);
      case 7: return HOLDS(mallctl("arena.4096.decay", nullptr, nullptr, nullptr, 0) == 0, "arena.decay", 0);
      case 8: return HOLDS(mallctl("no.such.name", &value, &length, nullptr, 0) == ENOENT, "no.such.name", 0);
      default:
        const int error = freestone_walk(count_block, &value);
        return HOLDS(error == 0 || error == ENOMEM, "freestone_walk", error);
    }
  });
  HOLDS(is_kept(), "a look changed errno", size);
}

// Reports, profiles and options.
void Worker::ask() {
  char text[256];
  freestone_stats stats;
  stats.version = FREESTONE_STATS_VERSION;
  int error = 0;
  switch (random_.below(6)) {
    case 0: return HOLDS(freestone_get_stats(&stats) == 0, "freestone_get_stats", 0);
    case 1: {
      const int file = open("/dev/null", O_WRONLY | O_CLOEXEC);
      error = freestone_stats_write(file, static_cast<freestone_format>(random_.below(4)));
      close(file);
      return HOLDS(error == 0 || error == EIO, "freestone_stats_write", error);
    }
    case 2:
      if (FILE* file = std::fopen("/dev/null", "we")) {
        HOLDS(malloc_info(0, file) == 0, "malloc_info", errno);
        std::fclose(file);
      }
      return;
    case 3:
      HOLDS(freestone_option_get("dirty_decay_ms", text, sizeof text) == 0, "freestone_option_get", 0);
      error = freestone_option_set("dirty_decay_ms", text);
      return HOLDS(error == 0 || error == EPERM, "freestone_option_set", error);
    case 4: return draw(2) ? freestone_prof_start() : freestone_prof_stop();
    default:
      error = freestone_prof_dump("torture.heap");
      return HOLDS(error == 0 || error == EIO || error == ENOMEM, "freestone_prof_dump", error);
  }
}

void Worker::step() {
  Block& block = blocks_[random_.below(kBlocks)];
  const uint64_t dice = random_.below(1000);
  if (dice < 4) return use_heap_object();
  if (dice < 6) return use_arena();
  if (dice < 7) return use_mapping();
  if (dice < 12) return ask_wrongly(block);
  if (dice < 24) return look();
  if (dice < 28 && asks && !alone) return ask();
  if (dice < 100) return pass(block);
  if (block.start == nullptr) return allocate(block);
  return dice < 400 ? resize(block, draw_size()) : release(block);
}

}  // namespace torture
