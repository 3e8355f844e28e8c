// Room 13, stacks: see memory_maps.h.

#include "stacks/memory_maps.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "base/digits.h"

namespace freestone {

namespace {

// Reads one line at a time through a buffer on the stack. Cuts a path that is longer than the buffer.
class LineReader {
 public:
  explicit LineReader(const os::File& file) : file_(file) {}

  // Null at the end. The line ends with a zero.
  char* next() {
    for (;;) {
      if (auto* newline = static_cast<char*>(std::memchr(buffer_ + from_, '\n', to_ - from_)); newline != nullptr) {
        *newline = '\0';
        char* line = buffer_ + from_;
        from_ = static_cast<usize>(newline - buffer_) + 1;
        return line;
      }
      std::memmove(buffer_, buffer_ + from_, to_ - from_);
      to_ -= from_;
      from_ = 0;
      if (to_ == kCapacity) buffer_[to_ - 1] = '\n';
      if (to_ == kCapacity) continue;
      const usize got = file_.read(buffer_ + to_, kCapacity - to_);
      if (got == 0) return nullptr;
      to_ += got;
    }
  }

 private:
  static constexpr usize kCapacity = 2 * kKiB;
  const os::File& file_;
  usize from_ = 0;
  usize to_ = 0;
  char buffer_[kCapacity];
};

u64 take_hex(const char*& text) {
  constexpr char kHexDigits[] = "0123456789abcdef";
  u64 value = 0;
  for (; const auto* digit = std::memchr(kHexDigits, *text, 16); ++text)
    value = value * 16 + static_cast<u64>(static_cast<const char*>(digit) - kHexDigits);
  return value;
}

void skip_field(const char*& text) {
  while (*text != ' ' && *text != '\0') ++text;
  while (*text == ' ') ++text;
}

}  // namespace

bool read_mappings(bool (*visit)(void* context, const Mapping& mapping), void* context) {
  const os::File file = os::File::open_own("maps");
  if (!file.is_open()) return false;
  LineReader lines(file);
  usize image = 0;
  u64 image_inode = 0;
  while (const char* at = lines.next()) {
    // start-end perms offset device inode name
    Mapping mapping{};
    mapping.start = take_hex(at);
    ++at;
    mapping.end = take_hex(at);
    ++at;
    mapping.readable = at[0] == 'r';
    mapping.writable = at[1] == 'w';
    mapping.executable = at[2] == 'x';
    mapping.shared = at[3] == 's';
    skip_field(at);
    mapping.file_offset = take_hex(at);
    ++at;
    skip_field(at);
    mapping.inode = take_decimal(at);
    if (mapping.inode != 0 && mapping.file_offset == 0 && mapping.inode != image_inode) {
      image = mapping.start;
      image_inode = mapping.inode;
    }
    if (mapping.inode == image_inode) mapping.image = image;
    while (*at == ' ') ++at;
    mapping.name = at;
    if (!visit(context, mapping)) break;
  }
  return true;
}

void build_id_of(usize image, usize image_end, char* text, usize capacity) {
  text[0] = '\0';
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(image);
  if (image_end - image < sizeof *header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
  const auto inside = [&](usize offset, usize bytes) {
    return offset <= image_end - image && bytes <= image_end - image - offset;
  };
  if (!inside(header->e_phoff, header->e_phnum * sizeof(ElfW(Phdr)))) return;
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(image + header->e_phoff);
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_NOTE || !inside(segments[i].p_offset, segments[i].p_filesz)) continue;
    usize at = image + segments[i].p_offset;
    const usize end = at + segments[i].p_filesz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const usize name = at + sizeof *note;
      const usize content = name + round_up(note->n_namesz, 4);
      if (content + note->n_descsz > end) break;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
          std::memcmp(reinterpret_cast<const char*>(name), "GNU", 4) == 0) {
        const auto* bytes = reinterpret_cast<const u8*>(content);
        usize length = 0;
        for (usize k = 0; k < note->n_descsz && length + 2 < capacity; ++k) {
          text[length++] = "0123456789abcdef"[bytes[k] >> 4];
          text[length++] = "0123456789abcdef"[bytes[k] & 15];
        }
        text[length] = '\0';
        return;
      }
      at = content + round_up(note->n_descsz, 4);
    }
  }
}

}  // namespace freestone
