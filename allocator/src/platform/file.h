// Room 4, platform: files of the kernel and files that reports are written to. The contract of os.h holds.
#pragma once

#include "base/units.h"

namespace freestone::os {

// A file that closes itself.
class File {
 public:
  static File open_to_read(const char* path);
  // Created or emptied; see create_file.
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

// `pattern` with %p replaced by the number of the process and, if `number` is given, %n by that. What does not fit is
// cut off. Returns the length.
usize expand_path(const char* pattern, char* path, usize capacity, const u32* number);

// Keeps a copy of standard error under a high number, not inherited by exec, for what is written at exit: many programs
// close theirs in an exit handler, which runs before a library's. Called when a report is wanted, before there are
// threads.
void keep_stderr();
// Where such a report goes: standard error if it is open, else the copy if nobody put another file in its place.
int stderr_file();
// Writes all of `text` there; gives up on an error other than EINTR.
void write_stderr(const char* text, usize length);
// The whole of a small file into `buffer`; the number of bytes read, 0 on failure.
usize read_file(const char* path, char* buffer, usize capacity);

// Files, for reports. create_file makes or empties a file that only its owner may write (-1 on refusal, a link
// included); descriptors are not inherited by exec.
int create_file(const char* path);
bool write_all(int file, const char* text, usize length);
void close_file(int file);
bool rename_file(const char* from, const char* to);
// A device such as /dev/null: a report is written into it, never put in its place.
bool is_device(const char* path);
void remove_file(const char* path);
// A file of `bytes` zero bytes that readers on this machine share, readable by its owner alone. Null on refusal.
void* map_shared_file(const char* path, usize bytes);

}  // namespace freestone::os
