#include "writer/samples.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace freestone::trace {
namespace {

constexpr uint32_t kCurveFull = 4096;
constexpr uint64_t kPageBudget = 1 << 15;  // pages to look at in one go, about a millisecond
constexpr uint64_t kPageBytes = 4096;

}  // namespace

void Samples::read_resident() {
  const uint64_t time = merge_.now();
  const auto kib = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 1024;
  auto& processes = merge_.processes();
  for (uint32_t number = 0; number < processes.size(); number++) {
    const Process& process = processes[number];
    if (!process.known || process.ended) continue;
    char text[128];
    std::snprintf(text, sizeof text, "/proc/%u/statm", process.pid);
    const int fd = open(text, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    const ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    if (count <= 0) continue;
    text[count] = 0;
    unsigned long long size = 0, resident = 0, shared = 0;
    if (std::sscanf(text, "%llu %llu %llu", &size, &resident, &shared) != 3 || resident == 0) continue;
    Curve& curve = curves_[number];
    if (curve.count == 0) curve.first_time = curve.last_time = time;
    put_varint(curve.payload, time - curve.last_time);
    put_varint(curve.payload, resident * kib);
    put_varint(curve.payload, (resident - std::min(resident, shared)) * kib);
    curve.last_time = time;
    if (++curve.count == kCurveFull) send(number, curve);
  }
}

void Samples::send(uint32_t process, Curve& curve) {
  if (curve.count == 0) return;
  output_.put(
      {FST_BLOCK_SAMPLES, process, 0, curve.count, curve.first_time, curve.last_time, 0, std::move(curve.payload)});
  curve = {};
}

uint64_t Samples::present_pages(int fd, uint64_t address, uint64_t bytes, uint64_t& budget) {
  uint64_t entries[512];
  const uint64_t first = address / kPageBytes;
  const uint64_t end = (address + bytes + kPageBytes - 1) / kPageBytes;
  uint64_t present = 0;
  for (uint64_t page = first; page < end;) {
    const uint64_t want = std::min<uint64_t>(end - page, std::size(entries));
    const ssize_t got = pread(fd, entries, want * 8, static_cast<off_t>(page * 8));
    if (got <= 0) break;
    for (ssize_t i = 0; i < got / 8; i++) present += entries[i] >> 63;
    page += want;
    budget -= std::min(budget, want);
  }
  return present;
}

void Samples::read_pages() {
  auto& processes = merge_.processes();
  uint64_t budget = kPageBudget;
  for (size_t tried = 0; tried < processes.size() && budget; tried++) {
    Process& process = processes[next_process_];
    if (process.known && !process.ended && !process.large.empty()) {
      const int fd = open(("/proc/" + std::to_string(process.pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC);
      auto at = process.large.lower_bound(next_address_);
      for (; fd >= 0 && at != process.large.end() && budget; ++at) {
        Large& block = at->second;
        const uint64_t pages = present_pages(fd, at->first, block.bytes, budget);
        if (pages != block.pages) merge_.touched(block.name, pages);
        block.pages = pages;
      }
      if (fd >= 0) close(fd);
      next_address_ = at == process.large.end() ? 0 : at->first;
      if (next_address_) return;
    }
    next_address_ = 0;
    next_process_ = (next_process_ + 1) % static_cast<uint32_t>(processes.size());
  }
}

void Samples::flush_all() {
  for (auto& [process, curve] : curves_) send(process, curve);
}

}  // namespace freestone::trace
