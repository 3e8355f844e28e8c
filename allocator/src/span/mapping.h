// Room 6, span: blocks with a mapping of their own: above the option map_bytes, or above a mebibyte and growing, or
// when the window has no room.
//
// A table of live mappings (open addressing, linear probing) tells them from foreign addresses. Any thread; one lock,
// not held across mmap or munmap of user memory.
#pragma once

#include "base/units.h"
#include "platform/mutex.h"

namespace freestone {

// A zeroed block of `bytes` at a multiple of `alignment` (a power of two). Null on refusal.
void* map_block(usize bytes, usize alignment);
// The usable bytes of a mapped block; 0 when the address is not the start of one.
usize mapped_block_bytes(const void* block);
// What the hardened build keeps of what was asked for (hardened/large.h); 0: nothing, or no mapped block.
u64 mapped_request(const void* block);
void set_mapped_request(const void* block, u64 request);
// False when the address is not the start of a mapped block.
bool unmap_block(void* block);
// Tries again to unmap freed blocks that the kernel or a thread kept. Returns what went back.
usize unmap_stuck();
// Changes the size, moving the pages rather than copying when the place is too small. Null on refusal; the block then
// stays as it was.
void* remap_block(void* block, usize bytes);

struct MappingCounts {
  usize blocks;
  usize bytes;
  usize table_bytes;  // mapped for the table itself
  usize most_blocks;  // at one time so far
  usize most_bytes;
};
MappingCounts mapping_counts();
// Calls visit(context, block, bytes) for each mapped block, under the lock.
void for_each_mapping(void (*visit)(void* context, void* block, usize bytes), void* context);
// Calls visit(context, start, end) for all that is mapped for blocks, also for freed ones that the kernel kept.
void for_each_mapped_range(void (*visit)(void* context, usize start, usize end), void* context);

// Where the table lies: it holds the addresses of all mapped blocks, which a search for pointers must not take for
// uses.
struct MappingTable {
  usize start;
  usize end;
};
MappingTable mapping_table();

// In the child of a fork, by the thread that settles it: if another thread was inside, counts anew; finishes what it
// was unmapping, and leaves where it is what it was moving.
void repair_mappings_in_child(Cut cut = Cut::fork);
// ACCOUNT-1, of the mappings and their table; then.
usize charged_mapping_bytes();
extern Mutex mapping_lock;

}  // namespace freestone
