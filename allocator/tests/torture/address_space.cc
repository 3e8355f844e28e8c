// A kernel with other bounds: see address_space.h.
#include "torture/address_space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>

namespace freestone::os {
namespace {

constexpr usize kSmallPage = 4 * kKiB;

bool is_refusal(long result) { return result < 0 && result > -4096; }

long reserve_pages(usize bytes, usize page) {
  const long got = call_kernel(
      SYS_mmap, {{0, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, ~usize{0}, 0}});
  if (is_refusal(got)) return got;
  const auto start = static_cast<usize>(got);
  const usize first = round_up(start, page);
  if (first > start) call_kernel(SYS_munmap, {{start, first - start}});
  if (first < start + page) call_kernel(SYS_munmap, {{first + bytes, start + page - first}});
  return static_cast<long>(first);
}

long map_pages(Arguments arguments, usize page) {
  const usize bytes = round_up(arguments[1], page);
  const bool is_file = (arguments[3] & MAP_ANONYMOUS) == 0;
  if ((arguments[3] & MAP_FIXED) != 0) {
    if (arguments[0] % page != 0) return -EINVAL;
    if (!is_file) arguments[1] = bytes;
    return call_kernel(SYS_mmap, arguments);
  }
  if (arguments[0] % page == 0 && arguments[0] != 0) {
    const long got = call_kernel(SYS_mmap, arguments);
    if (is_refusal(got) || static_cast<usize>(got) == arguments[0]) return got;
    call_kernel(SYS_munmap, {{static_cast<usize>(got), bytes}});
  }
  const long place = reserve_pages(bytes, page);
  if (is_refusal(place)) return place;
  arguments[0] = static_cast<usize>(place);
  arguments[3] |= MAP_FIXED;
  if (!is_file) arguments[1] = bytes;
  const long got = call_kernel(SYS_mmap, arguments);
  if (is_refusal(got)) call_kernel(SYS_munmap, {{static_cast<usize>(place), bytes}});
  return got;
}

long move_pages(Arguments arguments, usize page) {
  const bool to_fixed_place = (arguments[3] & MREMAP_FIXED) != 0;
  if (arguments[0] % page != 0 || (to_fixed_place && arguments[4] % page != 0)) return -EINVAL;
  arguments[1] = round_up(arguments[1], page);
  arguments[2] = round_up(arguments[2], page);
  if (to_fixed_place || arguments[2] <= arguments[1]) return call_kernel(SYS_mremap, arguments);
  const long in_place = call_kernel(SYS_mremap, {{arguments[0], arguments[1], arguments[2], 0}});
  if (!is_refusal(in_place) || (arguments[3] & MREMAP_MAYMOVE) == 0) return in_place;
  const long place = reserve_pages(arguments[2], page);
  if (is_refusal(place)) return place;
  arguments[3] |= MREMAP_FIXED;
  arguments[4] = static_cast<usize>(place);
  const long got = call_kernel(SYS_mremap, arguments);
  if (is_refusal(got)) call_kernel(SYS_munmap, {{static_cast<usize>(place), arguments[2]}});
  return got;
}

struct Mapping {
  usize start;
  usize end;
};

// The next line of /proc/self/maps, read in pieces. False at the end.
class Mappings {
 public:
  Mappings() : file_(call_kernel(SYS_openat, {{static_cast<usize>(AT_FDCWD), address_of("/proc/self/maps"),
                                               O_RDONLY | O_CLOEXEC}})) {}
  ~Mappings() {
    if (file_ >= 0) call_kernel(SYS_close, {{static_cast<usize>(file_)}});
  }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  bool next(Mapping& mapping) {
    if (!number('-', mapping.start) || !number(' ', mapping.end)) return false;
    for (char c = 0; c != '\n';)
      if (!character(c)) return false;
    return true;
  }

 private:
  bool character(char& c) {
    if (at_ == length_) {
      at_ = 0;
      const auto file = static_cast<usize>(file_);
      length_ = file_ < 0 ? 0 : call_kernel(SYS_read, {{file, address_of(buffer_), sizeof buffer_}});
      if (length_ <= 0) {
        length_ = 0;
        return false;
      }
    }
    c = buffer_[at_++];
    return true;
  }
  bool number(char end, usize& value) {
    value = 0;
    for (char c;;) {
      if (!character(c)) return false;
      if (c == end) return true;
      value = value * 16 + static_cast<usize>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
  }

  long file_;
  char buffer_[2048];
  long at_ = 0;
  long length_ = 0;
};

// Whether the border of a range lies inside a mapping; with `both`, whether both lie inside one.
bool cuts_a_mapping(usize start, usize end, bool both) {
  Mappings mappings;
  for (Mapping mapping; mappings.next(mapping);) {
    const bool at_start = mapping.start < start && start < mapping.end;
    const bool at_end = mapping.start < end && end < mapping.end;
    if (both ? at_start && at_end : at_start || at_end) return true;
  }
  return false;
}

}  // namespace

long call_with_pages(long number, Arguments arguments, usize page) {
  switch (number) {
    case SYS_mmap: return map_pages(arguments, page);
    case SYS_mremap: return move_pages(arguments, page);
    case SYS_munmap:
    case SYS_mprotect:
    case SYS_madvise:
      // The one page of the library's own variables, which the linker has placed for this processor's pages.
      if (number == SYS_madvise && arguments[2] == MADV_WIPEONFORK) return call_kernel(number, arguments);
      if (arguments[0] % page != 0) return -EINVAL;
      arguments[1] = round_up(arguments[1], page);
      return call_kernel(number, arguments);
    default: return call_kernel(number, arguments);
  }
}

bool refuse_mapping(long number, const Arguments& arguments, long& result) {
  const usize start = arguments.at[0];
  const usize end = start + round_up(arguments.at[1], kSmallPage);
  result = -ENOMEM;
  switch (number) {
    case SYS_mmap: return true;
    case SYS_mremap:
      if ((arguments.at[3] & MREMAP_FIXED) != 0) call_kernel(SYS_munmap, {{arguments.at[4], arguments.at[2]}});
      return true;
    case SYS_munmap: return cuts_a_mapping(start, end, true);
    case SYS_mprotect: return cuts_a_mapping(start, end, false);
    case SYS_madvise: {
      const usize advice = arguments.at[2];
      const bool changes_flags = advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE || advice == MADV_WIPEONFORK;
      return changes_flags && cuts_a_mapping(start, end, false);
    }
    default: return false;
  }
}

}  // namespace freestone::os
