// Room 5, region: reserving and committing.

#include "region/region.h"

#include "base/bits.h"
#include "config/options.h"
#include "platform/os.h"
#include "region/account.h"

namespace freestone {

constinit Region region;

namespace {

constexpr usize kCommitStepMin = kMiB;  // a group; in a small heap a write that runs on for as much leaves it, and faults
constexpr usize kCommitStepMax = 64 * kMiB;
constexpr usize kTagCommitStep = 64 * kKiB;
constexpr usize kThpPlainBytes = 32 * kMiB;  // thp:auto leaves huge pages to the system beyond this
constexpr usize kThpFirstBytes = 2 * kMiB;

enum class Thp : u32 { off, automatic, always };

// Guarded by the span lock.
usize tag_bytes_committed = 0;
usize metadata_start = 0;      // address of the first byte that is mapped
usize metadata_committed = 0;  // bytes from metadata_start
usize metadata_bytes = 0;
usize last_piece_bytes = 0;

// A place well below where the kernel puts its own mappings, so that a window can grow upwards. Random, so that heap
// addresses stay unpredictable.
usize window_hint(usize bytes) {
  if constexpr (FREESTONE_SANITIZED) return 0;
  const usize lowest = 16 * kTiB;
  const usize span = 64 * kTiB - bytes;
  return sizeof(void*) == 8 ? round_down(lowest + os::entropy() % span, kGiB) : 0;
}

// The end of the metadata for the units below `end`.
usize metadata_end(UnitIndex end) {
  const usize octets = (end + kOctetGroups * kGroupUnits - 1) / (kOctetGroups * kGroupUnits);
  const usize supers = (octets + kSuperGroups / kOctetGroups - 1) / (kSuperGroups / kOctetGroups);
  return region.metadata + supers * sizeof(Super) + octets * sizeof(Octet);
}

bool commit_charged(void* start, usize bytes) {
  if (!charge(bytes)) return false;
  if (!os::commit(start, bytes)) return true;
  uncharge(bytes);
  return false;
}

bool commit_metadata(UnitIndex end) {
  const usize needed = round_up(metadata_end(end) - metadata_start, os::page_bytes());
  if (needed <= metadata_committed) return true;
  const usize target = min_of(needed, metadata_bytes);
  if (!commit_charged(reinterpret_cast<void*>(metadata_start + metadata_committed), target - metadata_committed)) return false;
  metadata_committed = target;
  return true;
}

bool commit_tags(UnitIndex end) {
  if (end <= tag_bytes_committed) return true;
  const usize target = min_of(round_up(end, kTagCommitStep), round_up(region.window_end, os::page_bytes()));
  if (!commit_charged(tag_table() + tag_bytes_committed, target - tag_bytes_committed)) return false;
  tag_bytes_committed = target;
  return true;
}

// Makes the window's next addresses ours. The first piece of a limited window is small; each later one doubles.
bool extend_reservation(usize units) {
  const UnitIndex end = region.reserved_end.load_relaxed();
  usize piece = max_of(round_up(units_to_bytes(units), 16 * kMiB), last_piece_bytes * 2);
  for (; piece >= units_to_bytes(units); piece /= 2) {
    const usize room = units_to_bytes(region.window_end - end);
    const usize bytes = min_of(piece, room);
    if (bytes < units_to_bytes(units)) return false;
    void* wanted = unit_address(end);
    void* got = os::reserve(bytes, address_of(wanted));
    if (got == wanted) {
      last_piece_bytes = bytes;
      region.reserved_end.store_relaxed(end + static_cast<UnitIndex>(bytes >> kUnitShift));
      return true;
    }
    if (got != nullptr) {
      os::unmap(got, bytes);
      return false;
    }
  }
  return false;
}

// The heap part of the window starts behind the tag table and an inaccessible gap, on a group border.
UnitIndex heap_start_of(usize window_units) {
  return static_cast<UnitIndex>(round_up(bytes_to_units(window_units) + 1, kGroupUnits));
}

bool place_window(usize window_bytes, usize reserved_bytes) {
  constexpr usize kAlignment = 2 * kMiB;
  auto* got = static_cast<char*>(os::reserve(reserved_bytes + kAlignment, window_hint(window_bytes)));
  if (got == nullptr) return false;
  const usize base = round_up(address_of(got), kAlignment);
  if (const usize head = base - address_of(got); head > 0) os::unmap(got, head);
  if (const usize tail = address_of(got) + kAlignment - base; tail > 0) os::unmap(reinterpret_cast<void*>(base + reserved_bytes), tail);

  const usize window_units = window_bytes >> kUnitShift;
  const UnitIndex start = heap_start_of(window_units);
  const usize first_super = start / kGroupUnits / kSuperGroups;
  const usize supers = (window_units + kGroupUnits * kSuperGroups - 1) / (kGroupUnits * kSuperGroups);
  metadata_bytes = round_up((supers - first_super) * kSuperStride, os::page_bytes());
  void* metadata = os::reserve(metadata_bytes, 0);
  if (metadata == nullptr ||
      os::make_readable(reinterpret_cast<void*>(base), round_up(window_units, os::page_bytes()))) {
    if (metadata != nullptr) os::unmap(metadata, metadata_bytes);
    os::unmap(reinterpret_cast<void*>(base), reserved_bytes);
    return false;
  }
  metadata_start = address_of(metadata);
  region.metadata = metadata_start - first_super * kSuperStride;
  region.heap_start = start;
  region.window_end = static_cast<UnitIndex>(window_units);
  region.reserved_end.store_relaxed(static_cast<UnitIndex>(reserved_bytes >> kUnitShift));
  region.frontier.store_relaxed(start);
  last_piece_bytes = reserved_bytes;
  region.base = base;
  return true;
}

}  // namespace

bool reserve_region() {
  const usize heap_bytes = kRegionBytesMax;
  for (usize bytes = heap_bytes; bytes >= kRegionBytesUnlimited; bytes /= 2) {
    if (place_window(bytes, bytes)) {
      region.window_bytes = bytes;
      break;
    }
  }
  for (usize bytes = kRegionBytesUnlimited / 2; region.window_bytes == 0 && bytes >= kRegionBytesMin; bytes /= 2) {
    // Address space is limited. The window is as large as what could be had, but most of it is taken only when used.
    void* trial = os::reserve(bytes, 0);
    if (trial == nullptr) continue;
    os::unmap(trial, bytes);
    const usize window = bytes * 2;
    if (place_window(window, max_of(bytes / 8, kRegionBytesMin))) region.window_bytes = window;
  }
  if (region.window_bytes == 0) return false;
  if (kMitigations.guards && region.window_bytes >= kRegionBytesUnlimited && os::data_limit_bytes() >= kRegionBytesUnlimited) {
    void* trial = unit_address(region.heap_start);
    region.guards = !os::guard_install(trial, kUnitBytes) && !os::guard_remove(trial, kUnitBytes);
  }
  const auto thp = static_cast<Thp>(options.thp);
  void* heap = unit_address(region.heap_start);
  const usize reserved = units_to_bytes(region.reserved_end.load_relaxed() - region.heap_start);
  const usize plain = thp == Thp::off ? reserved : min_of(reserved, thp == Thp::automatic ? kThpPlainBytes : kThpFirstBytes);
  os::advise_huge_pages(heap, plain, os::HugePages::refuse);
  return true;
}

usize commit_units(usize units) {
  const UnitIndex frontier = region.frontier.load_relaxed();
  const usize in_use = units_to_bytes(frontier - region.heap_start);
  usize step = max_of(kCommitStepMin, min_of(kCommitStepMax, round_down(in_use / 4, kMiB)));
  if (is_limited()) step = kCommitStepMin;  // the records of units that the limit forbids would be charged for
  step = max_of(bytes_to_units(step), round_up(units, kGroupUnits));
  if (region.reserved_end.load_relaxed() - frontier < round_up(units, kGroupUnits) && !extend_reservation(round_up(units, kGroupUnits))) return 0;
  step = min_of<usize>(step, region.reserved_end.load_relaxed() - frontier);
  for (;; step = round_up(units, kGroupUnits)) {
    const auto end = static_cast<UnitIndex>(frontier + step);
    if (commit_metadata(end) && commit_tags(end) && !os::commit(unit_address(frontier), units_to_bytes(step))) break;
    if (step <= round_up(units, kGroupUnits)) return 0;
  }
  if (static_cast<Thp>(options.thp) == Thp::always && in_use + units_to_bytes(step) > kThpFirstBytes) {
    const UnitIndex from = max_of(frontier, region.heap_start + static_cast<UnitIndex>(kThpFirstBytes >> kUnitShift));
    os::advise_huge_pages(unit_address(from), units_to_bytes(frontier + step - from), os::HugePages::request);
  }
  region.frontier.store_release(static_cast<UnitIndex>(frontier + step));
  return step;
}

usize metadata_resident_bytes() {
  const usize page = os::page_bytes();
  const auto resident = [page](usize start, usize bytes) {
    u8 present[4 * kKiB];
    usize pages = 0;
    for (usize done = 0; done < bytes;) {
      const usize piece = min_of(bytes - done, sizeof present * page);
      if (os::resident_pages(reinterpret_cast<void*>(start + done), piece, present)) return bytes;
      for (usize k = 0; k < piece / page; ++k) pages += present[k] & 1U;
      done += piece;
    }
    return pages * page;
  };
  return resident(metadata_start, metadata_committed) + resident(region.base, round_down(tag_bytes_committed, page));
}

usize metadata_committed_bytes() { return metadata_committed + tag_bytes_committed; }

}  // namespace freestone
