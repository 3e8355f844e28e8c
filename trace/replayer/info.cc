#include "replayer/info.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <vector>

#include "replayer/rows.h"

namespace freestone::trace {
namespace {

struct Change {
  uint64_t time;
  int64_t bytes;
  int64_t objects;
};

void print_process(const TraceFile& trace, uint32_t process, std::vector<Change>& changes, const char* comma) {
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });
  int64_t bytes = 0, objects = 0, most_bytes = 0, most_objects = 0;
  for (const Change& change : changes) {
    most_bytes = std::max(most_bytes, bytes += change.bytes);
    most_objects = std::max(most_objects, objects += change.objects);
  }
  std::printf("%s{\"process\":%u,\"events\":%zu,\"live_bytes\":%lld,\"live_objects\":%lld", comma, process,
              changes.size(), static_cast<long long>(most_bytes), static_cast<long long>(most_objects));
  uint64_t resident = 0;
  for (const Point& point : trace.points)
    if (point.process == process) resident = std::max(resident, point.resident_kib);
  if (resident) std::printf(",\"resident_kib\":%llu", static_cast<unsigned long long>(resident));
  std::printf("}");
}

}  // namespace

void print_info(const TraceFile& trace) {
  const Births births(trace);
  std::vector<uint64_t> sizes;  // by row
  for (const ThreadEvents& thread : trace.threads)
    for (const Event& event : thread.events) sizes.push_back(event.size);
  std::array<uint64_t, FST_KINDS_END> kinds{};
  std::map<uint32_t, std::vector<Change>> changes;
  uint64_t events = 0, crossing = 0, last = 0;
  for (const ThreadEvents& thread : trace.threads) {
    std::vector<Change>& own = changes[thread.process];
    events += thread.events.size();
    for (const Event& event : thread.events) {
      const bool born = event.birth != kNone, ends = fst_is_death(event.kind) && !event.failed;
      kinds[event.kind]++;
      crossing += ends && event.ref_thread != thread.thread;
      last = std::max(last, event.time);
      const uint64_t object = ends ? births.row_of_named(event) : kNone;
      const uint64_t ended = object == kNone ? 0 : sizes[object];
      own.push_back({event.time, static_cast<int64_t>(born ? event.size : 0) - static_cast<int64_t>(ended),
                     int64_t{born} - int64_t{ends}});
    }
  }
  std::printf("{\"meta\":%s,\"summary\":%s,\"bytes\":%llu,\"step_ns\":%llu,\"last\":%llu,\"events\":%llu,",
              trace.meta.empty() ? "{}" : trace.meta.c_str(), trace.summary.empty() ? "{}" : trace.summary.c_str(),
              static_cast<unsigned long long>(trace.bytes), static_cast<unsigned long long>(trace.step_ns),
              static_cast<unsigned long long>(last), static_cast<unsigned long long>(events));
  std::printf("\"threads\":%zu,\"crossing\":%llu,\"kinds\":[", trace.threads.size(),
              static_cast<unsigned long long>(crossing));
  for (size_t i = 0; i < kinds.size(); i++)
    std::printf("%s%llu", i ? "," : "", static_cast<unsigned long long>(kinds[i]));
  std::printf("],\"gaps\":[");
  for (size_t i = 0; i < trace.gaps.size(); i++)
    std::printf("%s[%llu,%llu]", i ? "," : "", static_cast<unsigned long long>(trace.gaps[i].first_time),
                static_cast<unsigned long long>(trace.gaps[i].last_time));
  std::printf("],\"processes\":[");
  const char* comma = "";
  for (auto& [process, own] : changes) {
    print_process(trace, process, own, comma);
    comma = ",";
  }
  std::printf("],\"cut\":\"");
  for (const char c : trace.cut) std::putchar(c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? '?' : c);
  std::printf("\"}\n");
}

}  // namespace freestone::trace
