// Room 1, base: see plain_memory.h. Simple loops for short memory. The compiler must not turn them into calls of
// themselves.

#include "base/compiler.h"
#include "base/units.h"

using freestone::address_of;
using freestone::u8;
using freestone::usize;

namespace {

using Vector [[gnu::may_alias, gnu::aligned(1)]] = freestone::u64 __attribute__((vector_size(16)));

void copy_up(u8* to, const u8* from, usize bytes) {
  for (; bytes >= sizeof(Vector); bytes -= sizeof(Vector), to += sizeof(Vector), from += sizeof(Vector))
    *reinterpret_cast<Vector*>(to) = *reinterpret_cast<const Vector*>(from);
  for (; bytes > 0; --bytes) *to++ = *from++;
}
void copy_down(u8* to, const u8* from, usize bytes) {
  for (; bytes >= sizeof(Vector); bytes -= sizeof(Vector))
    *reinterpret_cast<Vector*>(to + bytes - sizeof(Vector)) =
        *reinterpret_cast<const Vector*>(from + bytes - sizeof(Vector));
  for (; bytes > 0; --bytes) to[bytes - 1] = from[bytes - 1];
}
int difference(char one, char other) { return static_cast<u8>(one) - static_cast<u8>(other); }

}  // namespace

extern "C" {

FREESTONE_HIDDEN void* freestone_plain_memcpy(void* to, const void* from, usize bytes) {
  copy_up(static_cast<u8*>(to), static_cast<const u8*>(from), bytes);
  return to;
}
FREESTONE_HIDDEN void* freestone_plain_memmove(void* to, const void* from, usize bytes) {
  const bool is_above = address_of(to) - address_of(from) < bytes;
  (is_above ? copy_down : copy_up)(static_cast<u8*>(to), static_cast<const u8*>(from), bytes);
  return to;
}
FREESTONE_HIDDEN void* freestone_plain_memset(void* memory, int value, usize bytes) {
  auto* to = static_cast<u8*>(memory);
  const freestone::u64 eight = static_cast<u8>(value) * freestone::u64{0x0101010101010101};
  const Vector sixteen = {eight, eight};
  for (; bytes >= sizeof sixteen; bytes -= sizeof sixteen, to += sizeof sixteen)
    *reinterpret_cast<Vector*>(to) = sixteen;
  for (; bytes > 0; --bytes) *to++ = static_cast<u8>(value);
  return memory;
}
FREESTONE_HIDDEN int freestone_plain_memcmp(const void* one, const void* other, usize bytes) {
  const auto* a = static_cast<const char*>(one);
  const auto* b = static_cast<const char*>(other);
  for (; bytes > 0; --bytes, ++a, ++b) {
    if (*a != *b) return difference(*a, *b);
  }
  return 0;
}
FREESTONE_HIDDEN const void* freestone_plain_memchr(const void* memory, int value, usize bytes) {
  for (const auto* at = static_cast<const char*>(memory); bytes > 0; --bytes, ++at) {
    if (*at == static_cast<char>(value)) return at;
  }
  return nullptr;
}
FREESTONE_HIDDEN usize freestone_plain_strlen(const char* text) {
  usize length = 0;
  while (text[length] != '\0') ++length;
  return length;
}
FREESTONE_HIDDEN int freestone_plain_strcmp(const char* one, const char* other) {
  for (; *one == *other && *one != '\0'; ++one, ++other) {
  }
  return difference(*one, *other);
}
FREESTONE_HIDDEN int freestone_plain_strncmp(const char* one, const char* other, usize bytes) {
  for (; bytes > 0; --bytes, ++one, ++other) {
    if (*one != *other || *one == '\0') return difference(*one, *other);
  }
  return 0;
}
FREESTONE_HIDDEN const char* freestone_plain_strchr(const char* text, int letter) {
  for (;; ++text) {
    if (*text == static_cast<char>(letter)) return text;
    if (*text == '\0') return nullptr;
  }
}
FREESTONE_HIDDEN const char* freestone_plain_strrchr(const char* text, int letter) {
  const char* last = nullptr;
  for (;; ++text) {
    if (*text == static_cast<char>(letter)) last = text;
    if (*text == '\0') return last;
  }
}
FREESTONE_HIDDEN const char* freestone_plain_strstr(const char* text, const char* wanted) {
  const usize length = freestone_plain_strlen(wanted);
  for (;; ++text) {
    if (freestone_plain_strncmp(text, wanted, length) == 0) return text;
    if (*text == '\0') return nullptr;
  }
}

}  // extern "C"
