// Room 4, platform: files of the kernel, and files for reports. The contract of os.h holds.
#pragma once

#include <cstring>

#include "base/units.h"

namespace freestone::os {

// A file that closes itself.
class File {
 public:
  static File open_to_read(const char* path);
  // What /proc says of this process under that name, also after the end of its first thread, which leaves /proc/self
  // empty.
  static File open_own(const char* name);
  // Opens a new file for its owner alone, or an emptied one; see create_file.
  static File create_private(const char* path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  // Returns the bytes read; 0 at the end or on failure.
  usize read(void* buffer, usize capacity) const;
  usize read_at(void* buffer, usize bytes, usize offset) const;
  // Where the next `read` begins. False on failure.
  bool seek(usize offset) const;
  // False if it could not write everything.
  bool write(const void* data, usize bytes) const;

 private:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

// Which pages of this process are in memory, by its pagemap. Those in the swap count as absent: a page that a
// guard makes fault looks the same. For reports that somebody asked for: filters of system calls refuse such files.
class PageTable {
 public:
  PageTable() : file_(File::open_own("pagemap")) {}
  static constexpr usize kPagesMax = 128;  // an answer takes 8 bytes of what may be a small stack
  // One answer for each of at most kPagesMax pages. False where the kernel does not say.
  bool look(usize address, usize pages, bool* in_memory) const;

 private:
  File file_;
};

// Copies `pattern` with the process number for %p and, if `number` is given, that number for %n. Cuts off what does not
// fit. Returns the length.
usize expand_path(const char* pattern, char* path, usize capacity, const u32* number);

// Keeps a copy of standard error under a high number for reports at exit, because many programs close theirs in an exit
// handler, which runs before a library's. exec does not inherit the copy. Called before the program has threads, if an
// option asks for a report.
void keep_stderr();
// The descriptor for such a report: standard error if it is open, else the copy, unless somebody put another file
// there.
int stderr_file();
// Writes all of `text` to that descriptor. Gives up on any error but EINTR.
void write_stderr(const char* text, usize length);
// The part of a path behind its last slash.
inline const char* file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

// Reads a whole small file into `buffer`. Returns the number of bytes; 0 on failure.
usize read_file(const File& file, char* buffer, usize capacity);
usize read_file(const char* path, char* buffer, usize capacity);

// Files for reports. create_file makes or empties a file; a new one has these rights (0600: its owner alone). It
// returns -1 on refusal, and it refuses links. exec inherits none of these descriptors.
int create_file(const char* path, unsigned rights);
bool write_all(int file, const char* text, usize length);
void close_file(int file);
bool rename_file(const char* from, const char* to);
// Whether the path is a device such as /dev/null. A report is written into a device and never replaces it.
bool is_device(const char* path);
void remove_file(const char* path);
// Maps a new file of `bytes` zero bytes, which processes of the same owner may read. Null on refusal.
void* map_shared_file(const char* path, usize bytes);

}  // namespace freestone::os
