// replayer/calls.h: one allocation call of each kind. The allocator is the one that serves this process. Null is no
// allocator: it hands out the same few resident pages over and over, so a replay's time is then its own cost.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "replayer/plan.h"

extern "C" {
void free_sized(void* block, size_t size) __attribute__((weak));
void free_aligned_sized(void* block, size_t alignment, size_t size) __attribute__((weak));
}

namespace freestone::trace {

struct Real {
  static void* make(const Op& op) {
    const size_t size = op.size;
    const size_t alignment = size_t{1} << op.align_log2;
    void* block = nullptr;
    try {
      switch (op.code) {
        case FST_MALLOC: return malloc(size);
        case FST_CALLOC: return calloc(1, size);
        case FST_REALLOC_NULL: return realloc(nullptr, size);
        case FST_ALIGNED_ALLOC: return aligned_alloc(alignment, size);
        case FST_POSIX_MEMALIGN:
          return posix_memalign(&block, alignment < sizeof(void*) ? sizeof(void*) : alignment, size) == 0 ? block
                                                                                                          : nullptr;
        case FST_MEMALIGN: return memalign(alignment, size);
        case FST_VALLOC: return valloc(size);
        case FST_PVALLOC: return pvalloc(size);
        case FST_NEW: return operator new(size);
        case FST_NEW_ARRAY: return operator new[](size);
        case FST_NEW_ALIGNED: return operator new(size, std::align_val_t(alignment));
        case FST_NEW_ARRAY_ALIGNED: return operator new[](size, std::align_val_t(alignment));
        default: return nullptr;
      }
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  static void* change(void* block, size_t size) { return realloc(block, size); }

  static void end(const Op& op, void* block) {
    const auto alignment = std::align_val_t(size_t{1} << op.align_log2);
    switch (op.code) {
      case FST_FREE_SIZED: return free_sized ? free_sized(block, op.size) : free(block);
      case FST_FREE_ALIGNED_SIZED:
        return free_aligned_sized ? free_aligned_sized(block, static_cast<size_t>(alignment), op.size) : free(block);
      case FST_DELETE: return operator delete(block);
      case FST_DELETE_ARRAY: return operator delete[](block);
      case FST_DELETE_SIZED: return operator delete(block, op.size);
      case FST_DELETE_ARRAY_SIZED: return operator delete[](block, op.size);
      case FST_DELETE_ALIGNED: return operator delete(block, alignment);
      case FST_DELETE_ARRAY_ALIGNED: return operator delete[](block, alignment);
      case FST_REALLOC_ZERO:
        if (void* left = realloc(block, 0)) free(left);
        return;
      default: return free(block);
    }
  }

  static constexpr uint64_t kTouchMask = ~uint64_t{0};
};

struct Null {
  // A block begins in the first half, and is touched within the next half behind its begin.
  static constexpr uint64_t kHalfBytes = 16 << 10;
  static constexpr uint64_t kTouchMask = kHalfBytes - 1;

  static void* take(uint64_t size) {
    static thread_local char region[2 * kHalfBytes];
    static thread_local uint64_t used = 0;
    char* block = region + used;
    used = (used + ((std::min(size, kHalfBytes) + 15) & ~uint64_t{15})) & kTouchMask;
    return block;
  }
  static void* make(const Op& op) { return take(op.size); }
  static void* change(void*, size_t size) { return take(size); }
  static void end(const Op&, void*) {}
};

}  // namespace freestone::trace
