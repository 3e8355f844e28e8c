#include "recorder/large.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

enum { kEntries = 8192, kProbes = 16, kChunkPages = 2048 };
#define PAGE_BYTES ((uintptr_t)4096)
#define MOST_COUNTED 200u

__attribute__((visibility("hidden"))) uint8_t fsr_large_counts[256];

static struct {
  uintptr_t address; /* 0: free */
  uint64_t size;
} entries[kEntries];

static unsigned home(uintptr_t address) { return (unsigned)((address >> 4) * 0x9e3779b1u >> 16) % kEntries; }

__attribute__((visibility("hidden"))) void fsr_large_add(uintptr_t address, uint64_t size) {
  uint8_t* count = &fsr_large_counts[fsr_large_bucket(address)];
  if (__atomic_load_n(count, __ATOMIC_RELAXED) >= MOST_COUNTED) return; /* a threshold; it must not wrap */
  for (unsigned i = 0; i < kProbes; i++) {
    const unsigned at = (home(address) + i) % kEntries;
    uintptr_t expected = 0;
    if (!__atomic_compare_exchange_n(&entries[at].address, &expected, address, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
      continue;
    entries[at].size = size;                        /* the thread that frees the block reads it after this call */
    __atomic_fetch_add(count, 1, __ATOMIC_RELAXED); /* as above */
    return;
  }
}

static uint64_t resident_pages(uintptr_t address, uint64_t size) {
  unsigned char seen[kChunkPages];
  const int error = errno;
  uint64_t pages = 0;
  for (uintptr_t at = address & ~(PAGE_BYTES - 1), end = address + size; at < end; at += kChunkPages * PAGE_BYTES) {
    const uintptr_t rest = (end - at + PAGE_BYTES - 1) / PAGE_BYTES;
    const size_t count = rest < kChunkPages ? (size_t)rest : kChunkPages;
    if (mincore((void*)at, count * PAGE_BYTES, seen) != 0) break;
    for (size_t i = 0; i < count; i++) pages += seen[i] & 1;
  }
  errno = error;
  return pages;
}

__attribute__((visibility("hidden"))) bool fsr_large_remove(uintptr_t address, uint64_t* pages) {
  for (unsigned i = 0; i < kProbes; i++) {
    const unsigned at = (home(address) + i) % kEntries;
    if (__atomic_load_n(&entries[at].address, __ATOMIC_RELAXED) != address) continue; /* no other thread frees it */
    *pages = resident_pages(address, entries[at].size);
    __atomic_fetch_sub(&fsr_large_counts[fsr_large_bucket(address)], 1, __ATOMIC_RELAXED); /* a hint for others */
    __atomic_store_n(&entries[at].address, 0, __ATOMIC_RELEASE); /* now others may take the entry */
    return true;
  }
  return false;
}
