// Room 6, span: see mapping.h.

#include "span/mapping.h"

#include <cstdint>

#include "base/bits.h"
#include "base/check.h"
#include "platform/os.h"
#include "region/account.h"
#include "region/region.h"
#include "region/traffic.h"

namespace freestone {

constinit Mutex mapping_lock{LockName::mapping};

namespace {

// Where spans have guards, a mapping ends in a page that faults: the kernel puts the next one right behind it.
usize guard_bytes() { return guards_spans() ? os::page_bytes() : 0; }

struct Entry {
  usize block = 0;  // what the program holds; 0: empty
  usize start = 0;  // of the mapping
  usize bytes = 0;  // of the mapping, from start, its guard included
  u64 request = 0;  // see mapped_request

  usize usable_bytes() const { return start + bytes - block - guard_bytes(); }
  void* guard() const { return reinterpret_cast<void*>(start + bytes - guard_bytes()); }
};

// Where the kernel refuses, the page stays accessible.
void close_end(const Entry& entry) {
  if (guards_spans()) os::guard_install(entry.guard(), guard_bytes());
}
bool open_end(const Entry& entry) { return !guards_spans() || !os::guard_remove(entry.guard(), guard_bytes()); }

// MAPPING-1  At least one entry is empty, also when all that are being moved are back: so every search ends.
// MAPPING-2  No entry is empty between an entry and the place that its address hashes to: so every search finds.
//
// FORK-3: at every instruction an entry with a block is complete, and the table in force holds all of them; while
// one is being removed, another may be there twice or out of place.
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
// Entries that are out of the table while the kernel moves their pages.
usize moving FREESTONE_GUARDED_BY(mapping_lock) = 0;
// Charged for, like the table once it is mapped.
usize live_bytes FREESTONE_GUARDED_BY(mapping_lock) = 0;
usize most_live FREESTONE_GUARDED_BY(mapping_lock) = 0;
usize most_live_bytes FREESTONE_GUARDED_BY(mapping_lock) = 0;

Entry* find(usize block) FREESTONE_REQUIRES(mapping_lock) {
  for (usize i = table->home_of(block);; i = table->next(i)) {
    Entry& entry = table->entries[i];
    if (entry.block == block) return &entry;
    if (entry.block == 0) return nullptr;
  }
}

void write(Entry& place, const Entry& entry) {
  place.block = 0;
  order_stores();
  place.start = entry.start;
  place.bytes = entry.bytes;
  place.request = entry.request;
  order_stores();
  place.block = entry.block;
}

void put(const Entry& entry) FREESTONE_REQUIRES(mapping_lock) {
  write(table->place_for(entry.block), entry);
  ++live;
  live_bytes += entry.bytes;
  most_live = max_of(most_live, live);
  most_live_bytes = max_of(most_live_bytes, live_bytes);
  FREESTONE_CHECK("MAPPING-1", live + moving < table->capacity);
  FREESTONE_CHECK("MAPPING-2", find(entry.block) != nullptr);
}

// Of the entries from there to the next empty one.
[[maybe_unused]] bool all_are_found(usize i) FREESTONE_REQUIRES(mapping_lock) {
  for (; table->entries[i].block != 0; i = table->next(i)) {
    if (find(table->entries[i].block) != &table->entries[i]) return false;
  }
  return true;
}

// Entries behind it that would no longer be found move up into the gap.
void erase(const Entry& entry) FREESTONE_REQUIRES(mapping_lock) {
  --live;
  live_bytes -= entry.bytes;
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

// Puts every entry in its place once, and counts them. Each pass brings entries nearer to their homes, so it ends.
void count_anew() FREESTONE_REQUIRES(mapping_lock) {
  for (bool changed = true; changed;) {
    changed = false;
    for (usize i = 0; i < table->capacity; ++i) {
      const Entry entry = table->entries[i];
      if (entry.block == 0 || find(entry.block) == &table->entries[i]) continue;
      table->entries[i].block = 0;
      if (find(entry.block) == nullptr) write(table->place_for(entry.block), entry);
      changed = true;
    }
  }
  live = live_bytes = 0;
  for (usize i = 0; i < table->capacity; ++i) {
    if (table->entries[i].block == 0) continue;
    ++live;
    live_bytes += table->entries[i].bytes;
  }
}

void* map_charged(usize bytes) {
  if (!charge_ahead(bytes)) return nullptr;
  void* start = os::map(bytes);
  if (start == nullptr) {
    uncharge(bytes);
    return nullptr;
  }
  confirm_charge();
  return start;
}

usize table_bytes(usize entries) { return round_up(entries * sizeof(Entry), os::page_bytes()); }

// For one entry more. Keeps at least half of the table empty; false when MAPPING-1 asks for a larger one and the kernel
// refuses.
bool make_room() FREESTONE_REQUIRES(mapping_lock) {
  const Table old = *table;
  if (live + moving < old.capacity / 2) return true;
  auto* fresh = static_cast<Entry*>(map_charged(table_bytes(old.capacity * 2)));
  if (fresh == nullptr) return live + moving + 1 < old.capacity;
  Table& next = tables[table == &tables[0] ? 1 : 0];
  next = {fresh, old.capacity * 2};
  for (usize i = 0; i < old.capacity; ++i) {
    if (const Entry& entry = old.entries[i]; entry.block != 0) next.place_for(entry.block) = entry;
  }
  order_stores();
  table = &next;
  if (old.entries != first_entries && !os::unmap(old.entries, table_bytes(old.capacity)))
    uncharge(table_bytes(old.capacity));
  return true;
}

}  // namespace

void* map_block(usize bytes, usize alignment) {
  const usize page = os::page_bytes();
  const usize wanted = round_up(bytes, page) + guard_bytes();
  const usize slack = alignment > page ? alignment : 0;
  if (bytes > PTRDIFF_MAX || slack > PTRDIFF_MAX - wanted) return nullptr;
  auto* start = static_cast<char*>(map_charged(wanted + slack));
  if (start == nullptr) return nullptr;
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
  close_end(entry);
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
  if (block == nullptr) return 0;
  LockGuard guard(mapping_lock);
  const Entry* entry = find(address_of(block));
  return entry == nullptr ? 0 : entry->usable_bytes();
}

u64 mapped_request(const void* block) {
  if (block == nullptr) return 0;
  LockGuard guard(mapping_lock);
  const Entry* entry = find(address_of(block));
  return entry == nullptr ? 0 : entry->request;
}

void set_mapped_request(const void* block, u64 request) {
  if (block == nullptr) return;
  LockGuard guard(mapping_lock);
  if (Entry* entry = find(address_of(block)); entry != nullptr) entry->request = request;
}

bool unmap_block(void* block) {
  if (block == nullptr) return false;
  Entry removed;
  {
    LockGuard guard(mapping_lock);
    Entry* entry = find(address_of(block));
    if (entry == nullptr) return false;
    removed = *entry;
    erase(*entry);
  }
  void* start = reinterpret_cast<void*>(removed.start);
  // At the mapping limit munmap can fail; then the memory at least goes back, unless it is locked.
  if (os::unmap(start, removed.bytes) && os::purge(start, removed.bytes)) return true;
  note_back(WentBack::mapping, removed.bytes);
  uncharge(removed.bytes);
  return true;
}

void* remap_block(void* block, usize bytes) {
  const usize wanted = round_up(bytes, os::page_bytes()) + guard_bytes();
  if (bytes > PTRDIFF_MAX - os::page_bytes() || block == nullptr) return nullptr;
  // The entry leaves the table while the kernel moves the pages: the old address may be handed out again at once.
  Entry entry;
  {
    LockGuard guard(mapping_lock);
    Entry* found = find(address_of(block));
    if (found == nullptr || found->start != found->block) return nullptr;
    if (wanted > found->bytes && !charge_ahead(wanted - found->bytes)) return nullptr;
    entry = *found;
    erase(*found);
    ++moving;
  }
  void* const moved = open_end(entry) ? os::remap(block, entry.bytes, wanted) : nullptr;
  const Entry now = moved == nullptr ? entry : Entry{address_of(moved), address_of(moved), wanted, entry.request};
  close_end(now);
  LockGuard guard(mapping_lock);
  --moving;  // the place in the table that the entry left is still to be had: MAPPING-1
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
  const usize of_table = table->entries == first_entries ? 0 : table_bytes(table->capacity);
  return {live, live_bytes, of_table, most_live, most_live_bytes};
}

void for_each_mapping(void (*visit)(void* context, void* block, usize bytes), void* context) {
  LockGuard guard(mapping_lock);
  for (usize i = 0; i < table->capacity; ++i) {
    const Entry& entry = table->entries[i];
    if (entry.block != 0) visit(context, reinterpret_cast<void*>(entry.block), entry.usable_bytes());
  }
}

MappingTable mapping_table() {
  LockGuard guard(mapping_lock);
  return {address_of(table->entries), address_of(table->entries + table->capacity)};
}

void repair_mappings_in_child() {
  if (mapping_lock.reset_in_child()) count_anew();
}

}  // namespace freestone
