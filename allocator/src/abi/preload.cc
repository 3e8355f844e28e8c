// Room 20, abi: `preload:once` takes this library out of LD_PRELOAD, so child programs are not served. Only in the
// shared library.
//
// The list is shortened in place, where the kernel put it, before the program's constructors run: earlier readers of
// the variable see the change too, and nothing is allocated.

#include <elf.h>
#include <link.h>

#include <cstring>

#include "base/compiler.h"
#include "config/options.h"
#include "front/heap.h"
#include "platform/file.h"
#include "platform/os.h"

extern "C" FREESTONE_HIDDEN const ElfW(Ehdr) __ehdr_start;  // of this library; the linker defines it

namespace freestone {

namespace {

constexpr u32 kOnce = 1;  // the position of the word in options.def

// The loader's name of this library may be longer than the entry: it has searched for the file, but kept its name.
int find_own_name(dl_phdr_info* object, usize, void* name) {
  if (object->dlpi_addr != reinterpret_cast<usize>(&__ehdr_start)) return 0;
  *static_cast<const char**>(name) = os::file_name(object->dlpi_name);
  return 1;
}

bool is_separator(char character) { return character == ':' || character == ' '; }

// Takes the entries with that file name out of a list, each with one separator.
void remove_entries(char* list, const char* name) {
  const usize length = std::strlen(name);
  char* end = list;
  for (const char* entry = list; *entry != '\0';) {
    const char* entry_end = entry;
    while (*entry_end != '\0' && !is_separator(*entry_end)) ++entry_end;
    const auto entry_bytes = static_cast<usize>(entry_end - entry);
    const bool is_named = entry_bytes >= length && std::memcmp(entry_end - length, name, length) == 0 &&
                          (entry_bytes == length || entry_end[-static_cast<std::ptrdiff_t>(length) - 1] == '/');
    if (!is_named) {
      if (end != list) *end++ = ':';
      std::memmove(end, entry, entry_bytes);
      end += entry_bytes;
    }
    entry = *entry_end == '\0' ? entry_end : entry_end + 1;
  }
  *end = '\0';
}

__attribute__((constructor(102))) void leave_environment() {
  if (ensure_started() != Mode::active || options.preload != kOnce) return;
  const char* name = nullptr;
  dl_iterate_phdr(find_own_name, &name);
  const char* const list = os::environment_value("LD_PRELOAD");
  if (name != nullptr && *name != '\0' && list != nullptr) remove_entries(const_cast<char*>(list), name);
}

}  // namespace

}  // namespace freestone
