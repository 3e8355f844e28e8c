// Room 6, span: see mapping.h.

#include "span/mapping.h"

#include <cerrno>
#include <cstdint>

#include "base/bits.h"
#include "base/check.h"
#include "base/places.h"
#include "platform/leaving.h"
#include "region/account.h"
#include "region/region.h"
#include "region/traffic.h"

namespace freestone {

constinit Mutex mapping_lock{LockName::mapping};

namespace {

// What a thread does to a mapping without the lock.
constexpr usize kUnmapping = 1;
constexpr usize kMoving = 2;
constexpr usize kGoings = kUnmapping | kMoving;
// A freed block that the kernel neither unmapped nor emptied, or whose thread keeps its pages: nobody is at it. It is
// charged for until another try succeeds.
constexpr usize kStuck = kGoings;

struct Entry {
  usize block = 0;  // what the program holds; 0: empty
  usize start = 0;  // of the mapping
  usize bytes = 0;  // of the mapping, from start
  u64 request = 0;  // see mapped_request
  usize going = 0;  // own_thread() of the thread that unmaps or moves it, and which of the two; 0: neither
  bool is_going_by(usize thread) const { return going != 0 && (going & ~kGoings) == thread; }
  usize usable_bytes() const { return start + bytes - block; }
};

// MAPPING-1  At least one entry is empty: so every search ends.
// MAPPING-2  No entry is empty between an entry and the place that its address hashes to: so every search finds.
//
// FORK-3: at every instruction an entry with a block is complete, and the table in force holds all of them; while
// one is being removed, another may be there twice or out of place.
// FORK-5: a mapping that goes stays in the table until nothing of it is left but its addresses, or until it has moved.
constexpr usize kFirstEntries = 16;
Entry first_entries[kFirstEntries];
struct Table {
  Entry* entries;
  usize capacity;

