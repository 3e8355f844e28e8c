// Room 6, span: see mapping.h.

#include "span/mapping.h"

#include "base/bits.h"
#include "platform/os.h"
#include "region/account.h"

namespace freestone {

constinit Mutex mapping_lock;

namespace {

struct Entry {
  usize block = 0;  // what the program holds; 0: empty, 1: a removed entry that probing passes over
  usize start = 0;  // of the mapping
  usize bytes = 0;  // of the mapping, from start
};
constexpr usize kRemoved = 1;

// Guarded by mapping_lock.
Entry first_table[16];
Entry* table = first_table;
usize capacity = 16;
usize used = 0;  // entries that are not empty, removed ones included
usize live = 0;
usize live_bytes = 0;  // charged for, like the table once it is mapped

usize slot_of(usize block) { return mix_bits(block >> 12) & (capacity - 1); }

Entry* find(usize block) {
  for (usize i = slot_of(block);; i = (i + 1) & (capacity - 1)) {
    if (table[i].block == block) return &table[i];
    if (table[i].block == 0) return nullptr;
  }
}

void put(const Entry& entry) {
  usize i = slot_of(entry.block);
  while (table[i].block > kRemoved) i = (i + 1) & (capacity - 1);
  if (table[i].block == 0) ++used;
  table[i] = entry;
  ++live;
  live_bytes += entry.bytes;
}

void erase(Entry& entry) {
  --live;
  live_bytes -= entry.bytes;
  entry = {kRemoved, 0, 0};
}

void* map_charged(usize bytes) {
  if (!charge(bytes)) return nullptr;
  void* start = os::map(bytes);
  if (start == nullptr) uncharge(bytes);
  return start;
}

usize table_bytes(usize entries) { return round_up(entries * sizeof(Entry), os::page_bytes()); }

// Keeps at least half of the table empty. False when it must grow and the kernel refuses.
bool make_room() {
  if (used < capacity / 2) return true;
  const usize larger = live >= capacity / 4 ? capacity * 2 : capacity;
  auto* fresh = static_cast<Entry*>(map_charged(table_bytes(larger)));
  if (fresh == nullptr) return used < capacity - 1;
  Entry* old = table;
  const usize old_capacity = capacity;
  table = fresh;
  capacity = larger;
  used = live = live_bytes = 0;
  for (usize i = 0; i < old_capacity; ++i) {
    if (old[i].block > kRemoved) put(old[i]);
  }
  if (old != first_table && !os::unmap(old, table_bytes(old_capacity))) uncharge(table_bytes(old_capacity));
  return true;
}

}  // namespace

void* map_block(usize bytes, usize alignment) {
  const usize page = os::page_bytes();
  const usize wanted = round_up(bytes, page);
  const usize slack = alignment > page ? alignment : 0;
  if (wanted < bytes || wanted + slack < wanted) return nullptr;
  auto* start = static_cast<char*>(map_charged(wanted + slack));
  if (start == nullptr) return nullptr;
  Entry entry{round_up(address_of(start), max_of(alignment, page)), address_of(start), wanted + slack};
  if (const usize head = entry.block - entry.start; head > 0 && !os::unmap(start, head)) {
    entry.start += head;
    entry.bytes -= head;
  }
  if (const usize tail = entry.start + entry.bytes - entry.block - wanted; tail > 0 && !os::unmap(reinterpret_cast<void*>(entry.block + wanted), tail)) {
    entry.bytes -= tail;
  }
  uncharge(wanted + slack - entry.bytes);
  {
    LockGuard guard(mapping_lock);
    if (make_room()) {
      put(entry);
      return reinterpret_cast<void*>(entry.block);
    }
  }
  os::unmap(reinterpret_cast<void*>(entry.start), entry.bytes);
  uncharge(entry.bytes);
  return nullptr;
}

usize mapped_block_bytes(const void* block) {
  if (address_of(block) <= kRemoved) return 0;
  LockGuard guard(mapping_lock);
  const Entry* entry = find(address_of(block));
  return entry == nullptr ? 0 : entry->start + entry->bytes - entry->block;
}

bool unmap_block(void* block) {
  if (address_of(block) <= kRemoved) return false;
  Entry removed;
  {
    LockGuard guard(mapping_lock);
    Entry* entry = find(address_of(block));
    if (entry == nullptr) return false;
    removed = *entry;
    erase(*entry);
  }
  void* start = reinterpret_cast<void*>(removed.start);
  // At the mapping limit munmap can fail; the memory at least goes back.
  if (os::unmap(start, removed.bytes)) os::purge(start, removed.bytes);
  uncharge(removed.bytes);
  return true;
}

void* remap_block(void* block, usize bytes) {
  const usize wanted = round_up(bytes, os::page_bytes());
  if (wanted < bytes || address_of(block) <= kRemoved) return nullptr;
  // The entry leaves the table while the kernel moves the pages: the old address may be handed out again at once.
  Entry entry;
  {
    LockGuard guard(mapping_lock);
    Entry* found = find(address_of(block));
    if (found == nullptr || found->start != found->block) return nullptr;
    if (wanted > found->bytes && !charge(wanted - found->bytes)) return nullptr;
    entry = *found;
    erase(*found);
  }
  void* moved = os::remap(block, entry.bytes, wanted);
  LockGuard guard(mapping_lock);
  if (moved == nullptr) {
    if (wanted > entry.bytes) uncharge(wanted - entry.bytes);
    put(entry);
    return nullptr;
  }
  if (wanted < entry.bytes) uncharge(entry.bytes - wanted);
  put({address_of(moved), address_of(moved), wanted});
  return moved;
}

MappingCounts mapping_counts() {
  LockGuard guard(mapping_lock);
  return {live, live_bytes, table == first_table ? 0 : table_bytes(capacity)};
}

void for_each_mapping(void (*visit)(void* context, void* block, usize bytes), void* context) {
  LockGuard guard(mapping_lock);
  for (usize i = 0; i < capacity; ++i) {
    const Entry& entry = table[i];
    if (entry.block > kRemoved) visit(context, reinterpret_cast<void*>(entry.block), entry.start + entry.bytes - entry.block);
  }
}

MappingTable mapping_table() {
  LockGuard guard(mapping_lock);
  return {address_of(table), address_of(table + capacity)};
}

}  // namespace freestone
