// Room 4, platform: see file.h.

#include "platform/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/digits.h"
#include "platform/os.h"
#include "platform/system_call.h"

namespace freestone::os {
namespace {

struct FileIdentity {
  u64 device = 0;
  u64 inode = 0;
  bool operator==(const FileIdentity&) const = default;
};
int kept_stderr = -1;
FileIdentity kept_identity;

bool identify(int file, FileIdentity& identity) {
  struct stat status = {};  // the kernel fills it, which sanitizers and some compilers do not see
  if (is_error(invoke(SYS_fstat, static_cast<usize>(file), address_of(&status)))) return false;
  identity = {status.st_dev, status.st_ino};
  return true;
}

int open_to_read_only(const char* path) {
  const long file = invoke(SYS_openat, static_cast<usize>(AT_FDCWD), address_of(path), O_RDONLY | O_CLOEXEC);
  return is_error(file) ? -1 : static_cast<int>(file);
}

// In a folder of the kernel; its names are short.
int open_in(const char* folder, const char* name) {
  char path[64];
  usize length = 0;
  while (*folder != '\0' && length + 1 < sizeof path) path[length++] = *folder++;
  while (*name != '\0' && length + 1 < sizeof path) path[length++] = *name++;
  path[length] = '\0';
  return open_to_read_only(path);
}

}  // namespace

File File::open_to_read(const char* path) { return File(open_to_read_only(path)); }
File File::open_own(const char* name) {
  int file = -1;  // qemu answers in the program's terms under the other name only
  if (!is_emulated()) file = open_in("/proc/thread-self/", name);
  // Kernels before 3.17 have no such folder, and a sandbox may know the other one only.
  if (file < 0) file = open_in("/proc/self/", name);
  return File(file);
}
File File::create_private(const char* path) { return File(create_file(path, 0600)); }

File::~File() {
  if (descriptor_ >= 0) close_file(descriptor_);
}

usize File::read(void* buffer, usize capacity) const {
  long got;
  do {
    got = invoke(SYS_read, static_cast<usize>(descriptor_), address_of(buffer), capacity);
  } while (got == -EINTR);
  return got > 0 ? static_cast<usize>(got) : 0;
}

usize File::read_at(void* buffer, usize bytes, usize offset) const {
  const long got = invoke(SYS_pread64, static_cast<usize>(descriptor_), address_of(buffer), bytes, offset);
  return got > 0 ? static_cast<usize>(got) : 0;
}

bool File::seek(usize offset) const {
  return !is_error(invoke(SYS_lseek, static_cast<usize>(descriptor_), offset, SEEK_SET));
}

bool File::write(const void* data, usize bytes) const {
  return write_all(descriptor_, static_cast<const char*>(data), bytes);
}

bool PageTable::look(usize address, usize pages, bool* in_memory) const {
  constexpr u64 kPresent = u64{1} << 63;
  u64 entries[kPagesMax];
  const usize bytes = pages * sizeof *entries;
  const usize offset = address / page_bytes() * sizeof *entries;
  // Not read_at: fewer filters of system calls know it.
  if (!file_.is_open() || !file_.seek(offset) || file_.read(entries, bytes) != bytes) return false;
  for (usize k = 0; k < pages; ++k) in_memory[k] = (entries[k] & kPresent) != 0;
  return true;
}

FREESTONE_AT_START usize read_file(const char* path, char* buffer, usize capacity) {
  return read_file(File::open_to_read(path), buffer, capacity);
}
FREESTONE_AT_START usize read_file(const File& file, char* buffer, usize capacity) {
  usize length = 0;
  while (file.is_open() && length < capacity) {
    const usize got = file.read(buffer + length, capacity - length);
    if (got == 0) break;
    length += got;
  }
  return length;
}

usize expand_path(const char* pattern, char* path, usize capacity, const u32* number) {
  usize length = 0;
  const auto put = [&](const char* text, usize bytes) {
    for (usize i = 0; i < bytes && length + 1 < capacity; ++i) path[length++] = text[i];
  };
  for (; *pattern != '\0'; ++pattern) {
    const bool is_process = pattern[0] == '%' && pattern[1] == 'p';
    if (is_process || (number != nullptr && pattern[0] == '%' && pattern[1] == 'n')) {
      const Digits digits = Digits::decimal(is_process ? process_id() : *number);
      put(digits.data(), digits.length());
      ++pattern;
    } else {
      put(pattern, 1);
    }
  }
  path[length] = '\0';
  return length;
}

int create_file(const char* path, unsigned rights) {
  const long file = invoke(SYS_openat, static_cast<usize>(AT_FDCWD), address_of(path),
                           O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, rights);
  return is_error(file) ? -1 : static_cast<int>(file);
}

bool write_all(int file, const char* text, usize length) {
  while (length > 0) {
    const long done = invoke(SYS_write, static_cast<usize>(file), address_of(text), length);
    if (done == -EINTR) continue;
    if (done <= 0) return false;
    text += done;
    length -= static_cast<usize>(done);
  }
  return true;
}

void close_file(int file) { invoke(SYS_close, static_cast<usize>(file)); }

bool rename_file(const char* from, const char* to) {
  const auto here = static_cast<usize>(AT_FDCWD);
  return invoke(SYS_renameat2, here, address_of(from), here, address_of(to), 0) == 0;
}

bool is_device(const char* path) {
  struct stat status = {};
  const auto here = static_cast<usize>(AT_FDCWD);
  const long error = invoke(SYS_newfstatat, here, address_of(path), address_of(&status), AT_SYMLINK_NOFOLLOW);
  return !is_error(error) && S_ISCHR(status.st_mode);
}

void remove_file(const char* path) { invoke(SYS_unlinkat, static_cast<usize>(AT_FDCWD), address_of(path), 0); }

void* map_shared_file(const char* path, usize bytes) {
  remove_file(path);  // left by an ended process that had our number
  const long file = invoke(SYS_openat, static_cast<usize>(AT_FDCWD), address_of(path),
                           O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (is_error(file)) return nullptr;
  long result = invoke(SYS_ftruncate, static_cast<usize>(file), bytes);
  if (!is_error(result))
    result = invoke(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<usize>(file), 0);
  close_file(static_cast<int>(file));
  if (!is_error(result)) return reinterpret_cast<void*>(result);
  remove_file(path);
  return nullptr;
}

void keep_stderr() {
  constexpr usize kLowest[] = {1000, 200, 10};  // the first that the limit of open files allows
  if (kept_stderr >= 0 || !identify(STDERR_FILENO, kept_identity)) return;
  for (const usize lowest : kLowest) {
    const long file = invoke(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, lowest);
    if (is_error(file)) continue;
    kept_stderr = static_cast<int>(file);
    return;
  }
}

int stderr_file() {
  FileIdentity now;
  const bool usable =
      kept_stderr >= 0 && !identify(STDERR_FILENO, now) && identify(kept_stderr, now) && now == kept_identity;
  return usable ? kept_stderr : STDERR_FILENO;
}

void write_stderr(const char* text, usize length) { write_all(stderr_file(), text, length); }

}  // namespace freestone::os
