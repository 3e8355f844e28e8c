// Room 13, stacks: see file_symbols.h.

#include "stacks/file_symbols.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "platform/file.h"

namespace freestone {

namespace {

template <typename T>
bool read_one(const os::File& file, usize offset, T& to) {
  return file.read_at(&to, sizeof to, offset) == sizeof to;
}

bool find_table(const os::File& file, const ElfW(Ehdr) & header, ElfW(Shdr) & symbols, ElfW(Shdr) & strings) {
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    if (!read_one(file, header.e_shoff + i * sizeof symbols, symbols)) return false;
    if (symbols.sh_type == SHT_SYMTAB)
      return read_one(file, header.e_shoff + symbols.sh_link * sizeof strings, strings);
  }
  return false;
}

}  // namespace

usize find_file_symbol(const char* path, usize offset, char* name, usize capacity, usize* into) {
  const os::File file = os::File::open_to_read(path);
  ElfW(Ehdr) header;
  ElfW(Shdr) symbols, strings;
  if (!file.is_open() || !read_one(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  if (!find_table(file, header, symbols, strings)) return 0;
  usize address = 0;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    if (!read_one(file, header.e_phoff + i * sizeof segment, segment)) return 0;
    if (segment.p_type == PT_LOAD && offset - segment.p_offset < segment.p_filesz)
      address = offset - segment.p_offset + segment.p_vaddr;
  }
  ElfW(Sym) piece[64];
  for (usize at = 0; address != 0 && at < symbols.sh_size; at += sizeof piece) {
    const usize got = file.read_at(piece, min_of<usize>(sizeof piece, symbols.sh_size - at), symbols.sh_offset + at) /
                      sizeof piece[0];
    for (usize i = 0; i < got; ++i) {
      if ((piece[i].st_info & 0xF) != STT_FUNC || piece[i].st_shndx == SHN_UNDEF ||
          address - piece[i].st_value >= piece[i].st_size)
        continue;
      *into = address - piece[i].st_value;
      const usize length = file.read_at(name, capacity - 1, strings.sh_offset + piece[i].st_name);
      name[length] = '\0';
      return std::strlen(name);
    }
    if (got == 0) break;
  }
  return 0;
}

}  // namespace freestone
