// Room 4, platform: files of the kernel and files that reports are written to. The contract of os.h holds.
#pragma once

#include "base/units.h"

namespace freestone::os {

// A file that closes itself.
class File {
 public:
  static File open_to_read(const char* path);
  // Created or emptied; see create_file in os.h.
  static File create(const char* path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  // The bytes read, 0 at the end or on failure.
  usize read(void* buffer, usize capacity) const;
  usize read_at(void* buffer, usize bytes, usize offset) const;
  // False when not all of it could be written.
  bool write(const void* data, usize bytes) const;

 private:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

// The threads of this process: calls visit(context, tid) for each.
void for_each_thread(void (*visit)(void* context, unsigned tid), void* context);
// False when the thread is gone.
bool signal_thread(unsigned tid, int signal);
void sleep_microseconds(unsigned microseconds);
// Ends the process at once, without any handler.
[[noreturn]] void exit_now(int status);

// A monotonic clock; no system call where the kernel maps its clock.
u64 nanoseconds();
// Since 1970.
u64 wall_nanoseconds();

}  // namespace freestone::os
