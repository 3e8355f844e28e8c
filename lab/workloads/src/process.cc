#include "process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace workload {
namespace {

// Reads a small /proc file without stdio, which would allocate.
bool slurp(const char* path, char* buffer, std::size_t room) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::size_t used = 0;
  ssize_t got = 0;
  while (used + 1 < room && (got = ::read(fd, buffer + used, room - 1 - used)) > 0)
    used += static_cast<std::size_t>(got);
  ::close(fd);
  buffer[used] = 0;
  return got >= 0 && used > 0;
}

std::uint64_t field_kib(const char* path, const char* label) {
  char buffer[8192];
  if (!slurp(path, buffer, sizeof buffer)) return 0;
  const char* at = std::strstr(buffer, label);
  return at == nullptr ? 0 : std::strtoull(at + std::strlen(label), nullptr, 10);
}

std::uint64_t faults(int who) {
  rusage usage{};
  return ::getrusage(who, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_minflt) : 0;
}

const char* owner_of(const char* function) {
  Dl_info info{};
  void* address = ::dlsym(RTLD_DEFAULT, function);
  return address != nullptr && ::dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace

double resident_kib() {
  const std::uint64_t exact = field_kib("/proc/self/smaps_rollup", "\nRss:");
  if (exact != 0) return static_cast<double>(exact);
  char buffer[256];
  if (!slurp("/proc/self/statm", buffer, sizeof buffer)) return 0;
  char* end = nullptr;
  std::strtoull(buffer, &end, 10);
  return std::strtod(end, nullptr) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024;
}

double peak_resident_kib() { return static_cast<double>(field_kib("/proc/self/status", "VmHWM:")); }
std::uint64_t faults_of_process() { return faults(RUSAGE_SELF); }
std::uint64_t faults_of_thread() { return faults(RUSAGE_THREAD); }

unsigned usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

const char* malloc_owner() { return owner_of("malloc"); }
bool same_owner_as_malloc(const char* function) {
  const char* owner = owner_of(function);
  return *owner != 0 && std::strcmp(owner, malloc_owner()) == 0;
}

}  // namespace workload
