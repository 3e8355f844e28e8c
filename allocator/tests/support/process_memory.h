// What the kernel says about this process, read without allocating.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "support/mapping_count.h"

namespace freestone_test {

// What a file of /proc says in kB behind `field`, in bytes; 0 where the kernel does not say.
inline size_t said_bytes(const char* path, const char* field) {
  char text[4096];
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* line = std::strstr(text, field);
  return line == nullptr ? 0 : std::strtoull(line + std::strlen(field), nullptr, 10) * 1024;
}

// "Anonymous:", "Rss:", "Private_Dirty:". It is exact, where the counters of /proc/self/statm lag by a batch per
// processor. Pages of files are not counted unless asked for: how many of a library's pages one fault maps depends on
// what the page cache holds.
inline size_t resident_bytes(const char* field = "Anonymous:") { return said_bytes("/proc/self/smaps_rollup", field); }
inline size_t address_space_bytes() { return said_bytes("/proc/self/status", "VmSize:"); }

inline long minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace freestone_test
