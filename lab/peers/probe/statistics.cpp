// Do the statistics of glibc's interface tell the truth about this heap? Each question allocates a known amount between
// two readings; freestone_lab/peers/abi_probe.py judges the difference.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "probe.hpp"

namespace probe {
namespace {

constexpr std::size_t kBlocks = 2000;
constexpr std::size_t kBlockBytes = 6000;  // below every threshold for mappings of their own
void* blocks[kBlocks];

void allocate_known() {
  for (void*& block : blocks) {
    block = opaque(std::malloc(opaque(kBlockBytes)));
    if (block != nullptr) std::memset(block, 1, kBlockBytes);
  }
}

void free_known() {
  for (void*& block : blocks) std::free(block);
}

void report_known(Answer& answer) { answer.add("requested", static_cast<std::int64_t>(kBlocks * kBlockBytes)); }

std::int64_t resident_bytes() {
  long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

// A reading of a text report, without pipes: into a temporary file that has no name.
template <typename Write>
std::string_view captured(char* room, std::size_t capacity, const Write& write) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr) return {};
  write(file);
  std::fflush(file);
  std::rewind(file);
  const std::size_t length = std::fread(room, 1, capacity, file);
  std::fclose(file);
  return {room, length};
}

char before_text[1 << 20];
char during_text[1 << 20];

template <typename Write>
void ask_text(Answer& answer, const Write& write) {
  report_known(answer);
  captured(before_text, sizeof before_text, write);  // the first reading may itself allocate
  const std::string_view before = captured(before_text, sizeof before_text, write);
  allocate_known();
  const std::string_view during = captured(during_text, sizeof during_text, write);
  free_known();
  answer.add("before", before);
  answer.add("during", during);
}

template <typename Read>
void ask_numbers(Answer& answer, const Read& read) {
  report_known(answer);
  std::int64_t before[3];
  std::int64_t during[3];
  std::int64_t after[3];
  read(before);
  allocate_known();
  read(during);
  free_known();
  read(after);
  constexpr const char* kNames[3] = {"in_use", "from_system", "mapped"};
  char key[32];
  for (int i = 0; i < 3; ++i) {
    std::snprintf(key, sizeof key, "%s_before", kNames[i]);
    answer.add(key, before[i]);
    std::snprintf(key, sizeof key, "%s_during", kNames[i]);
    answer.add(key, during[i]);
    std::snprintf(key, sizeof key, "%s_after", kNames[i]);
    answer.add(key, after[i]);
  }
}

}  // namespace

void ask_mallinfo2(Answer& answer) {
  ask_numbers(answer, [](std::int64_t* out) {
    const struct mallinfo2 info = ::mallinfo2();
    out[0] = static_cast<std::int64_t>(info.uordblks);
    out[1] = static_cast<std::int64_t>(info.arena);
    out[2] = static_cast<std::int64_t>(info.hblkhd);
  });
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // the old name is asked on purpose
void ask_mallinfo(Answer& answer) {
  ask_numbers(answer, [](std::int64_t* out) {
    const struct mallinfo info = ::mallinfo();
    out[0] = info.uordblks;
    out[1] = info.arena;
    out[2] = info.hblkhd;
  });
}

void ask_malloc_stats(Answer& answer) {
  ask_text(answer, [](std::FILE* file) {
    std::fflush(stderr);
    const int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    malloc_stats();
    std::fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    std::fseek(file, 0, SEEK_END);
  });
}

void ask_malloc_info(Answer& answer) {
  std::int64_t result = -1;
  ask_text(answer, [&result](std::FILE* file) { result = malloc_info(0, file); });
  answer.add("result", result);
}

void ask_malloc_trim(Answer& answer) {
  allocate_known();
  void* top = opaque(std::malloc(opaque(64)));
  report_known(answer);
  const std::int64_t full = resident_bytes();
  free_known();
  const std::int64_t freed = resident_bytes();
  answer.add("result", static_cast<std::int64_t>(malloc_trim(0)));
  answer.add("resident_full", full);
  answer.add("resident_freed", freed);
  answer.add("resident_trimmed", resident_bytes());
  std::free(top);
}

void ask_mallopt(Answer& answer) {
  answer.add("mmap_threshold", static_cast<std::int64_t>(mallopt(M_MMAP_THRESHOLD, 1 << 20)));
  answer.add("unknown_option", static_cast<std::int64_t>(mallopt(4711, 1)));
}

}  // namespace probe
