// Errors that do no harm under glibc must not end a program while its first blocks are checked (cache/early.h). For
// sizes up to 4096 it fills as much as glibc lets it use, and reads and writes freed blocks behind glibc's links.
//
// It passes under glibc. Every few sizes run in a process of their own, forked before the first of its allocations.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr std::size_t kLargest = 4096;
constexpr std::size_t kSizesEach = 16;  // 15 allocations for each size: less than 512
std::size_t usable_in_glibc(std::size_t bytes) {
  const std::size_t usable = ((bytes + 8 + 15) & ~std::size_t{15}) - 8;
  return usable < 24 ? 24 : usable;
}

char* opaque(void* pointer) {
  asm volatile("" : "+r"(pointer) : : "memory");
  return static_cast<char*>(pointer);
}
char* filled(void* block, std::size_t bytes) {
  std::memset(opaque(block), 'x', usable_in_glibc(bytes));
  return opaque(block);
}
char* taken(int form, std::size_t bytes) {
  switch (form) {
    case 0: return filled(std::malloc(bytes), bytes);
    case 1: return filled(std::calloc(1, bytes), bytes);
    case 2: return filled(memalign(64, bytes), bytes);
    case 3: return filled(::operator new(bytes), bytes);
    default: return filled(std::realloc(filled(std::malloc(bytes / 2), bytes / 2), bytes + 1), bytes + 1);
  }
}

void use(std::size_t bytes) {
  for (int form = 0; form < 5; ++form) {
    // glibc keeps a block whole if less than 32 bytes become free. Those of memalign and realloc may be longer.
    char* const block = taken(form, bytes);
    const bool shrinks = bytes > 16 && form != 2 && form != 4;
    char* const smaller = shrinks ? opaque(std::realloc(block, bytes - 16)) : block;
    if (smaller == block) filled(block, bytes);
    std::free(form % 2 == 0 ? smaller : filled(std::realloc(smaller, bytes + bytes / 2 + 1), bytes + bytes / 2 + 1));
  }
  char* const block = taken(0, bytes);
  std::free(block);
  char* const freed = opaque(block);
  const std::size_t links = bytes > 1024 ? 32 : 16;  // and 8 bytes at the end
  for (std::size_t i = links; i + 8 < usable_in_glibc(bytes); ++i) {
    if (i < bytes && freed[i] != 'x') std::abort();
    freed[i] = 'y';
  }
  std::free(taken(0, bytes));
}

}  // namespace

int main() {
  int failed = 0;
  for (std::size_t first = 0; first <= kLargest; first += kSizesEach) {
    const pid_t child = fork();
    if (child == 0) {
      for (std::size_t bytes = first; bytes < first + kSizesEach && bytes <= kLargest; ++bytes) use(bytes);
      if (first % 32 == 0) malloc_trim(0);
      std::exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
      ++failed, std::fprintf(stderr, "a child failed with %zu to %zu bytes\n", first, first + kSizesEach - 1);
  }
  return failed == 0 ? 0 : 1;
}
