// Room 20, abi: the part of jemalloc's control interface that programs use, answered from Freestone's own figures
// (mallctl_nodes.cc). Unknown names answer ENOENT, as in jemalloc. A jemalloc that the program is linked with is never
// asked: its arenas would hand out blocks of another heap.

#include <cerrno>
#include <cstring>

#include "abi/mallctl_nodes.h"
#include "abi/names.h"
#include "base/compiler.h"
#include "base/digits.h"
#include "front/heap.h"
#include "platform/file.h"
#include "platform/message.h"
#include "report/statistics_report.h"

using namespace freestone;

namespace {

constexpr usize kComponents = 6;

usize component_length(const char* name) {
  const char* end = std::strchr(name, '.');
  return end != nullptr ? static_cast<usize>(end - name) : std::strlen(name);
}

usize count_components(const char* name) {
  usize count = 1;
  for (; *name != '\0'; ++name) count += *name == '.' ? 1 : 0;
  return count;
}

// Whether the name is the pattern's, with decimal numbers for "#", which go to their places in `numbers`.
bool matches(const char* pattern, const char* name, usize (&numbers)[kComponents]) {
  for (usize k = 0; k < kComponents; ++k) {
    const usize wanted = component_length(pattern);
    const usize given = component_length(name);
    if (*pattern == '#') {
      if (given == 0 || given > 9) return false;
      const char* at = name;
      numbers[k] = take_decimal(at, name + given);
      if (at != name + given) return false;
    } else if (wanted != given || std::memcmp(pattern, name, wanted) != 0) {
      return false;
    }
    pattern += wanted;
    name += given;
    if (*pattern == '\0' || *name == '\0') return *pattern == *name;
    ++pattern;
    ++name;
  }
  return false;
}

const MallctlNode* find_node(const char* name, usize (&numbers)[kComponents]) {
  const MallctlNodes nodes = mallctl_nodes();
  for (usize k = 0; k < nodes.count; ++k) {
    if (matches(nodes.first[k].name, name, numbers)) return &nodes.first[k];
  }
  return nullptr;
}

// `numbers` as they stand at their places in the name.
int answer(const MallctlNode& node, const usize* numbers, void* old, size_t* old_bytes, const void* fresh,
           size_t fresh_bytes) {
  usize given[2] = {};
  usize found = 0;
  usize place = 0;
  for (const char* at = node.name; *at != '\0'; ++at) {
    if (*at == '.') ++place;
    if (*at == '#') given[found++] = numbers[place];
  }
  return node.answer({given[0], given[1], old, old_bytes, fresh, fresh_bytes});
}

struct Writer {
  void (*write)(void* context, const char* text);
  void* context;

  // jemalloc's callback takes strings that end in a zero.
  static void put(void* self, const char* text, usize length) {
    const auto* writer = static_cast<const Writer*>(self);
    char piece[512];
    while (length > 0) {
      const usize taken = min_of(length, sizeof piece - 1);
      std::memcpy(piece, text, taken);
      piece[taken] = '\0';
      writer->write(writer->context, piece);
      text += taken;
      length -= taken;
    }
  }
};

// Also where another malloc serves the program: then there is nothing to show, and what is asked for is granted.
bool is_answered() {
  const Mode now = ensure_started();
  return now == Mode::active || now == Mode::disabled;
}

void write_to_stderr(void*, const char* text) { os::write_stderr(text, std::strlen(text)); }

}  // namespace

extern "C" {

FREESTONE_EXPORT ABI(int, mallctl(const char* name, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes)) {
  if (!is_answered()) return EAGAIN;
  usize numbers[kComponents] = {};
  const MallctlNode* node = find_node(name, numbers);
  if (node == nullptr) return ENOENT;
  return answer(*node, numbers, old, old_bytes, fresh, fresh_bytes);
}

// The position in the table, then the numbers at their places in the name: a caller may replace them.
FREESTONE_EXPORT ABI(int, mallctlnametomib(const char* name, size_t* mib, size_t* length)) {
  usize numbers[kComponents] = {};
  const MallctlNode* node = find_node(name, numbers);
  if (node == nullptr) return ENOENT;
  const usize count = count_components(name);
  if (*length < count) return EINVAL;
  for (usize k = 1; k < count; ++k) mib[k] = numbers[k];
  mib[0] = static_cast<usize>(node - mallctl_nodes().first);
  *length = count;
  return 0;
}

FREESTONE_EXPORT ABI(int, mallctlbymib(const size_t* mib, size_t length, void* old, size_t* old_bytes, void* fresh,
                                       size_t fresh_bytes)) {
  if (!is_answered()) return EAGAIN;
  const MallctlNodes nodes = mallctl_nodes();
  if (length == 0 || mib[0] >= nodes.count) return ENOENT;
  const MallctlNode& node = nodes.first[mib[0]];
  if (length != count_components(node.name)) return ENOENT;
  return answer(node, mib, old, old_bytes, fresh, fresh_bytes);
}

// "J" among the options asks for JSON: jemalloc's six totals under its own names, and ours in full.
FREESTONE_EXPORT ABI(void, malloc_stats_print(void (*write)(void*, const char*), void* context, const char* wishes)) {
  Writer writer{write != nullptr ? write : write_to_stderr, context};
  if (wishes == nullptr || std::strchr(wishes, 'J') == nullptr)
    return print_statistics(Format::text, Writer::put, &writer);
  Statistics s;
  collect_statistics(s, ProcessFigures::left_out);
  Message head("{\"jemalloc\":{\"version\":\"");
  head << kMallctlVersion << "\",\"stats\":{\"allocated\":" << u64{s.live_bytes}
       << ",\"active\":" << u64{active_bytes(s)} << ",\"metadata\":" << u64{s.metadata_bytes}
       << ",\"resident\":" << u64{s.backed_bytes()} << ",\"mapped\":" << u64{s.charged_bytes}
       << ",\"retained\":" << u64{s.clean_bytes} << "}},\"freestone\":";
  Writer::put(&writer, head.data(), head.length());
  print_statistics_json(s, Writer::put, &writer);
  Writer::put(&writer, "}\n", 2);
}

}  // extern "C"
