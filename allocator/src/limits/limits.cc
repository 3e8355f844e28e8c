// Room 12, limits: see limits.h.

#include "limits/limits.h"

#include <cerrno>
#include <cstring>

#include "base/digits.h"
#include "base/places.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "front/reclaim.h"
#include "platform/file.h"
#include "platform/os.h"
#include "region/account.h"
#include "region/region.h"
#include "span/run_store.h"

namespace freestone {

constinit Mutex attention_lock{LockName::upkeep};

namespace {

constexpr usize kPathBytes = 512;
constexpr usize kNotLimiting = usize{1} << 60;  // cgroup version 1 writes "no limit" as a number near 2^63

u64 last_soft_ms FREESTONE_GUARDED_BY(attention_lock) = 0;
usize last_soft_charged FREESTONE_GUARDED_BY(attention_lock) = 0;
u64 last_stall_us FREESTONE_GUARDED_BY(attention_lock) = 0;
bool knows_stall FREESTONE_GUARDED_BY(attention_lock) = false;

Atomic<u64> reactions;  // relaxed: a statistic

// A path built from pieces. A piece that does not fit is left out.
struct Path {
  char text[kPathBytes] = "";
  usize length = 0;

  Path& operator+=(const char* piece) { return add(piece, std::strlen(piece)); }
  Path& add(const char* piece, usize bytes) {
    if (length + bytes >= kPathBytes) bytes = 0;
    std::memcpy(text + length, piece, bytes);
    length += bytes;
    text[length] = '\0';
    return *this;
  }
  void cut(usize to) { text[length = to] = '\0'; }
};

bool parse(const char* text, usize length, u64& value) {
  const char* at = text;
  value = take_decimal(at, text + length);
  return at != text;
}

// Reads a file of the folder. Returns the number of bytes; 0 on failure.
usize read(Path folder, const char* name, char* text, usize capacity) {
  folder += "/";
  folder += name;
  return os::read_file(folder.text, text, capacity);
}

// Reads the number in such a file. False if there is no number, as in "max".
bool read_number(const Path& folder, const char* name, u64& value) {
  char text[32];
  return parse(text, read(folder, name, text, sizeof text), value);
}

bool exists(const Path& folder, const char* name) {
  char text[1];
  return read(folder, name, text, sizeof text) > 0;
}

// Finds the group's folder in one of the two hierarchies. In /proc/self/cgroup its line has `marker` from the first
// colon on.
bool find_folder(const char* groups, usize length, const char* marker, const char* const* mounts, const char* file,
                 Path& folder, usize& root) {
  const char* end = groups + length;
  for (const char* line = groups; line < end;) {
    const auto* newline = static_cast<const char*>(std::memchr(line, '\n', static_cast<usize>(end - line)));
    const char* line_end = newline != nullptr ? newline : end;
    const auto* colon = static_cast<const char*>(std::memchr(line, ':', static_cast<usize>(line_end - line)));
    if (colon != nullptr && std::strncmp(colon, marker, std::strlen(marker)) == 0) {
      const char* group = colon + std::strlen(marker);
      for (; *mounts != nullptr; ++mounts) {
        folder = {};
        folder += *mounts;
        root = folder.length;
        folder.add(group, static_cast<usize>(line_end - group));
        // In a container the path may be the host's. Then the mount itself is our group.
        if (exists(folder, file)) return true;
        folder.cut(root);
        if (exists(folder, file)) return true;
      }
      return false;
    }
    line = line_end + 1;
  }
  return false;
}

constexpr const char* kMounts2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", nullptr};
constexpr const char* kMounts1[] = {"/sys/fs/cgroup/memory", nullptr};

// Finds the folder of our memory group. The first `root` letters name the folder above which there is no group.
bool own_group(Path& folder, usize& root) {
  if (options.cgroup[0] != '\0') {
    folder += options.cgroup;
    root = folder.length;
    return true;
  }
  char groups[2048];
  const usize length = os::read_file("/proc/self/cgroup", groups, sizeof groups);
  return find_folder(groups, length, "::", kMounts2, "memory.current", folder, root) ||
         find_folder(groups, length, ":memory:", kMounts1, "memory.usage_in_bytes", folder, root);
}

usize resolved(usize option) {
  if ((option & kPercentBit) == 0) return option;
  return container_limit_bytes() / 100 * (option & ~kPercentBit);
}

// Whether memory.high is near. Above it the kernel slows the program down.
bool is_near_high(const Path& folder) {
  u64 high = 0;
  u64 current = 0;
  return read_number(folder, "memory.high", high) && read_number(folder, "memory.current", current) &&
         current >= high - high / 16;
}

// Whether some thread waited for memory for more than a twentieth of the time since the last look.
bool was_stalled(const Path& folder, u64 elapsed_ms) FREESTONE_REQUIRES(attention_lock) {
  char text[256];
  usize length = read(folder, "memory.pressure", text, sizeof text - 1);
  if (length == 0 && options.cgroup[0] == '\0') length = os::read_file("/proc/pressure/memory", text, sizeof text - 1);
  text[length] = '\0';
  const char* total = std::strstr(text, "total=");
  u64 stall_us = 0;
  if (total == nullptr || !parse(total + 6, length - static_cast<usize>(total + 6 - text), stall_us)) return false;
  const bool stalled = knows_stall && stall_us - last_stall_us > elapsed_ms * 1000 / 20;
  last_stall_us = stall_us;
  knows_stall = true;
  return stalled;
}

}  // namespace

usize container_limit_bytes() {
  usize least = os::physical_bytes();
  Path folder;
  usize root = 0;
  if (!own_group(folder, root)) return least;
  while (true) {
    u64 limit = 0;
    const bool has = read_number(folder, "memory.max", limit) || read_number(folder, "memory.limit_in_bytes", limit);
    if (has && limit < kNotLimiting) least = min_of(least, usize{limit});
    usize slash = folder.length;
    while (slash > root && folder.text[slash - 1] != '/') --slash;
    if (slash <= root) return least;
    folder.cut(slash - 1);
  }
}

bool cgroup_option_is_good() {
  if (options.cgroup[0] == '\0') return true;
  Path folder;
  folder += options.cgroup;
  return exists(folder, "memory.max") || exists(folder, "memory.high") || exists(folder, "memory.pressure") ||
         exists(folder, "memory.limit_in_bytes");
}

int set_limits(usize soft_bytes, usize hard_bytes) {
  const usize soft = soft_bytes == 0 ? kNoLimit : soft_bytes;
  const usize hard = hard_bytes == 0 ? kNoLimit : hard_bytes;
  if (soft_bytes != 0 && soft > hard) return EINVAL;
  account.hard.store_seq(hard);
  if (is_limited()) release_retired_runs();  // what is scarce serves any length
  account.soft.store_seq(soft);
  if (hard != kNoLimit && region.frontier.load_acquire() != kNoUnit) {
    // A huge page would bring memory that was never charged.
    for_each_heap_piece([](UnitIndex first, UnitIndex end) {
      os::advise_huge_pages(unit_address(first), units_to_bytes(end - first), os::HugePages::refuse);
    });
  }
  if (account.charged.load_relaxed() > min_of(soft, hard)) give_back_everything();
  return 0;
}

bool apply_limit_options() { return set_limits(resolved(options.limit_soft), resolved(options.limit_hard)) == 0; }

void react_to_soft_limit() {
  const u64 now = os::coarse_milliseconds();
  const usize charged = account.charged.load_relaxed();
  const usize soft = account.soft.load_relaxed();
  if (charged <= soft) return;
  if (now - last_soft_ms < kShortageEveryMs && charged < last_soft_charged + soft / 64) return;
  give_back_everything();
  last_soft_ms = now;
  last_soft_charged = account.charged.load_relaxed();
}

void look_at_pressure() {
  static u64 last_ms FREESTONE_GUARDED_BY(attention_lock) = 0;
  const u64 now = os::coarse_milliseconds();
  Path folder;
  usize root = 0;
  own_group(folder, root);
  const bool stalled = was_stalled(folder, now - last_ms);
  last_ms = now;
  if (!stalled && !is_near_high(folder)) return;
  reactions.add_relaxed(1);
  give_back_everything();
}

u64 pressure_reactions() { return reactions.load_relaxed(); }

constinit Places pressure_places = {&reactions};

}  // namespace freestone
