// The rules of the entry points: zero sizes, alignment, errno, usable size, content, operators.
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "probe.hpp"

namespace probe {
namespace {

constexpr std::size_t kHuge = static_cast<std::size_t>(PTRDIFF_MAX) - 4096;
constexpr std::size_t kLargestAlignment = std::size_t{1} << 20;
constexpr int kMark = 4242;  // a value of errno that no function sets

bool aligned(const void* pointer, std::size_t alignment) {
  return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

std::int64_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return static_cast<std::int64_t>(address & (~address + 1));
}

// The least alignment over the sizes [first, last], several blocks of each, all live together.
std::int64_t least_alignment(std::size_t first, std::size_t last) {
  static void* blocks[8192];
  std::size_t count = 0;
  std::int64_t least = 1 << 20;
  for (std::size_t bytes = first; bytes <= last; ++bytes) {
    for (int i = 0; i < 4 && count < 8192; ++i) {
      void* block = opaque(std::malloc(opaque(bytes)));
      if (block != nullptr && alignment_of(block) < least) least = alignment_of(block);
      blocks[count++] = block;
    }
  }
  while (count > 0) std::free(blocks[--count]);
  return least;
}

bool all_bytes(const unsigned char* block, std::size_t bytes, unsigned char value) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (block[i] != value) return false;
  }
  return true;
}

}  // namespace

void ask_zero(Answer& answer) {
  void* first = opaque(std::malloc(opaque(0)));
  void* second = opaque(std::malloc(opaque(0)));
  answer.add("malloc_0_not_null", first != nullptr);
  answer.add("malloc_0_unique", first != second);
  void* cleared = opaque(std::calloc(opaque(0), 8));
  answer.add("calloc_0_not_null", cleared != nullptr);
  void* fresh = opaque(std::realloc(nullptr, opaque(0)));
  answer.add("realloc_null_0_not_null", fresh != nullptr);
  void* block = opaque(std::malloc(opaque(100)));
  void* emptied = opaque(std::realloc(block, opaque(0)));
  answer.add("realloc_to_0_not_null", emptied != nullptr);
  void* out = nullptr;
  const int result = posix_memalign(&out, 64, opaque(0));
  answer.add("posix_memalign_0_result", static_cast<std::int64_t>(result));
  answer.add("usable_of_malloc_0", static_cast<std::int64_t>(malloc_usable_size(first)));
  std::free(first);
  std::free(second);
  std::free(cleared);
  std::free(fresh);
  std::free(emptied);
  std::free(result == 0 ? out : nullptr);
  std::free(opaque(static_cast<void*>(nullptr)));
}

void ask_alignment(Answer& answer) {
  answer.add("malloc_1_to_7", least_alignment(1, 7));
  answer.add("malloc_8_to_15", least_alignment(8, 15));
  answer.add("malloc_16_to_2000", least_alignment(16, 2000));
  std::size_t largest = 0;
  bool exact = true;
  for (std::size_t alignment = sizeof(void*); exact && alignment <= kLargestAlignment; alignment *= 2) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{5000}, std::size_t{300000}}) {
      void* block = nullptr;
      if (posix_memalign(&block, alignment, opaque(bytes)) != 0 || !aligned(block, alignment)) exact = false;
      if (block != nullptr) std::memset(block, 1, bytes);
      std::free(block);
    }
    if (exact) largest = alignment;
  }
  answer.add("posix_memalign_up_to", static_cast<std::int64_t>(largest));
  void* untouched = &exact;
  answer.add("posix_memalign_3", static_cast<std::int64_t>(posix_memalign(&untouched, opaque(3), 64)));
  answer.add("posix_memalign_4", static_cast<std::int64_t>(posix_memalign(&untouched, opaque(4), 64)));
  answer.add("posix_memalign_keeps_pointer", untouched == &exact);
  errno = 0;
  void* odd = opaque(std::aligned_alloc(opaque(48), 96));
  answer.add("aligned_alloc_48_null", odd == nullptr);
  answer.add("aligned_alloc_48_errno", static_cast<std::int64_t>(errno));
  void* partial = opaque(std::aligned_alloc(opaque(64), 100));
  answer.add("aligned_alloc_64_of_100", partial != nullptr && aligned(partial, 64));
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* paged = opaque(valloc(opaque(10)));
  answer.add("valloc_page_aligned", aligned(paged, page));
  std::free(odd);
  std::free(partial);
  std::free(paged);
}

// Asked alone: where pvalloc is glibc's and malloc_usable_size is not, the mixture of two heaps usually crashes.
void ask_pvalloc(Answer& answer) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* whole = opaque(pvalloc(opaque(10)));
  answer.add("page_aligned", aligned(whole, page));
  answer.add("whole_page", whole != nullptr && malloc_usable_size(whole) >= page);
  std::free(whole);
}

// Requests that nothing can serve: each must answer NULL with ENOMEM. One per process, for some allocators crash.
namespace {
template <typename Request>
void ask_refusal(Answer& answer, const Request& request) {
  errno = 0;
  void* block = opaque(request());
  const int error = errno;
  answer.add("null", block == nullptr);
  answer.add("errno", static_cast<std::int64_t>(error));
}
}  // namespace