  usize next(usize i) const { return (i + 1) & (capacity - 1); }
  usize home_of(usize block) const { return mix_bits(block >> 12) & (capacity - 1); }
  Entry& place_for(usize block) const {
    usize i = home_of(block);
    while (entries[i].block != 0) i = next(i);
    return entries[i];
  }
};
Table tables[2] FREESTONE_GUARDED_BY(mapping_lock) = {{first_entries, kFirstEntries}, {}};
const Table* table FREESTONE_GUARDED_BY(mapping_lock) = &tables[0];
usize live FREESTONE_GUARDED_BY(mapping_lock) = 0;
usize going FREESTONE_GUARDED_BY(mapping_lock) = 0;  // how many of them go
// Charged for, like the table once it is mapped.
usize live_bytes FREESTONE_GUARDED_BY(mapping_lock) = 0;
// The stuck ones count as the library's own.
usize stuck FREESTONE_GUARDED_BY(mapping_lock) = 0;
usize stuck_bytes FREESTONE_GUARDED_BY(mapping_lock) = 0;
// Of stuck ones for which the table had no room.
usize lost_bytes FREESTONE_GUARDED_BY(mapping_lock) = 0;
usize most_live FREESTONE_GUARDED_BY(mapping_lock) = 0;
usize most_live_bytes FREESTONE_GUARDED_BY(mapping_lock) = 0;

// The entry of a block that does not go, or goes in this way. While one moves, its address may be given out again.
Entry* find(usize block, usize goes = 0) FREESTONE_REQUIRES(mapping_lock) {
  for (usize i = table->home_of(block);; i = table->next(i)) {
    Entry& entry = table->entries[i];
    if (entry.block == 0) return nullptr;
    if (entry.block == block && entry.going == goes) return &entry;
  }
}

void write(Entry& place, const Entry& entry) {
  place.block = 0;
  order_stores();
  place.start = entry.start;
  place.bytes = entry.bytes;
  place.request = entry.request;
  place.going = entry.going;
  order_stores();
  place.block = entry.block;
}

void put(const Entry& entry) FREESTONE_REQUIRES(mapping_lock) {
  write(table->place_for(entry.block), entry);
  ++live;
  live_bytes += entry.bytes;
  note_in_force(entry.bytes);
  most_live = max_of(most_live, live);
  most_live_bytes = max_of(most_live_bytes, live_bytes);
  FREESTONE_CHECK("MAPPING-1", live < table->capacity);
  FREESTONE_CHECK("MAPPING-2", find(entry.block) != nullptr);
}

// Of the entries from there to the next empty one.
[[maybe_unused]] bool all_are_found(usize i) FREESTONE_REQUIRES(mapping_lock) {
  for (; table->entries[i].block != 0; i = table->next(i)) {
    if (find(table->entries[i].block, table->entries[i].going) != &table->entries[i]) return false;
  }
  return true;
}

// Entries behind it that would no longer be found move up into the gap.
void erase(const Entry& entry) FREESTONE_REQUIRES(mapping_lock) {
  --live;
  live_bytes -= entry.bytes;
  note_out_of_force(entry.bytes);
  if (entry.going != 0) --going;
  const usize mask = table->capacity - 1;
  Entry* const entries = table->entries;
  usize gap = static_cast<usize>(&entry - entries);
  for (usize i = table->next(gap); entries[i].block != 0; i = table->next(i)) {
    const usize from_home = (i - table->home_of(entries[i].block)) & mask;
    if (from_home < ((i - gap) & mask)) continue;
    write(entries[gap], entries[i]);
    gap = i;
  }
  entries[gap].block = 0;
  FREESTONE_CHECK("MAPPING-2", all_are_found(table->next(gap)));
}

// Puts every entry in its place once, and counts them. Each pass brings entries nearer to their homes: it ends.
FREESTONE_SLOW void count_anew() FREESTONE_REQUIRES(mapping_lock) {
  for (bool changed = true; changed;) {
    changed = false;
    for (usize i = 0; i < table->capacity; ++i) {
      const Entry entry = table->entries[i];
      if (entry.block == 0 || find(entry.block, entry.going) == &table->entries[i]) continue;
      table->entries[i].block = 0;
      if (find(entry.block, entry.going) == nullptr) write(table->place_for(entry.block), entry);
      changed = true;
    }
  }
  live = live_bytes = going = stuck = stuck_bytes = 0;
  for (usize i = 0; i < table->capacity; ++i) {
    if (table->entries[i].block == 0) continue;
    ++live;
    going += table->entries[i].going != 0 ? 1 : 0;
    live_bytes += table->entries[i].bytes;
    if (table->entries[i].going != kStuck) continue;
    ++stuck;
    stuck_bytes += table->entries[i].bytes;
  }
}

// A mapping that another thread had made and not put into the table stays in the child of a fork as unused addresses.
template <typename Map>
void* map_charged(usize bytes, Map map) {
  if (!charge_ahead(bytes)) return nullptr;
  void* start = map(bytes);
  if (start == nullptr) {
    uncharge(bytes);
    return nullptr;
  }
  confirm_charge();
  return start;
}

// At a random place, if there is one. Null also where that is taken; `refused` if the kernel has no memory.
void* map_apart(usize bytes, usize alignment, bool& refused) {
  auto* const start = reinterpret_cast<void*>(place_apart(bytes, alignment));
  if (start == nullptr) return nullptr;
  const os::Failure failure = os::map_at(start, bytes, true);
  refused = failure && failure.error != EEXIST;
  return failure ? nullptr : start;
}

usize table_bytes(usize entries) { return round_up(entries * sizeof(Entry), os::page_bytes()); }
// Of the table in force; the first one is not mapped.
usize mapped_table_bytes() FREESTONE_REQUIRES(mapping_lock) {
  return table->entries == first_entries ? 0 : table_bytes(table->capacity);
}

void begin_going(Entry& entry, usize how) FREESTONE_REQUIRES(mapping_lock) {
  ++going;
  entry.going = own_thread() | how;
}

// In the child of a fork, of a mapping that went in another thread.
void settle_going(Entry& entry) {
  void* const start = reinterpret_cast<void*>(entry.start);
  if ((entry.going & kUnmapping) != 0) {
    const usize bytes = entry.bytes;
    entry.block = 0;  // first: a child that comes after this one must not unmap it again
    order_stores();
    os::unmap(start, bytes);
    return;
  }
  // If its place is free it has moved, and only that thread knew where.
  if (!os::map_at(start, entry.bytes)) {
    entry.block = 0;
    os::unmap(start, entry.bytes);
    return;
  }
  entry.going = 0;
}

// For one entry more. Keeps at least half of the table empty; false when MAPPING-1 asks for a larger one and the kernel
// refuses.
bool make_room() FREESTONE_REQUIRES(mapping_lock) {
  const Table old = *table;
  if (live < old.capacity / 2) return true;
  auto* fresh = static_cast<Entry*>(map_charged(table_bytes(old.capacity * 2), os::map));
  if (fresh == nullptr) return live + 1 < old.capacity;
  Table& next = tables[table == &tables[0] ? 1 : 0];
  next = {fresh, old.capacity * 2};
  for (usize i = 0; i < old.capacity; ++i) {
    if (const Entry& entry = old.entries[i]; entry.block != 0) next.place_for(entry.block) = entry;
  }
  const usize old_bytes = mapped_table_bytes();
  order_stores();
  table = &next;
  note_in_force(mapped_table_bytes());
  note_out_of_force(old_bytes);
  if (old_bytes != 0) os::unmap(old.entries, old_bytes);
  uncharge(old_bytes);
  return true;
}

}  // namespace

void* map_block(usize bytes, usize alignment) {
  const usize page = os::page_bytes(), wanted = round_up(bytes, page);
  usize slack = alignment > page ? alignment : 0;
  if (bytes > PTRDIFF_MAX || slack > PTRDIFF_MAX - wanted) return nullptr;
  unmap_stuck();
  bool refused = false;
  const auto apart = [&](usize all) { return map_apart(all, alignment, refused); };
  void* start = kMitigations.guards ? map_charged(wanted, apart) : nullptr;
  if (start != nullptr) slack = 0;
  if (start == nullptr && (refused || (start = map_charged(wanted + slack, os::map)) == nullptr)) return nullptr;
  Entry entry{round_up(address_of(start), max_of(alignment, page)), address_of(start), wanted + slack};
  if (const usize head = entry.block - entry.start; head > 0 && !os::unmap(start, head)) {
    entry.start += head;
    entry.bytes -= head;
  }
  if (const usize tail = entry.start + entry.bytes - entry.block - wanted;
      tail > 0 && !os::unmap(reinterpret_cast<void*>(entry.block + wanted), tail)) {
    entry.bytes -= tail;
  }
  uncharge(wanted + slack - entry.bytes);
  {
    LockGuard guard(mapping_lock);
    if (make_room()) {
      put(entry);
      note_came(Came::mapping, entry.bytes);
      return reinterpret_cast<void*>(entry.block);
    }
  }
  os::unmap(reinterpret_cast<void*>(entry.start), entry.bytes);
  uncharge(entry.bytes);
  return nullptr;
}

usize mapped_block_bytes(const void* block) {
  LockGuard guard(mapping_lock);
  const Entry* entry = find(address_of(block));
  return entry == nullptr ? 0 : entry->usable_bytes();
}

u64 mapped_request(const void* block) {
  LockGuard guard(mapping_lock);
  const Entry* entry = find(address_of(block));
  return entry == nullptr ? 0 : entry->request;
}

void set_mapped_request(const void* block, u64 request) {
  LockGuard guard(mapping_lock);
  if (Entry* entry = find(address_of(block)); entry != nullptr) entry->request = request;
}

namespace {

// Of a mapping that waits in the table until somebody can unmap it.
void wait_stuck(Entry& entry) FREESTONE_REQUIRES(mapping_lock) {
  entry.going = kStuck;
  ++going;
  ++stuck;
  stuck_bytes += entry.bytes;
}

// Of a mapping that is no longer in the table.
void stay_stuck(Entry entry) {
  LockGuard guard(mapping_lock);
  if (!make_room()) {
    lost_bytes += entry.bytes;
    return note_in_force(entry.bytes);
  }
  wait_stuck(entry);
  put(entry);
}

// False: the kernel neither empties nor unmaps it.
bool unmap_removed(const Entry& removed, bool is_empty) {
  // At the mapping limit munmap can fail; the memory at least went back, unless it is locked.
  if (os::unmap_block(reinterpret_cast<void*>(removed.start), removed.bytes) && !is_empty) {
    stay_stuck(removed);
    return false;
  }
  note_back(WentBack::mapping, removed.bytes);
  uncharge(removed.bytes);
  return true;
}

bool take_stuck(usize& from, Entry& taken) {
  LockGuard guard(mapping_lock);
  for (; stuck != 0 && from < table->capacity; ++from) {
    const Entry& entry = table->entries[from];
    if (entry.block == 0 || entry.going != kStuck) continue;
    taken = entry;
    --stuck;
    stuck_bytes -= entry.bytes;
    erase(entry);
    return true;
  }
  return false;
}

}  // namespace

usize unmap_stuck() {
  if (os::keeps_pages()) return 0;
  usize given = 0;
  Entry entry;
  for (usize from = 0; take_stuck(from, entry);) {
    if (!unmap_removed(entry, !os::purge(reinterpret_cast<void*>(entry.start), entry.bytes))) break;
    given += entry.bytes;
  }
  return given;
}

bool unmap_block(void* block) {
  if (block == nullptr) return false;
  Entry removed;
  {
    LockGuard guard(mapping_lock);
    Entry* entry = find(address_of(block));
    if (entry == nullptr) return false;
    if (os::keeps_pages()) return wait_stuck(*entry), true;
    begin_going(*entry, kUnmapping);
    removed = *entry;
  }
  // Its memory goes while the entry is there: the child of a fork then knows that it is still mapped, and unmaps it.
  void* start = reinterpret_cast<void*>(removed.start);
  const bool is_empty = !os::purge(start, removed.bytes);
  {
    LockGuard guard(mapping_lock);
    erase(*find(removed.block, removed.going));
  }
  unmap_removed(removed, is_empty);
  return true;
}

void* remap_block(void* block, usize bytes) {
  const usize wanted = round_up(bytes, os::page_bytes());
  if (bytes > PTRDIFF_MAX - os::page_bytes() || block == nullptr || os::keeps_pages()) return nullptr;
  Entry entry;
  usize moves;
  {
    LockGuard guard(mapping_lock);
    Entry* found = find(address_of(block));
    if (found == nullptr || found->start != found->block) return nullptr;
    if (wanted > found->bytes && !charge_ahead(wanted - found->bytes)) return nullptr;
    entry = *found;
    begin_going(*found, kMoving);
    moves = found->going;
    if (wanted < entry.bytes) {  // the end may be somebody else's before this is over
      found->bytes = wanted;
      live_bytes -= entry.bytes - wanted;
      note_out_of_force(entry.bytes - wanted);
    }
  }
  void* const moved = os::remap_block(block, entry.bytes, wanted);
  const Entry now = moved == nullptr ? entry : Entry{address_of(moved), address_of(moved), wanted, entry.request};
  LockGuard guard(mapping_lock);
  erase(*find(entry.block, moves));
  put(now);
  if (moved == nullptr) {
    if (wanted > entry.bytes) uncharge(wanted - entry.bytes);
  } else if (wanted < entry.bytes) {
    uncharge(entry.bytes - wanted);
  } else {
    confirm_charge();
  }
  return moved;
}

MappingCounts mapping_counts() {
  LockGuard guard(mapping_lock);
  const usize own_bytes = mapped_table_bytes() + stuck_bytes + lost_bytes;
  return {live - stuck, live_bytes - stuck_bytes, own_bytes, most_live, most_live_bytes};
}

void for_each_mapping(void (*visit)(void* context, void* block, usize bytes), void* context) {
  LockGuard guard(mapping_lock);
  for (usize i = 0; i < table->capacity; ++i) {
    const Entry& entry = table->entries[i];
    if (entry.block == 0 || entry.going != 0) continue;
    visit(context, reinterpret_cast<void*>(entry.block), entry.usable_bytes());
  }
}

void for_each_mapped_range(void (*visit)(void* context, usize start, usize end), void* context) {
  LockGuard guard(mapping_lock);
  for (usize i = 0; i < table->capacity; ++i) {
    const Entry& entry = table->entries[i];
    if (entry.block != 0) visit(context, entry.start, entry.start + entry.bytes);
  }
}

MappingTable mapping_table() {
  LockGuard guard(mapping_lock);
  return {address_of(table->entries), address_of(table->entries + table->capacity)};
}

FREESTONE_SLOW FREESTONE_NO_ANALYSIS void repair_mappings_in_child(Cut cut) {  // the lock is seized or not
  const bool changed = mapping_lock.seize_in_child(cut), in_child = cut == Cut::fork;
  if (changed) count_anew();
  if (!changed && (!in_child || going == 0 || !mapping_lock.try_lock())) return;
  for (usize i = 0; in_child && i < table->capacity; ++i) {
    Entry& entry = table->entries[i];
    if (entry.block != 0 && entry.going != 0 && entry.going != kStuck && !entry.is_going_by(own_thread()))
      settle_going(entry);
  }
  count_anew();
  mapping_lock.unlock();
}

FREESTONE_NO_ANALYSIS usize charged_mapping_bytes() { return live_bytes + mapped_table_bytes() + lost_bytes; }

constinit Places mapping_places = {&live, &live_bytes, &stuck, &stuck_bytes, &lost_bytes, &table, first_entries,
                                     first_entries + 1};

}  // namespace freestone
