// Room 1, base: memory in pieces of 16 bytes, by instructions (SSE2 or NEON) rather than by a call. Addresses and sizes
// are multiples of 16.
#pragma once

#include <cstring>

#include "base/compiler.h"
#include "base/units.h"

extern "C" FREESTONE_HIDDEN void* freestone_plain_memset(void* memory, int value, freestone::usize bytes);

namespace freestone {

using Chunk = u64 __attribute__((vector_size(16), may_alias));
inline constexpr usize kChunkBytes = sizeof(Chunk);

FREESTONE_INLINE const Chunk& chunk_at(const char* at) { return *reinterpret_cast<const Chunk*>(at); }
FREESTONE_INLINE void clear_chunk(char* at) { *reinterpret_cast<Chunk*>(at) = Chunk{}; }
FREESTONE_INLINE u64 bits_of(Chunk chunk) { return chunk[0] | chunk[1]; }
FREESTONE_INLINE bool is_zero(Chunk chunk) { return bits_of(chunk) == 0; }

// At any address.
FREESTONE_INLINE Chunk load_chunk(const void* at) {
  Chunk chunk;
  std::memcpy(&chunk, at, sizeof chunk);
  return chunk;
}
FREESTONE_INLINE void store_chunk(void* at, Chunk chunk) { std::memcpy(at, &chunk, sizeof chunk); }

FREESTONE_INLINE u64 load_word(const void* at) {
  u64 word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
FREESTONE_INLINE void store_word(void* at, u64 word) { std::memcpy(at, &word, sizeof word); }

// Below this, the loops of clear.cc cost more than these.
inline constexpr usize kFewBytes = 256;
FREESTONE_HIDDEN bool is_clear_long(const char* at, usize bytes);

// Whether every byte is zero. It reads to the end, because the answer is nearly always yes.
inline bool is_clear(const char* at, usize bytes) {
  if (bytes >= kFewBytes) return is_clear_long(at, bytes);
  const char* const end = at + bytes;
  Chunk any = {};
  for (; end - at >= static_cast<std::ptrdiff_t>(4 * kChunkBytes); at += 4 * kChunkBytes) {
    any |= chunk_at(at) | chunk_at(at + kChunkBytes) | chunk_at(at + 2 * kChunkBytes) | chunk_at(at + 3 * kChunkBytes);
  }
  for (; at < end; at += kChunkBytes) any |= chunk_at(at);
  return is_zero(any);
}
FREESTONE_HIDDEN void clear_long(char* at, usize bytes);
// Clears. From kFewBytes on it writes only to what is not zero yet, by stretches of 128 or 256 bytes: reading costs
// half, and memory that the program never touched stays the kernel's.
inline void clear(char* at, usize bytes) {
  bytes < kFewBytes ? static_cast<void>(freestone_plain_memset(at, 0, bytes)) : clear_long(at, bytes);
}
// Once, before the first of these calls: chooses the widest instructions that the processor has.
FREESTONE_HIDDEN void choose_instructions();

// Of memory that is not clear.
inline usize first_not_zero(const char* at, usize bytes) {
  usize k = 0;
  while (k < bytes && at[k] == 0) ++k;
  return k;
}

}  // namespace freestone
