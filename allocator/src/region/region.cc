// Room 5, region: placing the window, and mapping its pieces.

#include "region/region.h"

#include <cerrno>

#include "base/bits.h"
#include "base/check.h"
#include "base/places.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "platform/file.h"
#include "platform/os.h"
#include "region/account.h"

namespace freestone {

constinit Region region;
constinit Mutex span_lock{LockName::span};
constinit Mutex growth_lock{LockName::growth};
constinit Grown unadded;

namespace {

// One group. In a small heap a write that runs on for this long leaves the mapped part and faults.
constexpr usize kCommitStepMin = kMiB;
constexpr usize kTagStep = 64 * kKiB;
constexpr usize kThpFirstBytes = 2 * kMiB;
constexpr usize kWindowAlignment = 2 * kMiB;

enum class Thp : u32 { off, automatic, always };
enum class Frames : u32 { left, filled };
Atomic<Frames> frames;  // relaxed: what the system does, which we ask at start

// Where a window and its metadata may lie. The kernel puts programs at the bottom or at two thirds of the address
// space, and mappings at its top or, in the old layout, from a third upwards. The first range ends below a third of 47
// bits and begins above the shadows of the address sanitizer (16 TiB on x86-64, 32 TiB on aarch64). The second range
// suits 39 bits.
struct Range {
  usize lowest;
  usize highest;
  usize window_bytes;
};
constexpr Range kRanges[] = {{33 * kTiB, 42 * kTiB, kWindowBytes}, {16 * kGiB, 160 * kGiB, kWindowBytesNarrow}};
constexpr unsigned kTriesPerRange = 4;

usize tag_bytes FREESTONE_GUARDED_BY(growth_lock) = 0;       // mapped, from the window's base
usize metadata_start FREESTONE_GUARDED_BY(growth_lock) = 0;  // address of its first byte
usize metadata_bytes FREESTONE_GUARDED_BY(growth_lock) = 0;  // mapped

// The heap part of the window starts on a group border, behind the tag table and at least one unmapped unit.
UnitIndex heap_start_of(usize window_units) {
  return static_cast<UnitIndex>(round_up(bytes_to_units(window_units) + 1, kGroupUnits));
}

usize metadata_bytes_of(usize window_units) {
  const usize supers = (window_units + kGroupUnits * kSuperGroups - 1) / (kGroupUnits * kSuperGroups);
  return round_up((supers - heap_start_of(window_units) / kGroupUnits / kSuperGroups) * kSuperStride, kTagStep);
}

// The end of the metadata for the units below `end`.
usize metadata_end(UnitIndex end) {
  const usize octets = (end + kOctetGroups * kGroupUnits - 1) / (kOctetGroups * kGroupUnits);
  const usize supers = (octets + kSuperGroups / kOctetGroups - 1) / (kSuperGroups / kOctetGroups);
  return region.metadata + supers * sizeof(Super) + octets * sizeof(Octet);
}

enum class Outcome {
  ours,
  taken,    // somebody else has the place
  refused,  // by the kernel or the limit
  ended,    // somebody else has the place of a table
};

// FORK-5: a piece that is being opened, or is open and not in force yet.
struct Piece {
  usize start = 0;
  usize bytes = 0;       // 0: none
  bool is_ours = false;  // the call is over
};
struct Growth {
  Piece heap;
  Piece tags;
  Piece metadata;
  UnitIndex skipped = 0;  // Region::skipped before
};
constinit Growth growth FREESTONE_GUARDED_BY(growth_lock);

Outcome open_piece(Piece& piece, usize start, usize bytes) {
  if (bytes == 0) return Outcome::ours;
  piece.start = start;
  piece.is_ours = false;
  order_stores();
  piece.bytes = bytes;
  order_stores();
  void* const address = reinterpret_cast<void*>(start);
  const os::Failure failure = region.reserved ? os::commit(address, bytes) : os::map_at(address, bytes);
  if (failure) {
    piece.bytes = 0;
    return failure.error == EEXIST ? Outcome::taken : Outcome::refused;
  }
  piece.is_ours = true;
  return Outcome::ours;
}

// Undoes open_piece for a piece that nobody has touched.
void close_piece(Piece& piece) {
  if (piece.bytes == 0) return;
  void* const address = reinterpret_cast<void*>(piece.start);
  const bool was_ours = piece.is_ours;
  piece.is_ours = false;
  order_stores();
  if (region.reserved) {
    os::protect_none(address, piece.bytes);
  } else if (was_ours) {
    os::unmap(address, piece.bytes);
  } else {
    os::undo_map_at(address, piece.bytes);
  }
  order_stores();
  piece.bytes = 0;
}

// Whether a piece that was being opened or closed is ours in the end.
FREESTONE_SLOW bool finish_piece(const Piece& piece) {
  if (piece.bytes == 0) return false;
  void* const address = reinterpret_cast<void*>(piece.start);
  if (region.reserved) return !os::commit(address, piece.bytes);
  return piece.is_ours || os::finish_map_at(address, piece.bytes);
}

// Lays the window out at `base` and maps the first piece of its tags.
Outcome lay_out(usize base, usize window_bytes) FREESTONE_REQUIRES(growth_lock) {
  const usize units = window_bytes >> kUnitShift;
  Piece tags;
  const Outcome outcome = open_piece(tags, base, kTagStep);
  if (outcome != Outcome::ours) return outcome;
  charge_anyway(kTagStep);
  tag_bytes = kTagStep;
  note_in_force(kTagStep);
  const UnitIndex start = heap_start_of(units);
  region.base = base;  // it says where other things may lie
  const usize apart = region.reserved ? 0 : place_apart(metadata_bytes_of(units), os::page_bytes());
  metadata_start = apart != 0 ? apart : base - metadata_bytes_of(units);
  region.metadata = metadata_start - start / kGroupUnits / kSuperGroups * kSuperStride;
  region.heap_start = start;
  region.window_end = static_cast<UnitIndex>(units);
  if (!region.reserved) region.behind = base + window_bytes + kWindowAlignment;
  region.frontier.store_release(start);
  region.frontier_bytes.store_release(units_to_bytes(start));
  return outcome;
}

bool place_within(const Range& range) FREESTONE_REQUIRES(growth_lock) {
  const usize metadata = metadata_bytes_of(range.window_bytes >> kUnitShift);
  const usize lowest = round_up(range.lowest + metadata, kWindowAlignment);
  const usize places = (range.highest - range.window_bytes - lowest) / kWindowAlignment;
  for (unsigned tries = 0; tries < kTriesPerRange; ++tries) {
    const Outcome outcome = lay_out(lowest + os::entropy() % places * kWindowAlignment, range.window_bytes);
    if (outcome != Outcome::taken) return outcome == Outcome::ours;
  }
  return false;
}

bool place_by_reserving(usize window_bytes) FREESTONE_REQUIRES(growth_lock) {
  const usize metadata = metadata_bytes_of(window_bytes >> kUnitShift);
  const usize bytes = metadata + window_bytes + kWindowAlignment;
  void* const got = os::reserve(bytes, 0);
  if (got == nullptr) return false;
  region.reserved = true;
  if (lay_out(round_up(address_of(got) + metadata, kWindowAlignment), window_bytes) == Outcome::ours) return true;
  region.reserved = false;
  os::unmap(got, bytes);
  return false;
}

bool find_place() FREESTONE_REQUIRES(growth_lock) {
  for (const Range& range : kRanges) {
    if (!FREESTONE_SANITIZED && place_within(range)) return true;  // a sanitizer allows few places
  }
  for (usize bytes = kReservedBytesMax; bytes >= kReservedBytesMin; bytes /= 2) {
    if (place_by_reserving(bytes)) return true;
  }
  return false;
}

// Huge pages: none in a small heap, and none under a limit, because a huge page brings memory that was never charged.
// If we fill frames, only the frames are huge.
UnitIndex plain_pages_end() {
  const auto thp = static_cast<Thp>(options.thp);
  if (thp == Thp::off || is_limited()) return ~UnitIndex{0};
  return region.heap_start +
         static_cast<UnitIndex>((thp == Thp::automatic ? kThpPlainBytes : kThpFirstBytes) >> kUnitShift);
}
void advise_piece(UnitIndex first, UnitIndex end) {
  const UnitIndex plain_end = min_of(end, plain_pages_end());
  if (first < plain_end)
    os::advise_huge_pages(unit_address(first), units_to_bytes(plain_end - first), os::HugePages::refuse);
  const UnitIndex rest = min_of(end, max_of(first, plain_end));
  if (rest == end) return;
  if (static_cast<Thp>(options.thp) == Thp::always)
    os::advise_huge_pages(unit_address(rest), units_to_bytes(end - rest), os::HugePages::request);
  // A piece with the flags of its neighbours joins their mapping, which keeps the list of mappings short.
  if (fills_frames()) os::advise_huge_pages(unit_address(rest), units_to_bytes(end - rest), os::HugePages::refuse);
}

// Opens the pieces of the tables, or none of them.
Outcome open_tables(const TableRange& tags, const TableRange& metadata) FREESTONE_REQUIRES(growth_lock) {
  Outcome outcome = open_piece(growth.tags, tags.start, tags.bytes);
  if (outcome == Outcome::ours) {
    outcome = open_piece(growth.metadata, metadata.start, metadata.bytes);
    if (outcome != Outcome::ours) close_piece(growth.tags);
  }
  return outcome == Outcome::taken ? Outcome::ended : outcome;
}

[[maybe_unused]] bool nothing_grows() FREESTONE_REQUIRES(growth_lock) {
  return growth.heap.bytes + growth.tags.bytes + growth.metadata.bytes + unadded.units == 0;
}

// Maps the units from `first` to `end`, skips those between the frontier and `first`, and moves the frontier to `end`.
Outcome move_frontier(UnitIndex first, UnitIndex end) FREESTONE_REQUIRES(growth_lock) {
  FREESTONE_CHECK("FORK-5", nothing_grows());
  const usize page = os::page_bytes();
  const usize more_tags = end > tag_bytes ? round_up(end, kTagStep) - tag_bytes : 0;
  const usize wanted = min_of(round_up(metadata_end(end) - metadata_start, page), metadata_bytes_of(region.window_end));
  const usize more_metadata = wanted > metadata_bytes ? wanted - metadata_bytes : 0;
  const usize tags_from = region.base + tag_bytes;
  const usize metadata_from = metadata_start + metadata_bytes;
  if (!charge_ahead(more_tags + more_metadata)) return Outcome::refused;
  growth.skipped = region.skipped.load_relaxed();
  Outcome outcome = open_piece(growth.heap, address_of(unit_address(first)), units_to_bytes(end - first));
  if (outcome == Outcome::ours) {
    outcome = open_tables({tags_from, more_tags}, {metadata_from, more_metadata});
    if (outcome != Outcome::ours) close_piece(growth.heap);
  }
  if (outcome != Outcome::ours) {
    uncharge(more_tags + more_metadata);
    return outcome;
  }
  confirm_charge();
  // A page that is read before it is written costs two faults.
  Super& super = super_at(first / kGroupUnits / kSuperGroups);
  if (address_of(&super) >= metadata_from) *reinterpret_cast<volatile char*>(&super) = 0;
  tag_bytes += more_tags;
  metadata_bytes += more_metadata;
  note_in_force(more_tags + more_metadata);
  const UnitIndex old_frontier = region.frontier.load_relaxed();
  set_tags(old_frontier, first - old_frontier, kTagForeign);
  region.skipped.store_relaxed(growth.skipped + first - old_frontier);
  advise_piece(first, end);
  FREESTONE_CHECK("REGION-2",
                  end > old_frontier && end <= tag_bytes && metadata_end(end) <= metadata_start + metadata_bytes);
  unadded = {first, end - first};
  // REGION-2: tags and metadata are in place before another thread can see the frontier.
  region.frontier.store_release(end);
  region.frontier_bytes.store_release(units_to_bytes(end));
  growth = {};
  return Outcome::ours;
}

Atomic<u64> numbers_drawn;     // relaxed: any order is as good; 0: none yet, or none in this child
Atomic<usize> limit_at_start;  // relaxed: written before there is a second thread

// Whether guards would count against a limit. A program with more rights than its caller has guards all the same: the
// caller chose the limit.
bool is_limited_by_system() {
  limit_at_start.store_relaxed(min_of(os::address_limit_bytes(), os::data_limit_bytes()));
  return !os::is_privileged() && limit_at_start.load_relaxed() < kGuardedFromBytes;
}

// How guards are made. False: the trial cannot be undone, so this place is lost.
bool choose_guarding() FREESTONE_REQUIRES(growth_lock) {
  if (!kMitigations.guards || os::page_bytes() > kUnitBytes || is_limited_by_system()) return true;
  void* const trial = tag_table();  // nothing stands there yet
  const bool by_advice = !os::guard_install(trial, kTagStep);
  if (by_advice && os::guard_remove(trial, kTagStep)) {
    note_out_of_force(kTagStep);
    uncharge(kTagStep);
    return false;
  }
  sealed_page.guarding = static_cast<u8>(by_advice ? Guarding::advice : Guarding::protection);
  return true;
}

}  // namespace

usize span_random(usize end) {
  u64 number = numbers_drawn.fetch_add_relaxed(1);
  if (FREESTONE_UNLIKELY(number == 0)) numbers_drawn.store_relaxed((number = os::entropy() | 1) + 1);
  return mix_bits(number) % end;
}
void renew_span_random() { numbers_drawn.store_relaxed(0); }

usize system_limit_bytes() { return limit_at_start.load_relaxed(); }

usize place_apart(usize bytes, usize alignment) {
  const usize start = region.base >= kTiB ? 44 * kTiB : 224 * kGiB, room = start / 44 * 40;
  if (!kMitigations.guards || bytes >= room / 2) return 0;
  const usize pages = (room - bytes) / os::page_bytes();
  return round_down(start + span_random(pages) * os::page_bytes(), alignment);
}

bool place_region() {
  LockGuard guard(growth_lock);
  for (int tries = 0; tries < 2; ++tries) {
    if (!find_place()) return false;
    if (choose_guarding()) return true;
  }
  return false;
}

Grown commit_units(usize units, usize alignment) {
  const UnitIndex frontier = region.frontier.load_relaxed();
  // Larger blocks can have mappings instead; small ones cannot.
  const usize kept = units > kGroupUnits ? (region.window_end - region.heap_start) / kSmallWindowDivisor : 0;
  const usize heap_bytes = units_to_bytes(committed_units());
  usize step = max_of(kCommitStepMin, min_of(kCommitStepMax, round_down(heap_bytes / 4, kMiB)));
  if (is_limited()) step = kCommitStepMin;  // do not charge for records of units that the limit forbids
  step = bytes_to_units(step);
  usize grain = kGroupUnits;
  usize first = frontier;
  usize skip = 0;
  Outcome outcome = Outcome::refused;
  for (;;) {
    const usize needed = round_up(round_up(first, alignment) + units, grain);
    if (needed + kept > region.window_end) break;
    const usize end = min_of(max_of(round_up(first + step, grain), needed), region.window_end - kept);
    outcome = move_frontier(static_cast<UnitIndex>(first), static_cast<UnitIndex>(end));
    if (outcome == Outcome::ours) return {static_cast<UnitIndex>(first), end - first};
    const usize page_units = max_of<usize>(os::page_bytes() >> kUnitShift, 1);
    if (end > needed) {
      step = 0;
    } else if (outcome == Outcome::taken) {
      skip = skip == 0 ? kGroupUnits : skip * 2;  // a few tries get past whatever is there
      first = round_up(frontier, kGroupUnits) + skip;
    } else if (outcome == Outcome::refused && grain > page_units) {
      grain = page_units;  // the kernel may have room for the units alone
    } else {
      break;
    }
  }
  // Not even one group is free beyond the frontier, and that will not change.
  if (outcome == Outcome::ended || (outcome == Outcome::taken && units <= kGroupUnits)) region.window_end = frontier;
  return {};
}

FREESTONE_NO_ANALYSIS usize added_units() {
  const bool has_passed = unadded.units != 0 && region.frontier.load_relaxed() > unadded.first;
  return committed_units() - (has_passed ? unadded.units : 0);
}

FREESTONE_SLOW void repair_growth_in_child() {
  const UnitIndex frontier = region.frontier.load_relaxed();
  // What the tables have gained or were about to gain is charged for and stays, since not every kernel takes it back.
  if (growth.tags.start >= region.base + tag_bytes && finish_piece(growth.tags)) tag_bytes += growth.tags.bytes;
  if (growth.metadata.start >= metadata_start + metadata_bytes && finish_piece(growth.metadata))
    metadata_bytes += growth.metadata.bytes;
  if (growth.heap.bytes != 0 && growth.heap.start >= address_of(unit_address(frontier))) {
    close_piece(growth.heap);
    region.skipped.store_relaxed(growth.skipped);
    const UnitIndex first = unit_of(reinterpret_cast<void*>(growth.heap.start));
    const auto end = static_cast<UnitIndex>(min_of<usize>(first, tag_bytes));
    if (end > frontier) set_tags(frontier, end - frontier, kTagNone);
    unadded.units = 0;
  }
  growth = {};
  region.frontier_bytes.store_release(units_to_bytes(frontier));
}

bool has_plain_pages(UnitIndex unit) { return unit < plain_pages_end(); }

bool fills_frames() {
  if (!kFillsFrames || static_cast<Thp>(options.thp) != Thp::automatic || is_limited()) return false;
  return frames.load_relaxed() == Frames::filled;
}

void ask_about_frames() {
  const bool matters = kFillsFrames && static_cast<Thp>(options.thp) == Thp::automatic;
  if (matters && os::page_bytes() == 4 * kKiB && os::gives_huge_pages_on_request())
    frames.store_relaxed(Frames::filled);
}

bool fill_frame(UnitIndex first) {
  void* const frame = unit_address(first);
  os::advise_huge_pages(frame, kFrameBytes, os::HugePages::request);
  const os::Failure failure = os::populate(frame, kFrameBytes);
  os::advise_huge_pages(frame, kFrameBytes, os::HugePages::refuse);
  if (failure.error == EINVAL) frames.store_relaxed(Frames::left);  // the kernel is too old
  return !failure;
}

TableRange mapped_tags() { return {region.base, tag_bytes}; }
TableRange mapped_metadata() { return {metadata_start, metadata_bytes}; }

FREESTONE_SLOW usize metadata_resident_bytes() {
  const usize page = os::page_bytes();
  const os::PageTable table;
  const auto resident = [&](const TableRange& range) {
    bool in_memory[os::PageTable::kPagesMax];
    usize pages = 0;
    for (usize done = 0; done < range.bytes;) {
      const usize count = min_of(range.bytes - done, sizeof in_memory * page) / page;
      if (!table.look(range.start + done, count, in_memory)) return range.bytes;
      for (usize k = 0; k < count; ++k) pages += in_memory[k] ? 1 : 0;
      done += count * page;
    }
    return pages * page;
  };
  return resident(mapped_metadata()) + resident(mapped_tags());
}

usize metadata_committed_bytes() { return metadata_bytes + tag_bytes; }

constinit Places table_places = {&tag_bytes,         &metadata_start,    &metadata_bytes,
                                 &region.base,       &region.heap_start, &region.window_end,
                                 &region.frontier,   &region.skipped,    &region.reserved};

}  // namespace freestone