void ask_malloc_huge(Answer& answer) {
  ask_refusal(answer, [] { return std::malloc(opaque(kHuge)); });
}
void ask_malloc_size_max(Answer& answer) {
  ask_refusal(answer, [] { return std::malloc(opaque(SIZE_MAX)); });
}
void ask_calloc_overflow(Answer& answer) {
  ask_refusal(answer, [] { return std::calloc(opaque((std::size_t{1} << 32) + 1), std::size_t{1} << 32); });
}
void ask_reallocarray_overflow(Answer& answer) {
  ask_refusal(answer, [] { return reallocarray(nullptr, opaque((std::size_t{1} << 32) + 1), std::size_t{1} << 32); });
}
void ask_memalign_huge(Answer& answer) {
  ask_refusal(answer, [] { return memalign(64, opaque(kHuge)); });
}
void ask_aligned_alloc_huge(Answer& answer) {
  ask_refusal(answer, [] { return std::aligned_alloc(64, opaque(SIZE_MAX / 64 * 64)); });
}

void ask_realloc_huge(Answer& answer) {
  auto* block = static_cast<unsigned char*>(opaque(std::malloc(opaque(1000))));
  std::memset(block, 0x5a, 1000);
  bool null = false;
  ask_refusal(answer, [block, &null] {
    void* grown = std::realloc(block, opaque(kHuge));
    null = grown == nullptr;
    return grown;
  });
  answer.add("keeps_block", null && all_bytes(opaque(block), 1000, 0x5a));
}

void ask_posix_memalign_huge(Answer& answer) {
  void* out = nullptr;
  errno = kMark;
  answer.add("result", static_cast<std::int64_t>(posix_memalign(&out, 64, opaque(kHuge))));
  answer.add("keeps_errno", errno == kMark);
  answer.add("keeps_pointer", out == nullptr);
}

void ask_free_errno(Answer& answer) {
  void* small = opaque(std::malloc(opaque(1000)));
  void* large = opaque(std::malloc(opaque(std::size_t{3} << 20)));
  errno = kMark;
  std::free(small);
  std::free(large);
  answer.add("keeps_errno", errno == kMark);
}

void ask_usable(Answer& answer) {
  constexpr std::size_t kSizes[] = {1, 8, 16, 17, 24, 33, 100, 129, 1000, 1025, 4097, 10000, 40000, 100000, 1000000};
  answer.add("of_null_is_0", malloc_usable_size(nullptr) == 0);
  bool enough = true;
  bool exact = true;
  bool writable = true;
  for (const std::size_t bytes : kSizes) {
    auto* block = static_cast<unsigned char*>(opaque(std::malloc(opaque(bytes))));
    const std::size_t usable = malloc_usable_size(block);
    char key[32];
    std::snprintf(key, sizeof key, "of_%zu", bytes);
    answer.add(key, static_cast<std::int64_t>(usable));
    enough = enough && usable >= bytes;
    exact = exact && usable == bytes;
    if (usable >= bytes && usable < bytes * 4 + 64) {
      std::memset(block, 0x33, usable);
      writable = writable && all_bytes(opaque(block), usable, 0x33);
    }
    std::free(block);
  }
  answer.add("at_least_request", enough);
  answer.add("exactly_request", exact);
  answer.add("writable", writable);
}

void ask_content(Answer& answer) {
  bool kept = true;
  auto* block = static_cast<unsigned char*>(opaque(std::malloc(opaque(1))));
  std::size_t bytes = 1;
  std::memset(block, 0x77, 1);
  while (bytes < (std::size_t{8} << 20)) {
    const std::size_t next = bytes + bytes / 2 + 1;
    block = static_cast<unsigned char*>(opaque(std::realloc(block, opaque(next))));
    kept = kept && block != nullptr && all_bytes(block, bytes, 0x77);
    std::memset(block, 0x77, next);
    bytes = next;
  }
  while (bytes > 1) {
    bytes /= 2;
    block = static_cast<unsigned char*>(opaque(std::realloc(block, opaque(bytes))));
    kept = kept && block != nullptr && all_bytes(block, bytes, 0x77);
  }
  std::free(block);
  answer.add("realloc_keeps_content", kept);

  bool zero = true;
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{64}, std::size_t{1000}, std::size_t{50000}, std::size_t{3} << 20}) {
    for (int round = 0; round < 20; ++round) {
      void* dirty = opaque(std::malloc(opaque(size)));
      std::memset(dirty, 0xff, size);
      std::free(dirty);
      auto* cleared = static_cast<unsigned char*>(opaque(std::calloc(opaque(size), 1)));
      zero = zero && cleared != nullptr && all_bytes(cleared, size, 0);
      std::memset(cleared, 0xff, size);
      std::free(cleared);
    }
  }
  answer.add("calloc_zero", zero);
}

namespace {
int handler_calls = 0;
void handler() {
  if (++handler_calls >= 3) std::set_new_handler(nullptr);
}
}  // namespace

void ask_operators(Answer& answer) {
  answer.add("nothrow_returns_null", opaque(::operator new(opaque(kHuge), std::nothrow)) == nullptr);
  bool aligned_right = true;
  for (std::size_t alignment = 32; alignment <= 4096; alignment *= 2) {
    void* block = opaque(::operator new(opaque(100), std::align_val_t(alignment)));
    aligned_right = aligned_right && aligned(block, alignment);
    ::operator delete(block, opaque(100), std::align_val_t(alignment));
  }
  answer.add("aligned_new", aligned_right);
  void* block = opaque(::operator new(opaque(100)));
  ::operator delete(block, opaque(100));
  void* empty = opaque(::operator new(opaque(0)));
  answer.add("new_0_not_null", empty != nullptr);
  ::operator delete(empty);
  bool thrown = false;
  try {
    opaque(::operator new(opaque(kHuge)));
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  answer.add("throws_bad_alloc", thrown);
  std::set_new_handler(handler);
  thrown = false;
  try {
    opaque(::operator new(opaque(kHuge)));
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  answer.add("new_handler_retried", thrown && handler_calls == 3);
}

}  // namespace probe
