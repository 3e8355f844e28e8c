// Room 1, base: see chunks.h. Vectors of 32 bytes (AVX2), else of 16, check and clear long memory. Its only state is
// the choice between them.

#include "base/chunks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#define FREESTONE_WIDE __attribute__((target("avx2"), noinline))
#endif

namespace freestone {

namespace {

// A stretch is eight narrow vectors or four wide ones; of long memory twice as many.
constexpr usize kStretch = 128;
static_assert(kFewBytes >= 2 * kStretch);
constexpr usize kLongBytes = 16 * kStretch;

using Narrow = u64 __attribute__((vector_size(16)));
using Wide = u64 __attribute__((vector_size(32)));

// By address, since a function without AVX2 must not pass vectors of 32 bytes; at any address.
template <typename Vector>
FREESTONE_INLINE void gather(const char* at, Vector& any) {
  for (usize k = 0; k < kStretch; k += 2 * sizeof(Vector)) {
    Vector first, second;
    std::memcpy(&first, at + k, sizeof first);
    std::memcpy(&second, at + k + sizeof first, sizeof second);
    any |= first | second;
  }
}
template <typename Vector>
FREESTONE_INLINE void clear_stretch(char* at) {
  constexpr Vector kZero = {};
  for (usize k = 0; k < kStretch; k += sizeof kZero) std::memcpy(at + k, &kZero, sizeof kZero);
}
template <typename Vector>
FREESTONE_INLINE bool has_bits(const Vector& any) {
#if defined(__x86_64__) && !defined(__clang__)  // clang takes no wide operand where AVX2 is not the whole file's
  if constexpr (sizeof any == 32) {
    bool none;
    asm("vptest %1, %1" : "=@ccz"(none) : "x"(any));
    return !none;
  }
#endif
  u64 bits = 0;
  for (usize k = 0; k < sizeof any / sizeof(u64); ++k) bits |= any[k];
  return bits != 0;
}

// The stretches at both ends, which may overlap others, and those between them at multiples of 32.
template <typename Vector>
FREESTONE_INLINE bool is_clear_by(const char* at, usize bytes) {
  const char* const last = at + bytes - kStretch;
  Vector any = {};
  gather<Vector>(at, any);
  gather<Vector>(last, any);
  at += kStretch - address_of(at) % 32;
  for (const char* const twice = bytes >= kLongBytes ? last - kStretch : at; at < twice; at += 2 * kStretch) {
    gather<Vector>(at, any);
    gather<Vector>(at + kStretch, any);
  }
  for (; at < last; at += kStretch) gather<Vector>(at, any);
  return !has_bits<Vector>(any);
}
template <typename Vector>
FREESTONE_INLINE void clear_by(char* at, usize bytes) {
  char* const last = at + bytes - kStretch;
  clear_stretch<Vector>(at);
  clear_stretch<Vector>(last);
  at += kStretch - address_of(at) % 32;
  for (char* const twice = bytes >= kLongBytes ? last - kStretch : at; at < twice; at += 2 * kStretch) {
    Vector any = {};
    gather<Vector>(at, any);
    gather<Vector>(at + kStretch, any);
    if (!has_bits<Vector>(any)) continue;
    clear_stretch<Vector>(at);
    clear_stretch<Vector>(at + kStretch);
  }
  for (; at < last; at += kStretch) {
    Vector any = {};
    gather<Vector>(at, any);
    if (has_bits<Vector>(any)) clear_stretch<Vector>(at);
  }
}

#if defined(__x86_64__)
bool is_wide;

// Not __builtin_cpu_supports: it needs two names of libgcc.a, which the object and the static form would pass on.
// Leaf 7, which every processor with AVX has, names AVX2; that the system saves the registers, a control register says.
bool has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __cpuid(1, a, b, c, d);
  if ((c & bit_OSXSAVE) == 0 || (c & bit_AVX) == 0) return false;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  constexpr unsigned kVectorState = 6;
  if ((a & kVectorState) != kVectorState) return false;
  __cpuid_count(7, 0, a, b, c, d);
  return (b & bit_AVX2) != 0;
}

FREESTONE_WIDE bool is_clear_wide(const char* at, usize bytes) { return is_clear_by<Wide>(at, bytes); }
FREESTONE_WIDE void clear_wide(char* at, usize bytes) { clear_by<Wide>(at, bytes); }
#endif

}  // namespace

void choose_instructions() {
#if defined(__x86_64__)
  is_wide = has_avx2();
#endif
}

bool is_clear_long(const char* at, usize bytes) {
#if defined(__x86_64__)
  if (FREESTONE_LIKELY(is_wide)) return is_clear_wide(at, bytes);
#endif
  return is_clear_by<Narrow>(at, bytes);
}

void clear_long(char* at, usize bytes) {
#if defined(__x86_64__)
  if (FREESTONE_LIKELY(is_wide)) return clear_wide(at, bytes);
#endif
  clear_by<Narrow>(at, bytes);
}

}  // namespace freestone
