// freestone-probe QUESTION: answers one question about the allocator that serves this very process.
//
// One question per process: an allocator that aborts on one question still answers the others. Every answer is one flat
// JSON object on stdout. lab/freestone_lab/peers/abi_probe.py asks, and judges the answers.
#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <string_view>

namespace {

using std::size_t;

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
      if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\') {
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

// Keeps a value alive in the compiler's eyes and hides where it came from.
template <typename T>
T opaque(T value) {
  __asm__ volatile("" : "+r"(value) : : "memory");
  return value;
}

void* allocated(size_t bytes) { return opaque(std::malloc(opaque(bytes))); }

constexpr size_t kHuge = static_cast<size_t>(PTRDIFF_MAX) - 4096;
constexpr size_t kHalf = (size_t{1} << 32) + 1;  // times 2^32: more than there is
constexpr int kMark = 4242;                      // a value of errno that no function sets

bool all_bytes(const void* block, size_t bytes, unsigned char value) {
  const auto* at = static_cast<const unsigned char*>(block);
  for (size_t i = 0; i < bytes; ++i) {
    if (at[i] != value) return false;
  }
  return true;
}

// The names stand in freestone_lab/peers/discover.py.
void owners(Answer& answer, int count, char** names) {
  for (int i = 0; i < count; ++i) {
    void* address = dlsym(RTLD_DEFAULT, names[i]);
    Dl_info where{};
    const bool found = address != nullptr && dladdr(address, &where) != 0 && where.dli_fname != nullptr;
    answer.add(names[i], std::string_view(found ? where.dli_fname : ""));
  }
}

// The rules of the entry points: zero sizes, alignment, errno, usable size, content, operators.

void zero(Answer& answer) {
  void* first = allocated(0);
  void* second = allocated(0);
  answer.add("malloc_0_unique", first != second);
  void* emptied = opaque(std::realloc(allocated(100), opaque(size_t{0})));
  answer.add("realloc_to_0_not_null", emptied != nullptr);
  for (void* block : {first, second, emptied}) std::free(block);
}

// The least alignment over the sizes [first, last], several blocks of each, all live together.
std::int64_t least_alignment(size_t first, size_t last) {
  static void* blocks[8192];
  size_t count = 0;
  std::uintptr_t least = 1 << 20;
  for (size_t bytes = first; bytes <= last; ++bytes) {
    for (int i = 0; i < 4 && count < 8192; ++i) {
      const auto address = reinterpret_cast<std::uintptr_t>(blocks[count++] = allocated(bytes));
      if (address != 0 && (address & -address) < least) least = address & -address;
    }
  }
  while (count > 0) std::free(blocks[--count]);
  return static_cast<std::int64_t>(least);
}

void alignment(Answer& answer) {
  answer.add("malloc_1_to_7", least_alignment(1, 7));
  answer.add("malloc_8_to_15", least_alignment(8, 15));
  answer.add("malloc_16_to_2000", least_alignment(16, 2000));
  size_t largest = 0;
  bool exact = true;
  for (size_t alignment = sizeof(void*); exact && alignment <= size_t{1} << 20; alignment *= 2) {
    for (const size_t bytes : {1, 100, 5000, 300000}) {
      void* block = nullptr;
      exact = exact && posix_memalign(&block, alignment, opaque(bytes)) == 0 &&
              reinterpret_cast<std::uintptr_t>(block) % alignment == 0;
      if (block != nullptr) std::memset(block, 1, bytes);
      std::free(block);
    }
    if (exact) largest = alignment;
  }
  answer.add("posix_memalign_up_to", static_cast<std::int64_t>(largest));
  void* odd = opaque(std::aligned_alloc(opaque(size_t{48}), 96));
  answer.add("aligned_alloc_48_null", odd == nullptr);
  std::free(odd);
}

// Asked alone: where pvalloc is glibc's and malloc_usable_size is not, the mixture of two heaps usually crashes.
void whole_page(Answer& answer) {
  void* whole = opaque(pvalloc(opaque(size_t{10})));
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  answer.add("whole_page", whole != nullptr && malloc_usable_size(whole) >= page);
  std::free(whole);
}

// Requests that nothing can serve: each must answer NULL with ENOMEM. One per process, for some allocators crash.
template <auto kRequest>
void refusal(Answer& answer) {
  errno = 0;
  void* block = opaque(kRequest());
  const int error = errno;
  answer.add("null", block == nullptr);
  answer.add("errno", static_cast<std::int64_t>(error));
}

void realloc_huge(Answer& answer) {
  static void* block = allocated(1000);
  static void* grown = nullptr;
  std::memset(block, 0x5a, 1000);
  refusal<[] { return grown = std::realloc(block, opaque(kHuge)); }>(answer);
  answer.add("keeps_block", grown == nullptr && all_bytes(opaque(block), 1000, 0x5a));
}

void free_errno(Answer& answer) {
  void* small = allocated(1000);
  void* large = allocated(size_t{3} << 20);
  errno = kMark;
  std::free(small);
  std::free(large);
  answer.add("keeps_errno", errno == kMark);
}

void usable(Answer& answer) {
  answer.add("of_1", static_cast<std::int64_t>(malloc_usable_size(allocated(1))));
  answer.add("of_100", static_cast<std::int64_t>(malloc_usable_size(allocated(100))));
}

void content(Answer& answer) {
  bool kept = true;
  void* block = allocated(1);
  size_t bytes = 1;
  std::memset(block, 0x77, 1);
  while (bytes < size_t{8} << 20) {
    const size_t next = bytes + bytes / 2 + 1;
    block = opaque(std::realloc(block, opaque(next)));
    kept = kept && block != nullptr && all_bytes(block, bytes, 0x77);
    std::memset(block, 0x77, next);
    bytes = next;
  }
  while (bytes > 1) {
    bytes /= 2;
    block = opaque(std::realloc(block, opaque(bytes)));
    kept = kept && block != nullptr && all_bytes(block, bytes, 0x77);
  }
  std::free(block);
  answer.add("realloc_keeps_content", kept);

  bool zero = true;
  for (const size_t size : {1, 64, 1000, 50000, 3 << 20}) {
    for (int round = 0; round < 20; ++round) {
      void* dirty = allocated(size);
      std::memset(dirty, 0xff, size);
      std::free(dirty);
      void* cleared = opaque(std::calloc(opaque(size), 1));
      zero = zero && cleared != nullptr && all_bytes(cleared, size, 0);
      std::memset(cleared, 0xff, size);
      std::free(cleared);
    }
  }
  answer.add("calloc_zero", zero);
}

void operators(Answer& answer) {
  static int calls = 0;
  bool thrown = false;
  std::set_new_handler([] {
    if (++calls >= 3) std::set_new_handler(nullptr);
  });
  try {
    opaque(::operator new(opaque(kHuge)));
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  answer.add("new_handler_retried", thrown && calls == 3);
}

// Do the statistics of glibc's interface tell the truth about this heap? Each question allocates a known amount between
// two readings.

void* blocks[2000];
constexpr size_t kBlockBytes = 6000;  // below every threshold for mappings of their own

void allocate_known() {
  for (void*& block : blocks) {
    block = allocated(kBlockBytes);
    if (block != nullptr) std::memset(block, 1, kBlockBytes);
  }
}

void free_known(Answer& answer) {
  for (void*& block : blocks) std::free(block);
  answer.add("requested", static_cast<std::int64_t>(sizeof blocks / sizeof *blocks * kBlockBytes));
}

std::int64_t resident_bytes() {
  long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

// A reading of a text report, without pipes: into a temporary file that has no name.
template <auto kWrite>
std::string_view captured(char* room, size_t capacity) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr) return {};
  kWrite(file);
  std::fflush(file);
  std::rewind(file);
  const size_t length = std::fread(room, 1, capacity, file);
  std::fclose(file);
  return {room, length};
}

template <auto kWrite>
void text(Answer& answer) {
  static char room[2][1 << 20];
  captured<kWrite>(room[0], sizeof room[0]);  // the first reading may itself allocate
  const std::string_view before = captured<kWrite>(room[0], sizeof room[0]);
  allocate_known();
  const std::string_view during = captured<kWrite>(room[1], sizeof room[1]);
  free_known(answer);
  answer.add("before", before);
  answer.add("during", during);
}

void write_stats(std::FILE* file) {
  std::fflush(stderr);
  const int saved = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  malloc_stats();
  std::fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::fseek(file, 0, SEEK_END);
}

void write_info(std::FILE* file) { malloc_info(0, file); }

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // the old name is asked on purpose
template <auto kRead>
void numbers(Answer& answer) {
  const auto before = kRead();
  allocate_known();
  const auto during = kRead();
  free_known(answer);
  const auto after = kRead();
  answer.add("in_use_before", static_cast<std::int64_t>(before.uordblks));
  answer.add("in_use_during", static_cast<std::int64_t>(during.uordblks));
  answer.add("in_use_after", static_cast<std::int64_t>(after.uordblks));
  answer.add("held", static_cast<std::int64_t>(during.arena) + static_cast<std::int64_t>(during.hblkhd));
}

void trim(Answer& answer) {
  allocate_known();
  void* top = allocated(64);
  answer.add("resident_full", resident_bytes());
  free_known(answer);
  malloc_trim(0);
  answer.add("resident_trimmed", resident_bytes());
  std::free(top);
}

void option(Answer& answer) {
  answer.add("mmap_threshold", static_cast<std::int64_t>(mallopt(M_MMAP_THRESHOLD, 1 << 20)));
}

constexpr struct {
  const char* name;
  void (*ask)(Answer&);
} kQuestions[] = {
    {"zero", zero},
    {"alignment", alignment},
    {"pvalloc", whole_page},
    {"malloc_huge", refusal<[] { return std::malloc(opaque(kHuge)); }>},
    {"malloc_size_max", refusal<[] { return std::malloc(opaque(SIZE_MAX)); }>},
    {"calloc_overflow", refusal<[] { return std::calloc(opaque(kHalf), size_t{1} << 32); }>},
    {"reallocarray_overflow", refusal<[] { return reallocarray(nullptr, opaque(kHalf), size_t{1} << 32); }>},
    {"memalign_huge", refusal<[] { return memalign(64, opaque(kHuge)); }>},
    {"aligned_alloc_huge", refusal<[] { return std::aligned_alloc(64, opaque(SIZE_MAX / 64 * 64)); }>},
    {"realloc_huge", realloc_huge},
    {"free_errno", free_errno},
    {"usable", usable},
    {"content", content},
    {"operators", operators},
    {"mallinfo", numbers<mallinfo>},
    {"mallinfo2", numbers<mallinfo2>},
    {"malloc_stats", text<write_stats>},
    {"malloc_info", text<write_info>},
    {"malloc_trim", trim},
    {"mallopt", option},
};

}  // namespace

int main(int argc, char** argv) {
  static char buffer[1 << 16];  // stdio must not ask the allocator for one
  std::setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  const std::string_view asked = argc >= 2 ? argv[1] : "";
  if (asked == "owners") {
    Answer answer;
    owners(answer, argc - 2, argv + 2);
    return 0;
  }
  for (const auto& question : kQuestions) {
    if (asked == question.name) {
      Answer answer;
      question.ask(answer);
      return 0;
    }
  }
  std::fprintf(stderr, "usage: freestone-probe owners NAME... | QUESTION\n");
  return 2;
}
