// Room 3, config: state that steers the library and does not change after the start: secrets, addresses of code, how
// memory is made to fault. In the hardened build it lies with the options on a page of its own (options.h), read-only
// after the start (platform/seal.h): one write of an attacker can neither switch a check off nor redirect a call.
#pragma once

#include "base/atomic.h"
#include "base/units.h"
#include "policy/policy.h"

namespace freestone {

inline constexpr bool kSeals = kChecksEveryCall;
#if defined(__x86_64__)
inline constexpr usize kSealedBytes = 4 * kKiB;
#else
inline constexpr usize kSealedBytes = 64 * kKiB;  // the largest page
#endif

// Of the hardened build. Drawn before the first block is handed out.
inline constexpr usize kGapTableBytes = 56;
struct alignas(64) BlockSecrets {
  u64 key;         // of the trailers
  u64 multiplier;  // odd
  u64 free_key;    // of the words of free blocks (slab/state_word.h)
  u64 free_multiplier;
  u8 canary;                    // not zero, not text, not all ones
  u8 gap[kGapTableBytes];       // zeros and canaries: hardened/block_words.h
  u8 gap_mask[kGapTableBytes];  // beside it, so that one register leads to both
};

// Addresses of code outside the library. Found by a constructor or at start; null where there is none.
struct CodeAddresses {
  const void* copy;  // memcpy, memmove and memset
  const void* move;
  const void* set;
  const void* clock;
  const void* dlopen;
  const void* dlmopen;
  const void* late[8];   // platform/late_libc.cc
  const void* fill[13];  // abi/libc_buffers.cc
};
// What freestone_on_pages_leaving gave.
struct PagesWatcher {
  void (*tell)(void* context, void* address, usize bytes);
  void* context;
};
// What freestone_set_callbacks gave (abi/heap_api.cc), and what of it is in force.
struct GivenCallbacks {
  alignas(16) char room[192];
  Atomic<const void*> out_of_memory;  // front/reclaim.h
  Atomic<const void*> corruption;
  PagesWatcher watchers[2];  // one is in force, so that who reads it reads both
  Atomic<const PagesWatcher*> watcher;  // release and acquire: what it points to; null: none
};

}  // namespace freestone
