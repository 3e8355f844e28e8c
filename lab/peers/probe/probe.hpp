// The probe's own vocabulary. One question per process: an allocator that aborts on one question still answers the
// others. Every answer is one flat JSON object on stdout.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string_view>

namespace probe {

// Writes one flat JSON object without allocating: the answers must not disturb what is asked.
class Answer {
 public:
  Answer() { std::fputs("{", stdout); }
  ~Answer() {
    std::fputs("}\n", stdout);
    std::fflush(stdout);
  }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  void add(const char* key, bool value) {
    begin(key);
    std::fputs(value ? "true" : "false", stdout);
  }
  void add(const char* key, std::int64_t value) {
    begin(key);
    std::printf("%lld", static_cast<long long>(value));
  }
  void add(const char* key, std::string_view text) {
    begin(key);
    std::putchar('"');
    for (const char c : text) {
      if (c == '"' || c == '\\') std::putchar('\\');
      if (static_cast<unsigned char>(c) < 0x20) {
        std::printf("\\u%04x", static_cast<unsigned>(c));
      } else {
        std::putchar(c);
      }
    }
    std::putchar('"');
  }

 private:
  void begin(const char* key) {
    std::printf("%s\"%s\":", first_ ? "" : ",", key);
    first_ = false;
  }
  bool first_ = true;
};

// Keeps a pointer alive in the compiler's eyes and hides where it came from.
template <typename T>
T* opaque(T* pointer) {
  __asm__ volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}

inline std::size_t opaque(std::size_t value) {
  __asm__ volatile("" : "+r"(value));
  return value;
}

struct Question {
  const char* name;
  void (*ask)(Answer&);
};

void ask_zero(Answer&);
void ask_alignment(Answer&);
void ask_pvalloc(Answer&);
void ask_malloc_huge(Answer&);
void ask_malloc_size_max(Answer&);
void ask_calloc_overflow(Answer&);
void ask_reallocarray_overflow(Answer&);
void ask_memalign_huge(Answer&);
void ask_aligned_alloc_huge(Answer&);
void ask_realloc_huge(Answer&);
void ask_posix_memalign_huge(Answer&);
void ask_free_errno(Answer&);
void ask_usable(Answer&);
void ask_content(Answer&);
void ask_operators(Answer&);

void ask_mallinfo(Answer&);
void ask_mallinfo2(Answer&);
void ask_malloc_stats(Answer&);
void ask_malloc_info(Answer&);
void ask_malloc_trim(Answer&);
void ask_mallopt(Answer&);

}  // namespace probe
