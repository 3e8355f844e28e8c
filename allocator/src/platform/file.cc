// Room 4, platform: see file.h.

#include "platform/file.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "platform/os.h"

namespace freestone::os {
namespace {

// errno belongs to the program.
template <typename... Arguments>
long invoke(long number, Arguments... arguments) {
  const int saved = errno;
  const long result = ::syscall(number, arguments...);
  const int error = errno;
  errno = saved;
  return result == -1 ? -error : result;
}

struct DirectoryEntry {  // of getdents64
  u64 inode;
  i64 offset;
  u16 length;
  u8 type;
  char name[1];
};

}  // namespace

File File::open_to_read(const char* path) { return File(static_cast<int>(invoke(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0))); }
File File::create(const char* path) { return File(create_file(path)); }

File::~File() {
  if (descriptor_ >= 0) close_file(descriptor_);
}

usize File::read(void* buffer, usize capacity) const {
  long got;
  do {
    got = invoke(SYS_read, descriptor_, buffer, capacity);
  } while (got == -EINTR);
  return got > 0 ? static_cast<usize>(got) : 0;
}

usize File::read_at(void* buffer, usize bytes, usize offset) const {
  const long got = invoke(SYS_pread64, descriptor_, buffer, bytes, offset);
  return got > 0 ? static_cast<usize>(got) : 0;
}

bool File::write(const void* data, usize bytes) const { return write_all(descriptor_, static_cast<const char*>(data), bytes); }

void for_each_thread(void (*visit)(void* context, unsigned tid), void* context) {
  const long folder = invoke(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (folder < 0) return;
  alignas(8) char buffer[4096];
  for (long got; (got = invoke(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;) {
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const DirectoryEntry*>(buffer + at);
      unsigned tid = 0;
      for (const char* digit = entry->name; *digit >= '0' && *digit <= '9'; ++digit) tid = tid * 10 + static_cast<unsigned>(*digit - '0');
      if (tid != 0) visit(context, tid);
      at += entry->length;
    }
  }
  invoke(SYS_close, folder);
}

bool signal_thread(unsigned tid, int signal) { return invoke(SYS_tgkill, process_id(), tid, signal) == 0; }

void sleep_microseconds(unsigned microseconds) {
  const timespec time{microseconds / 1'000'000, static_cast<long>(microseconds % 1'000'000) * 1000};
  invoke(SYS_nanosleep, &time, nullptr);
}

void exit_now(int status) {
  for (;;) invoke(SYS_exit_group, status);
}

static u64 read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<u64>(now.tv_sec) * 1'000'000'000 + static_cast<u64>(now.tv_nsec);
}

u64 nanoseconds() { return read_clock(CLOCK_MONOTONIC); }
u64 wall_nanoseconds() { return read_clock(CLOCK_REALTIME); }

}  // namespace freestone::os
