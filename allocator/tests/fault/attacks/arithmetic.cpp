// Size arithmetic: requests whose size wraps, or that no machine can hold, must be refused; a small block in their
// place is an overflow waiting to happen. In a twin the request is ordinary.
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

#include <new>

#include "harness.h"

namespace attack {
namespace {

enum Call {
  kMalloc,
  kCalloc,
  kRealloc,
  kReallocarray,
  kMemalign,
  kAlignedAlloc,
  kPosixMemalign,
  kPvalloc,
  kNew,
  kNewArray
};

constexpr std::size_t kMax = ~std::size_t{0};

void* request(int call, void* block, std::size_t count, std::size_t bytes) {
  void* made = nullptr;
  switch (call) {
    case kCalloc: return ::calloc(count, bytes);
    case kRealloc: return ::realloc(block, bytes);
    case kReallocarray: return ::reallocarray(block, count, bytes);
    case kMemalign: return ::memalign(kPage, bytes);
    case kAlignedAlloc: return ::aligned_alloc(64, bytes);
    case kPosixMemalign: return ::posix_memalign(&made, 64, bytes) == 0 ? made : nullptr;
    case kPvalloc: return ::pvalloc(bytes);
    case kNew: return ::operator new(bytes, std::nothrow);
    case kNewArray: return ::operator new[](bytes, std::nothrow);
    default: return ::malloc(bytes);
  }
}

// An allocator that lacks a call leaves it to the C library, whose blocks it cannot free.
bool same_owner(const char* symbol) {
  Dl_info mine{};
  Dl_info theirs{};
  void* const found = ::dlsym(RTLD_DEFAULT, symbol);
  return found != nullptr && ::dladdr(found, &mine) != 0 && ::dladdr(::dlsym(RTLD_DEFAULT, "malloc"), &theirs) != 0 &&
         mine.dli_fbase == theirs.dli_fbase;
}

// `how`: the call; `count`: number of elements; `distance`: the size, negative from the top of the range.
void impossible(World& w, const Params& params) {
  if (params.how == kPvalloc && !same_owner("pvalloc")) w.not_applicable("pvalloc is not the allocator's own");
  w.populate();
  const bool resizes = params.how == kRealloc || params.how == kReallocarray;
  Byte* const block = resizes ? w.take() : nullptr;
  const std::size_t count = w.misuse() ? static_cast<std::size_t>(params.count) : 1;
  const std::size_t ordinary = (w.size() + 63) & ~std::size_t{63};  // aligned_alloc may insist on a multiple
  const std::size_t bytes = w.misuse() ? static_cast<std::size_t>(params.distance) : ordinary;
  w.fault();
  if (!w.misuse() && block != nullptr) w.forget(block);
  void* const made = request(params.how, opaque(block), count, bytes);
  w.past();
  if (w.misuse() && made != nullptr) {
    w.effect("an impossible request was answered with a block");
  } else if (made != nullptr) {
    w.adopt(made, bytes);
    w.forget(made);
    release(made, params.how == kNew ? Source::kNew : params.how == kNewArray ? Source::kNewArray : Source::kMalloc);
  } else if (!w.misuse()) {
    w.refused("an ordinary request");
  }
  w.aftermath();
}

constexpr long kHalfRange = static_cast<long>(kMax / 2 + 1);  // PTRDIFF_MAX + 1
constexpr long kThird = static_cast<long>(kMax / 3 + 1);

const Case kCases[] = {
    {"huge_malloc_minus_1", kAny, "malloc(SIZE_MAX)", impossible, {-1, kMalloc}},
    {"huge_malloc_minus_64", kAny, "malloc(SIZE_MAX - 63)", impossible, {-64, kMalloc}},
    {"huge_malloc_half_range", kAny, "malloc(PTRDIFF_MAX + 1)", impossible, {kHalfRange, kMalloc}},
    {"calloc_wraps_to_zero", kAny, "calloc(2, SIZE_MAX / 2 + 1)", impossible, {kHalfRange, kCalloc, 2}},
    {"calloc_wraps_to_small",
     kAny,
     "calloc(3, SIZE_MAX / 3 + 1) wraps to a few bytes",
     impossible,
     {kThird, kCalloc, 3}},
    {"calloc_wraps_large_count", kAny, "calloc(2^32 + 1, 2^32)", impossible, {1L << 32, kCalloc, (1L << 32) + 1}},
    {"realloc_huge", kAny, "realloc(p, SIZE_MAX - 15): the block must live on", impossible, {-16, kRealloc}},
    {"reallocarray_wraps", kAny, "reallocarray(p, 2, SIZE_MAX / 2 + 1)", impossible, {kHalfRange, kReallocarray, 2}},
    {"reallocarray_wraps_to_small",
     kAny,
     "reallocarray(p, 3, SIZE_MAX / 3 + 1)",
     impossible,
     {kThird, kReallocarray, 3}},
    {"memalign_wraps", kAny, "memalign(4096, SIZE_MAX - 99)", impossible, {-100, kMemalign}},
    {"aligned_alloc_wraps", kAny, "aligned_alloc(64, SIZE_MAX - 63)", impossible, {-64, kAlignedAlloc}},
    {"posix_memalign_wraps", kAny, "posix_memalign(64, SIZE_MAX - 7)", impossible, {-8, kPosixMemalign}},
    {"pvalloc_wraps", kAny, "pvalloc(SIZE_MAX - 1) rounds up to nothing", impossible, {-2, kPvalloc}},
    {"huge_new", kAny, "operator new(SIZE_MAX - 7, nothrow)", impossible, {-8, kNew}},
    {"huge_new_array", kAny, "operator new[](SIZE_MAX, nothrow)", impossible, {-1, kNewArray}},
};

}  // namespace

const Family kArithmetic = {"arithmetic", "the request is refused and no live block is lost", kCases,
                            sizeof kCases / sizeof kCases[0]};

}  // namespace attack
