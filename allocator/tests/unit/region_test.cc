// Room 5: the window's tables are there for every unit below the frontier whenever a thread looks, and where somebody
// else has their next place, the heap ends without harm.
#include "region/region.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "platform/os.h"
#include "region/account.h"
#include "region/traffic.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "span/span_heap.h"
#include "unit/support.h"

namespace freestone {
namespace {

TEST(region, LiesWithin47Bits) {
  EXPECT_LT(region.base + units_to_bytes(region.window_end), usize{1} << 47);
  EXPECT_EQ(region.base % (2 * kMiB), 0U);
  const usize end = mapped_metadata().start + mapped_metadata().bytes;
  EXPECT_TRUE(end <= region.base || mapped_metadata().start >= region.base + kWindowBytes);
}

// Every address may be looked up at any time, also while another thread grows the heap.
TEST(region, LookupNeverFaultsWhileTheHeapGrows) {
  std::atomic<bool> done{false};
  std::atomic<unsigned> looking{0};
  std::atomic<u64> inside{0};
  const usize window = units_to_bytes(region.window_end);
  run_threads(3, [&](unsigned t) {
    if (t == 0) {
      UnitIndex first = kNoUnit;
      while (looking.load() != 3) std::this_thread::yield();
      for (int i = 0; i < 60; ++i) {
        const Span span = take_span(kGroupUnits * 32, 1);
        ASSERT_NE(span.first, kNoUnit);
        if (i == 0) first = span.first;
        return_span(span.first, kGroupUnits * 16, false);
      }
      EXPECT_TRUE(in_window(unit_address(first)));
      done.store(true);
      return;
    }
    Random random(t);
    u64 seen = 0;
    while (!done.load(std::memory_order_relaxed)) {
      const usize frontier = region.frontier_bytes.load_relaxed();
      for (const usize from :
           {region.base, region.base + frontier - kMiB, region.base + random.below(window), random.below(~usize{0})}) {
        const void* wild = reinterpret_cast<const void*>(from + random.below(2 * kMiB));
        if (in_window(wild)) seen += is_nothing(tag_of(unit_of(wild))) ? 1 : 2;
      }
      if (seen > 0) looking.fetch_or(t);
    }
    inside.fetch_add(seen);
  });
  EXPECT_GT(inside.load(), 0U);
}

void* block_of_two_mebibytes() { return allocate(2 * kMiB); }

int run_into(usize obstacle_at) {
  void* wanted = reinterpret_cast<void*>(obstacle_at);
  if (mmap(wanted, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != wanted) return 77;
  // The tables there end at the latest for another 2 GiB; until then the heap goes on.
  const usize frontier = region.frontier.load_relaxed();
  unsigned mapped = 0;
  for (int i = 0; i < 2000; ++i) {
    auto* block = static_cast<char*>(block_of_two_mebibytes());
    if (block == nullptr) return 1;
    block[0] = block[2 * kMiB - 1] = 1;
    os::purge(block, 2 * kMiB);  // 4 GiB are not to be touched at once
    if (!in_window(block)) ++mapped;
  }
  if (mapped == 0) return 2;  // nothing ran into it
  const usize charged = account.charged.load_relaxed();
  const usize end = region.frontier.load_relaxed();
  if (end < frontier || !spans_are_valid()) return 3;
  // Small blocks: what is free is still given, then null; nothing is charged for what is refused.
  usize given = 0;
  while (given < (usize{1} << 20) && allocate(30000) != nullptr) ++given;
  if (errno != ENOMEM || region.frontier.load_relaxed() != end) return 4;
  if (take_span(kGroupUnits, 1).first != kNoUnit) return 5;
  return account.charged.load_relaxed() <= charged + units_to_bytes(kGroupUnits * 64) ? 0 : 6;
}

TEST(region, EndsWhereATableCannotGrow) {
  if (region.reserved) GTEST_SKIP() << "the window is reserved as a whole";
  const auto end_of = [](const TableRange& table) { return table.start + table.bytes; };
  EXPECT_EQ(fork_and([&] { return run_into(end_of(mapped_tags())); }), 0);
  EXPECT_EQ(fork_and([&] { return run_into(end_of(mapped_metadata())); }), 0);
  EXPECT_EQ(fork_and([&] { return run_into(end_of(mapped_metadata()) + 600 * os::page_bytes()); }), 0);
}

// Own mappings that lie in a skipped piece are found, and what lies beside them there is foreign.
TEST(region, SkippedPiecesAreNotTheHeaps) {
  if (region.reserved) GTEST_SKIP() << "the window is reserved as a whole";
  EXPECT_EQ(fork_and([] {
              char* const frontier = unit_address(region.frontier.load_relaxed());
              void* taken = mmap(frontier, 3 * kMiB, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
              if (taken != frontier) return 77;
              const usize before = committed_units();
              usize had = 0;
              while (region.frontier.load_relaxed() < unit_of(frontier) + kGroupUnits && ++had < 10000)
                block_of_two_mebibytes();
              if (in_window(frontier) || in_window(frontier + 3 * kMiB - 1)) return 1;
              if (tag_of(unit_of(frontier)) != kTagForeign || region.skipped.load_relaxed() < 3 * kGroupUnits) return 2;
              if (committed_units() <= before || !spans_are_valid()) return 3;
              unsigned pieces = 0;
              for_each_heap_piece(
                  [&](UnitIndex first, UnitIndex end) { pieces += first < end && !in_window(frontier) ? 1U : 100U; });
              return pieces == 2 ? 0 : 4;
            }),
            0);
}

// Pages may be larger than units: the rest of a page is somebody else's.
TEST(region, PurgeTakesNoPageThatReachesBeyondTheRange) {
  const usize page = os::page_bytes();
  auto* const pages = static_cast<char*>(os::map(2 * page));
  std::memset(pages, 1, 2 * page);
  EXPECT_FALSE(purge_range(pages, page / 2, WentBack::trim));
  EXPECT_FALSE(purge_range(pages + page / 2, page, WentBack::trim));
  EXPECT_FALSE(purge_range(pages, page + page / 2, WentBack::trim));
  for (usize k = 0; k < 2 * page; ++k) ASSERT_EQ(pages[k], 1) << k;
  EXPECT_TRUE(purge_range(pages, page, WentBack::trim));
  EXPECT_EQ(pages[0], 0);
  EXPECT_EQ(pages[page], 1);
  os::unmap(pages, 2 * page);
}

// FORK-5
TEST(region, AChildKeepsWhatItsParentWasMappingAndNothingOfOthers) {
  const usize page = os::page_bytes();
  const usize bytes = 4 * page;
  auto* const place = static_cast<char*>(os::reserve(2 * bytes, 0));
  os::unmap(place, 2 * bytes);
  EXPECT_TRUE(os::finish_map_at(place, bytes)) << "the call had not taken place";
  place[0] = 1;
  EXPECT_TRUE(os::finish_map_at(place, bytes)) << "the call had taken place";
  EXPECT_EQ(place[0], 1);
  ASSERT_FALSE(os::map_at(place + bytes, page));
  EXPECT_FALSE(os::finish_map_at(place, bytes)) << "a longer mapping";
  os::unmap(place + bytes, page);
  os::unmap(place + page, page);
  EXPECT_FALSE(os::finish_map_at(place, bytes)) << "two mappings";
  EXPECT_FALSE(os::map_at(place + page, page)) << "what lay between them was free and is so again";
  os::undo_map_at(place, bytes);
  EXPECT_FALSE(os::map_at(place, bytes)) << "nothing is left";
  os::unmap(place, bytes);
}

// Those that cannot be met leave every figure as it was.
TEST(region, RefusedUnitsChangeNothing) {
  const usize charged = account.charged.load_relaxed();
  const usize peak = account.peak.load_relaxed();
  const UnitIndex frontier = region.frontier.load_relaxed();
  const TableRange tags = mapped_tags();
  const TableRange metadata = mapped_metadata();
  for (const usize units :
       {usize{region.window_end}, kWindowUnitsMax, kWindowUnitsMax + 1, usize{1} << 49, ~usize{0} >> kUnitShift})
    EXPECT_EQ(take_span(units, 1).first, kNoUnit);
  EXPECT_EQ(map_block(usize{1} << 46, 1), nullptr);
  EXPECT_EQ(account.charged.load_relaxed(), charged);
  EXPECT_EQ(account.peak.load_relaxed(), peak);
  EXPECT_EQ(region.frontier.load_relaxed(), frontier);
  EXPECT_EQ(mapped_tags().bytes, tags.bytes);
  EXPECT_EQ(mapped_metadata().bytes, metadata.bytes);
}

}  // namespace
}  // namespace freestone
