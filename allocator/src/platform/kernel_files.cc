// Room 4, platform: what the kernel's files say of the machine and of this process. The contract of os.h holds.

#include <fcntl.h>
#include <sys/syscall.h>

#include <cstring>

#include "base/digits.h"
#include "platform/file.h"
#include "platform/message.h"
#include "platform/os.h"
#include "platform/system_call.h"

namespace freestone::os {

namespace {

struct DirectoryEntry {  // of getdents64
  u64 inode;
  i64 offset;
  u16 length;
  u8 type;
  char name[1];
};

}  // namespace

bool for_each_thread(void (*visit)(void* context, unsigned tid), void* context) {
  const long folder = invoke(SYS_openat, static_cast<usize>(AT_FDCWD), address_of("/proc/self/task"),
                             O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (is_error(folder)) return false;
  alignas(8) char buffer[4096];
  long got;
  while ((got = invoke(SYS_getdents64, static_cast<usize>(folder), address_of(buffer), sizeof buffer)) > 0) {
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const DirectoryEntry*>(buffer + at);
      const char* name = entry->name;
      const auto tid = static_cast<unsigned>(take_decimal(name));
      if (tid != 0) visit(context, tid);
      at += entry->length;
    }
  }
  invoke(SYS_close, static_cast<usize>(folder));
  return got == 0;
}

bool gives_huge_pages_on_request() {
  char modes[64];
  const usize length = read_file("/sys/kernel/mm/transparent_hugepage/enabled", modes, sizeof modes - 1);
  modes[length] = 0;
  return std::strstr(modes, "[madvise]") != nullptr;
}
usize resident_bytes() {
  char text[128];
  const usize length = read_file(File::open_own("statm"), text, sizeof text - 1);
  text[length] = '\0';
  const char* second = std::strchr(text, ' ');
  return second == nullptr ? 0 : take_decimal(++second) * page_bytes();
}

usize peak_resident_bytes() {
  // getrusage will not do: its maximum includes what the process ran before exec.
  char text[2048];
  const usize length = read_file(File::open_own("status"), text, sizeof text - 1);
  text[length] = '\0';
  const char* line = std::strstr(text, "VmHWM:");
  if (line == nullptr) return 0;
  for (line += 6; *line == ' ' || *line == '\t'; ++line) {
  }
  return take_decimal(line) * kKiB;
}

bool thread_has_ended(unsigned tid) {
  if (thread_is_gone(tid)) return true;
  char text[64];  // "TID (NAME) STATE ..."
  Message path("/proc/self/task/");
  path << u64{tid} << "/stat" << '\0';
  text[read_file(path.data(), text, sizeof text - 1)] = '\0';
  const char* const name_end = std::strrchr(text, ')');
  return name_end != nullptr && (name_end[2] == 'Z' || name_end[2] == 'X');
}

}  // namespace freestone::os
