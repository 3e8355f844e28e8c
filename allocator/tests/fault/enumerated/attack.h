// The attack suite: what one attack is, and what the kinds use. Each runs in a child of its own;
// docs/HARDENING.md has the verdict.
//
// An attack is a kind of misuse, a means, a size, an offset, the state of the heap before it and the moment by which it
// must be seen. Its twin takes the same steps without the misuse and must come to its end. The program knows no
// allocator: one is preloaded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace enumerated {

// What writes.
enum class Means {
  store,
  vector_store,
  memcpy_call,
  memmove_call,
  memset_call,
  strcpy_call,
  strcat_call,
  snprintf_call,
  read_call,
  count
};
// How the block came about, and what lies around it.
enum class State { alone, neighbours, lowest, highest, holes, reused, grown, aligned, zeroed, by_new, count };
// By when it must be seen.
enum class Moment {
  at_once,
  at_free,
  at_realloc,
  at_reuse,
  at_flush,
  at_trim,
  at_exit,
  at_thread_end,
  in_child,
  count
};

const char* name_of(Means means);
const char* name_of(State state);
const char* name_of(Moment moment);

// How often a block of State::reused was allocated and freed before.
constexpr unsigned kReuses = 300;

// How many blocks are freed for an allocator to empty its caches and what else makes blocks wait.
constexpr std::size_t kFlushBlocksMax = 16384;
extern std::size_t flush_blocks;

struct Attack {
  std::size_t bytes;
  long offset;
  Means means;
  State state;
  Moment moment;
  bool twin;
  std::uint64_t seed;
};

// What a child tells its parent by its exit status.
constexpr int kNothingSeen = 0;
constexpr int kHeld = 3;            // no effect: for kinds that ask for no report
constexpr int kNotApplicable = 77;

// How offsets are drawn for a kind.
enum class Offsets { none, inside, past, page, strays, just_past, before, just_before };

struct Kind {
  const char* name;
  void (*run)(const Attack&);
  Offsets offsets;
  unsigned means;    // a bit per Means; 0: the kind has none
  unsigned states;   // a bit per State
  unsigned moments;  // a bit per Moment
  double promised = 1;  // the share that the hardened build promises to see or to hold
};

extern const Kind kKinds[];
extern const std::size_t kKindCount;
constexpr std::size_t kKindsMax = 64;

// A deterministic generator (splitmix64).
struct Random {
  std::uint64_t state;
  std::uint64_t next();
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
};

// From here on the child's death is a detection.
void misuse_begins();

template <class T>
T* opaque(T* pointer) {
  asm volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}
inline char* opaque_at(const char* block, long offset) {
  return opaque(reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(block) + static_cast<std::uintptr_t>(offset)));
}

// A live block in the attack's state, filled with 'p'.
char* take(const Attack& attack);
void give(const Attack& attack, char* block);
// Writes [from, from + length): no zero byte but the one that ends a string, which counts.
void write_by(Means means, char* from, std::size_t length);
// Whether the means can write there: strings need a byte and more, vectors sixteen.
std::size_t least_of(Means means);

}  // namespace enumerated
