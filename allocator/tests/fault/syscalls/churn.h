// Blocks that come and go while the kernel refuses, and threads.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <new>
#include <utility>

#include "support/blocks.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {

// Takes touched blocks of one size until null or `most` bytes, frees them, and says how many bytes that were.
inline size_t fill(size_t size, size_t most = SIZE_MAX) {
  struct Link {
    Link* next;
  };
  Link* list = nullptr;
  size_t total = 0;
  for (; total < most; total += size) {
    errno = 0;
    void* const block = api().malloc(size);
    if (block == nullptr) break;
    list = new (block) Link{list};
  }
  while (list != nullptr) {
    Link* next = list->next;
    api().free(list);
    list = next;
  }
  return total;
}

// Blocks of `least` to `most` bytes by every call of the surface, at most `live_most` bytes at a time. Pages of each
// carry its number: a few, or every `marked_bytes`. The table is outside the heap.
class Churn {
 public:
  Churn(uint64_t seed, size_t least, size_t most, size_t live_most, size_t marked_bytes = 0)
      : random_(seed), least_(least), most_(most), live_most_(live_most), marked_bytes_(marked_bytes) {
    const size_t bytes = kPlaces * sizeof(Block);
    void* table = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    blocks_ = static_cast<Block*>(table);
  }
  // False: a block lost its contents, calloc's had some, or a null came without ENOMEM.
  bool run(unsigned steps) {
    for (unsigned k = 0; k < steps; ++k) {
      Block& block = blocks_[random_.below(kPlaces)];
      if (!is_whole(block, block.bytes)) return false;
      const size_t size = random_.between(least_, most_);
      const bool grows = block.start != nullptr && random_.below(4) == 0;
      if (!grows) {
        api().free(block.start);
        live_ -= block.bytes;
        block = Block{};
      }
      if (live_ + size > live_most_) continue;
      errno = 0;
      zeroed_ = false;
      void* got = grows ? api().realloc(block.start, size) : take(size);
      if (got == nullptr) {
        ++nulls_;
        if (errno != ENOMEM || !is_whole(block, block.bytes)) return false;
        continue;
      }
      const size_t kept = std::min(block.bytes, size);
      block.start = static_cast<uint64_t*>(got);
      if (!is_whole(block, kept)) return false;
      bool clean = true;
      for_marks(size, [&](size_t at) { clean = clean && (!zeroed_ || block.start[at] == 0); });
      if (!clean) return false;
      live_ += size - block.bytes;
      block.bytes = size;
      block.number = ++number_;
      for_marks(size, [&](size_t at) { block.start[at] = block.number + at; });
    }
    return true;
  }
  bool free_all() {
    bool whole = true;
    for (size_t i = 0; i < kPlaces; ++i) {
      whole = whole && is_whole(blocks_[i], blocks_[i].bytes);
      api().free(blocks_[i].start);
      blocks_[i] = Block{};
    }
    live_ = 0;
    return whole;
  }
  unsigned take_nulls() { return std::exchange(nulls_, 0); }

 private:
  struct Block {
    uint64_t* start = nullptr;
    size_t bytes = 0;
    uint64_t number = 0;
  };
  static constexpr size_t kPlaces = 400;

  template <typename Visit>
  void for_marks(size_t bytes, Visit visit) const {
    const size_t words = bytes / sizeof(uint64_t);
    const size_t step = marked_bytes_ != 0 ? marked_bytes_ : words < 1 << 17 ? 16 * kPage : kMiB;
    for (size_t at = 0; at < words; at += step / sizeof(uint64_t)) visit(at);
    if (words > 0) visit(words - 1);
  }
  // The last mark moves with the size, so a part of a block has its own marks only.
  bool is_whole(const Block& block, size_t bytes) const {
    bool whole = true;
    const size_t words = block.bytes / sizeof(uint64_t);
    if (block.start != nullptr)
      for_marks(block.bytes, [&](size_t at) {
        if (at < bytes / sizeof(uint64_t) || (at == words - 1 && bytes >= block.bytes))
          whole = whole && block.start[at] == block.number + at;
      });
    return whole;
  }
  void* take(size_t size) {
    switch (random_.below(4)) {
      case 0: zeroed_ = true; return api().calloc(1, size);
      case 1: return api().aligned_alloc(size_t{64} << random_.below(16), size);
      default: return api().malloc(size);
    }
  }

  Random random_;
  size_t least_;
  size_t most_;
  size_t live_most_;
  size_t marked_bytes_;
  bool zeroed_ = false;  // the last one that was taken
  Block* blocks_;
  size_t live_ = 0;
  uint64_t number_ = 0;
  unsigned nulls_ = 0;
};

inline bool can_make_thread() {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, [](void*) -> void* { return api().malloc(100); }, nullptr) != 0) return false;
  void* block;
  pthread_join(thread, &block);
  api().free(block);
  return true;
}

}  // namespace freestone_test
