// `calls`: every call of the surface, one kind after the other: 64 blocks are made by it, then all are ended, each side
// timed.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <new>

#include "clock.h"
#include "laws.h"
#include "process.h"
#include "registry.h"
#include "team.h"

// Of C23; not in every C library, nor in every allocator.
extern "C" {
[[gnu::weak]] void free_sized(void* at, std::size_t bytes);
[[gnu::weak]] void free_aligned_sized(void* at, std::size_t alignment, std::size_t bytes);
}

namespace workload {
namespace {

constexpr std::size_t kHeld = 64;
constexpr Touch kTouch = Touch::ends;

void release(void* at, std::size_t) { std::free(at); }

// C11 lets aligned_alloc refuse every other size.
constexpr std::size_t multiple_of_64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

template <class New>
void* no_throw(New made) {
  try {
    return made();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

template <std::size_t kAlignment>
void* posix_memalign_of(std::size_t bytes) {
  void* at = nullptr;
  return ::posix_memalign(&at, kAlignment, bytes) == 0 ? at : nullptr;
}

class Calls {
 public:
  Calls(Lane& lane, Report& report, const Args& args)
      : lane_(lane), report_(report), rounds_(args.number("rounds")), sizes_(1u << 12) {
    Random random(args.number("seed"), 0);
    const ProgramSizes law(args.number32("exponent"));
    for (auto& size : sizes_) size = law.draw(random);
  }

  // Blocks made by `make(bytes)` and ended by `end(block, bytes)`; a side without a name is another kind's and not
  // reported.
  template <class Make, class End>
  void pairs(const char* make_name, const char* end_name, std::size_t alignment, Make make, End end) {
    if (lane_.tally.null_answers != 0) return;  // no figure is valid then, and an exception needs memory
    Block blocks[kHeld];
    std::uint64_t make_ns = 0;
    std::uint64_t end_ns = 0;
    lane_.timed([&](Tally& tally) {
      for (std::uint64_t round = 0; round < rounds_; ++round) {
        const std::uint64_t begin = now_ns();
        for (std::size_t i = 0; i < kHeld; ++i) {
          const std::uint32_t bytes = size_of(round, i);
          void* at = make(bytes);
          hide(at);
          if (reinterpret_cast<std::uintptr_t>(at) % alignment != 0) ++tally.misaligned;
          accept(blocks[i], at, bytes, number_++, kTouch, tally);
        }
        const std::uint64_t middle = now_ns();
        for (Block& block : blocks) {
          if (block.at == nullptr) continue;
          inspect(block, kTouch, tally);
          hide(block.at);
          end(block.at, block.bytes);
          ++tally.frees;
        }
        make_ns += middle - begin;
        end_ns += now_ns() - middle;
      }
    });
    say(make_name, make_ns);
    say(end_name, end_ns);
  }

  // Blocks that realloc puts elsewhere or leaves; a change counts as an end and a birth. Made and freed untimed.
  void changes(const char* name, std::size_t bytes_first, std::size_t bytes_then) {
    Block blocks[kHeld];
    std::uint64_t ns = 0;
    lane_.timed([&](Tally& tally) {
      for (std::uint64_t round = 0; round < rounds_; ++round) {
        for (Block& block : blocks) take(block, bytes_first, number_++, kTouch, tally);
        const std::uint64_t begin = now_ns();
        for (Block& block : blocks) {
          if (block.at == nullptr) continue;
          void* at = std::realloc(block.at, bytes_then);
          hide(at);
          if (at == nullptr) {
            ++tally.null_answers;
            continue;
          }
          if (get_word(static_cast<char*>(at)) != stamp_of(block.bytes, block.number)) ++tally.corrupted;
          ++tally.frees;
          accept(block, at, bytes_then, block.number, kTouch, tally);
        }
        ns += now_ns() - begin;
        for (Block& block : blocks) give(block, kTouch, tally);
      }
    });
    say(name, ns);
  }

  void usable_size(bool asked) {  // the same blocks and checksum where it is not asked
    Block blocks[kHeld];
    for (std::size_t i = 0; i < kHeld; ++i) take(blocks[i], size_of(0, i), number_++, kTouch, lane_.tally);
    std::uint64_t small = 0;
    const std::uint64_t begin = now_ns();
    for (std::uint64_t round = 0; asked && round < rounds_; ++round)
      for (Block& block : blocks) {
        hide(block.at);
        small += ::malloc_usable_size(block.at) < block.bytes ? 1 : 0;
      }
    say(asked ? "usable_size" : nullptr, now_ns() - begin);
    lane_.tally.corrupted += small;
    for (Block& block : blocks) give(block, kTouch, lane_.tally);
  }

 private:
  std::uint32_t size_of(std::uint64_t round, std::size_t i) const {
    return sizes_[(round * kHeld + i) & (sizes_.size() - 1)];
  }

  void say(const char* name, std::uint64_t ns) {
    if (name == nullptr) return;
    char figure[48];
    std::snprintf(figure, sizeof figure, "%s_ns", name);
    report_.add(figure, static_cast<double>(ns) / static_cast<double>(rounds_ * kHeld), "ns", Better::lower,
                rounds_ * kHeld);
  }

  Lane& lane_;
  Report& report_;
  std::uint64_t rounds_;
  OwnArray<std::uint32_t> sizes_;
  std::uint32_t number_ = 0;
};

void run_calls(const Args& args, Report& report) {
  const bool sized = same_owner_as_malloc("free_sized") && same_owner_as_malloc("free_aligned_sized");
  const bool usable = same_owner_as_malloc("malloc_usable_size");
  const Timing timing = run_team(report, 1, [&](Lane& lane) {
    Calls calls(lane, report, args);
    const auto malloc_of = [](std::size_t n) { return std::malloc(n); };
    const auto aligned_of = [](std::size_t n) { return std::aligned_alloc(64, multiple_of_64(n)); };
    const auto nothrow_of = [](std::size_t n) { return ::operator new(n, std::nothrow); };
    const auto nothrow_array_of = [](std::size_t n) { return ::operator new[](n, std::nothrow); };
    constexpr std::align_val_t k64{64};
    calls.pairs("malloc", "free", 1, malloc_of, release);
    calls.pairs("calloc", nullptr, 1, [](std::size_t n) { return std::calloc(1, n); }, release);
    calls.pairs("realloc_null", nullptr, 1, [](std::size_t n) { return std::realloc(nullptr, n); }, release);
    calls.pairs("reallocarray_null", nullptr, 1, [](std::size_t n) { return ::reallocarray(nullptr, 1, n); }, release);
    calls.pairs("aligned_alloc_64", nullptr, 64, aligned_of, release);
    calls.pairs("posix_memalign_64", nullptr, 64, posix_memalign_of<64>, release);
    calls.pairs("posix_memalign_4096", nullptr, 4096, posix_memalign_of<4096>, release);
    calls.pairs("memalign_32", nullptr, 32, [](std::size_t n) { return ::memalign(32, n); }, release);
    calls.pairs("valloc", nullptr, 4096, [](std::size_t n) { return ::valloc(n); }, release);
    calls.pairs(nullptr, sized ? "free_sized" : nullptr, 1, malloc_of,
                sized ? [](void* at, std::size_t n) { ::free_sized(at, n); } : release);
    calls.pairs(nullptr, sized ? "free_aligned_sized" : nullptr, 64, aligned_of,
                sized ? [](void* at, std::size_t n) { ::free_aligned_sized(at, 64, multiple_of_64(n)); } : release);
    calls.pairs(
        "new", "delete", 1, [](std::size_t n) { return no_throw([=] { return ::operator new(n); }); },
        [](void* at, std::size_t) { ::operator delete(at); });
    calls.pairs("new_nothrow", "delete_sized", 1, nothrow_of,
                [](void* at, std::size_t n) { ::operator delete(at, n); });
    calls.pairs(
        "new_array", "delete_array", 1, [](std::size_t n) { return no_throw([=] { return ::operator new[](n); }); },
        [](void* at, std::size_t) { ::operator delete[](at); });
    calls.pairs(
        "new_aligned_64", "delete_aligned_64", 64,
        [](std::size_t n) { return no_throw([=] { return ::operator new(n, k64); }); },
        [](void* at, std::size_t) { ::operator delete(at, k64); });
    calls.pairs("new_array_nothrow", "delete_array_sized", 1, nothrow_array_of,
                [](void* at, std::size_t n) { ::operator delete[](at, n); });
    calls.pairs(
        "new_array_aligned_64", "delete_array_aligned_sized_64", 64,
        [](std::size_t n) { return no_throw([=] { return ::operator new[](n, k64); }); },
        [](void* at, std::size_t n) { ::operator delete[](at, n, k64); });
    calls.changes("realloc_stays", 100, 104);
    calls.changes("realloc_grows", 100, 1000);
    calls.changes("realloc_shrinks", 1000, 100);
    calls.usable_size(usable);
  });
  add_timing(report, timing, 1);
  report.caveat(
      "each figure contains writing or checking 16 bytes of the block; a realloc counts as an allocation and a free");
  if (!usable) report.caveat("malloc_usable_size does not belong to the library that serves malloc: it is not asked");
  if (!sized)
    report.caveat("the library that serves malloc has no free_sized and free_aligned_sized: their figures are absent");
}

constexpr Param kParams[] = {
    integer("rounds", "5000", 1, 100000000, "", "times that 64 blocks are made and ended, for each kind of call"),
    integer("exponent", "12", 6, 24, "", "sizes by the program law, 5 B to 2 to this power"),
};

}  // namespace

const Workload kCalls{"calls", "every call of malloc's and operator new's surface, each timed alone", kParams,
                      run_calls};

}  // namespace workload
