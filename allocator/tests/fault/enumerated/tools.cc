// The attack suite: states and means.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <unistd.h>

#include "attack.h"

namespace enumerated {

const char* name_of(Means means) {
  static const char* const names[] = {"store",  "vector", "memcpy",   "memmove", "memset",
                                      "strcpy", "strcat", "snprintf", "read"};
  return names[static_cast<int>(means)];
}
const char* name_of(State state) {
  static const char* const names[] = {"alone",  "neighbours", "lowest",  "highest", "holes",
                                      "reused", "grown",      "aligned", "zeroed",  "new"};
  return names[static_cast<int>(state)];
}
const char* name_of(Moment moment) {
  static const char* const names[] = {"at once", "free", "realloc",    "reuse", "flush",
                                      "trim",    "exit", "thread end", "child"};
  return names[static_cast<int>(moment)];
}

std::uint64_t Random::next() {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

namespace {

constexpr std::size_t kAround = 96;
char* around[kAround];

std::size_t how_many(std::size_t bytes) {
  const std::size_t fit = (std::size_t{8} << 20) / (bytes + 1);
  return fit < 4 ? 4 : fit > kAround ? kAround : fit;
}

char* filled(void* block, std::size_t bytes) {
  if (block == nullptr) _exit(kNotApplicable);
  std::memset(opaque(static_cast<char*>(block)), 'p', bytes);
  return opaque(static_cast<char*>(block));
}

char* among(const Attack& attack) {
  Random random{attack.seed};
  const std::size_t count = how_many(attack.bytes);
  for (std::size_t i = 0; i < count; ++i) around[i] = filled(std::malloc(attack.bytes), attack.bytes);
  std::size_t chosen = random.below(count);
  if (attack.state == State::lowest || attack.state == State::highest) {
    for (std::size_t i = 0; i < count; ++i)
      if ((around[i] < around[chosen]) == (attack.state == State::lowest)) chosen = i;
  }
  if (attack.state == State::holes) {
    for (std::size_t i = 0; i < count; ++i)
      if (i != chosen && random.below(2) == 0) std::free(around[i]);
  }
  return around[chosen];
}

}  // namespace

char* take(const Attack& attack) {
  const std::size_t bytes = attack.bytes;
  switch (attack.state) {
    case State::neighbours:
    case State::lowest:
    case State::highest:
    case State::holes: return among(attack);
    case State::reused:
      for (unsigned i = 0; i < kReuses; ++i) std::free(filled(std::malloc(bytes), bytes < 4096 ? bytes : 4096));
      return filled(std::malloc(bytes), bytes);
    case State::grown: return filled(std::realloc(filled(std::malloc(bytes / 2 + 1), bytes / 2 + 1), bytes), bytes);
    case State::aligned: return filled(std::aligned_alloc(64, bytes), bytes);
    case State::zeroed: return filled(std::calloc(1, bytes), bytes);
    case State::by_new: return filled(::operator new(bytes), bytes);
    default: return filled(std::malloc(bytes), bytes);
  }
}

void give(const Attack& attack, char* block) {
  if (attack.state == State::by_new) return ::operator delete(opaque(block));
  std::free(opaque(block));
}

std::size_t least_of(Means means) {
  switch (means) {
    case Means::vector_store: return 16;
    case Means::strcpy_call:
    case Means::strcat_call:
    case Means::snprintf_call: return 2;
    default: return 1;
  }
}

void write_by(Means means, char* from, std::size_t length) {
  static char source[(1 << 20) + 1];
  std::memset(source, 'w', length);
  switch (means) {
    case Means::store:
    case Means::count:
      for (std::size_t i = 0; i < length; ++i)
        static_cast<volatile char*>(from)[i] =
            static_cast<char>(opaque(from)[i] ^ 0x35);  // another byte, and never zero where zero was
      break;
    case Means::vector_store: {
      using Vector = char __attribute__((vector_size(16), aligned(1)));
      const Vector value = Vector{} + 'w';
      for (std::size_t i = 0; i + 16 <= length; i += 16) *reinterpret_cast<volatile Vector*>(from + i) = value;
      *reinterpret_cast<volatile Vector*>(from + length - 16) = value;
      break;
    }
    case Means::memcpy_call: ::memcpy(opaque(from), source, length); break;
    case Means::memmove_call: ::memmove(opaque(from), source, length); break;
    case Means::memset_call: ::memset(opaque(from), 'w', length); break;
    case Means::strcpy_call:
    case Means::strcat_call:
      source[length - 1] = '\0';
      if (means == Means::strcat_call) *static_cast<volatile char*>(from) = '\0';
      means == Means::strcpy_call ? ::strcpy(opaque(from), source) : ::strcat(opaque(from), source);
      break;
    case Means::snprintf_call:
      source[length - 1] = '\0';
      ::snprintf(opaque(from), length, "%s", source);
      break;
    case Means::read_call: {
      int ends[2];
      if (::pipe(ends) != 0) _exit(kNotApplicable);
      for (std::size_t done = 0; done < length;) {
        const std::size_t piece = length - done < 65536 ? length - done : 65536;
        if (::write(ends[1], source, piece) < 0 || ::read(ends[0], opaque(from) + done, piece) < 0)
          _exit(kNotApplicable);
        done += piece;
      }
      break;
    }
  }
}

}  // namespace enumerated
