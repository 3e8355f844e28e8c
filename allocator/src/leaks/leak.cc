// Room 16, leaks: see leak.h.

#include "leaks/leak.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "config/options.h"
#include "leaks/leak_scan.h"
#include "platform/message.h"
#include "platform/os.h"
#include "profile/profile.h"
#include "profile/profile_report.h"

namespace freestone {

namespace {

constexpr unsigned kShownOnTerminal = 20;

struct LostSite {
  const Site* site;
  Amount lost;
};

bool is_exact() { return static_cast<LeakMode>(options.leak) == LeakMode::exact; }

// Says why a report names nothing.
void explain_nothing(const LeakCounts& counts, Message& line) FREESTONE_REQUIRES(profile_store.lock) {
  if (!counts.scanned) {
    line << "the search for pointers failed: no memory, no /proc, or threads that cannot be stopped";
  } else if (profile_store.totals().samples == 0) {
    line << (is_exact() ? "no block was allocated" : "nothing was sampled");
  } else if (counts.reachable_objects == 0) {
    line << (is_exact() ? "no live block" : "no sampled block is live");
  } else {
    line << (is_exact() ? "every live block is reachable" : "every live block that was sampled is reachable");
  }
  if (!is_exact())
    line << " (mean " << profile_sample_bytes.load_relaxed() << " bytes between samples, "
         << profile_store.totals().samples << " samples)";
}

void print_report(const LeakCounts& counts, const LostSite* sites, unsigned count)
    FREESTONE_REQUIRES(profile_store.lock) {
  Message head;
  head << "leaks of process " << os::process_id() << ": ";
  if (count == 0) {
    head << "none found: ";
    explain_nothing(counts, head);
    head.write();
    return;
  }
  head << (is_exact() ? "" : "about ") << whole(counts.lost_bytes) << " bytes in " << whole(counts.lost_objects)
       << " blocks lost, from " << count << " places; " << whole(counts.reachable_bytes) << " bytes in "
       << whole(counts.reachable_objects) << " blocks reachable";
  head.write();
  for (unsigned i = 0; i < count && i < kShownOnTerminal; ++i) {
    (Message(" ") << whole(sites[i].lost.bytes) << " bytes in " << whole(sites[i].lost.objects)
                  << " blocks allocated by")
        .write();
    print_stack(sites[i].site->frames, sites[i].site->depth);
  }
  if (count > kShownOnTerminal) (Message(" and from ") << count - kShownOnTerminal << " more places").write();
}

void write_text(Output& out, const char* text) {
  out << '"';
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') out << '\\';
    out << (static_cast<u8>(*text) < 0x20 ? '?' : *text);
  }
  out << '"';
}

// The whole report, for a tool that knows symbols: addresses, and where each file lies.
void write_json(const LeakCounts& counts, const LostSite* sites, unsigned count, ProfileReport& report, Output& out)
    FREESTONE_REQUIRES(profile_store.lock) {
  const auto amount = [&](const char* name, double objects, double bytes) {
    out << ",\n\"" << name << "\": {\"blocks\": " << whole(objects) << ", \"bytes\": " << whole(bytes) << '}';
  };
  out << "{\"schema\": \"freestone-leaks/1\", \"process\": " << u64{os::process_id()} << ", \"mode\": \""
      << (is_exact() ? "exact" : "sampled") << "\", \"sample_bytes\": " << profile_sample_bytes.load_relaxed()
      << ", \"samples\": " << profile_store.totals().samples
      << ", \"scanned\": " << (counts.scanned ? "true" : "false");
  if (count == 0) {
    Message reason("");
    explain_nothing(counts, reason);
    reason << '\0';
    out << ", \"reason\": ";
    write_text(out, reason.data());
  }
  amount("lost", counts.lost_objects, counts.lost_bytes);
  amount("reachable", counts.reachable_objects, counts.reachable_bytes);
  out << ",\n\"sites\": [";
  for (unsigned i = 0; i < count; ++i) {
    out << (i > 0 ? ",\n" : "\n") << "{\"blocks\": " << whole(sites[i].lost.objects)
        << ", \"bytes\": " << whole(sites[i].lost.bytes) << ", \"frames\": [";
    for (unsigned k = 0; k < sites[i].site->depth; ++k) {
      const usize frame = sites[i].site->frames[k];
      if (k > 0) out << ", ";
      if (is_python_frame(frame)) {
        const PythonFunction& function = python_function(python_function_of(frame - 1));
        out << "{\"function\": ";
        write_text(out, function.name);
        out << ", \"file\": ";
        write_text(out, function.file);
        out << ", \"line\": " << u64{python_line_of(frame - 1)} << '}';
      } else {
        (out << '"').hex(frame) << '"';
      }
    }
    out << "]}";
  }
  out << "],\n\"mappings\": [";
  for (unsigned i = 0; i < report.module_count; ++i) {
    const Module& module = report.modules[i];
    out << (i > 0 ? ",\n" : "\n") << "{\"start\": \"";
    out.hex(module.start) << "\", \"end\": \"";
    out.hex(module.end) << "\", \"offset\": \"";
    out.hex(module.file_offset) << "\", \"path\": ";
    write_text(out, report.names + module.name);
    out << ", \"build_id\": \"" << module.build_id << "\"}";
  }
  out << "]}\n";
}

// Writes into a file or a MemoryText. False if memory is out, or if the file does not take everything.
template <typename Target>
bool put_json(const LeakCounts& counts, const LostSite* sites, unsigned count, Target& target)
    FREESTONE_REQUIRES(profile_store.lock) {
  constexpr usize kBufferBytes = 64 * kKiB;
  auto* buffer = static_cast<char*>(profile_store.scratch_locked(kBufferBytes));
  ProfileReport report;
  if (buffer == nullptr || !report.gather(false)) return false;
  Output out(target, buffer, kBufferBytes);
  write_json(counts, sites, count, report, out);
  return out.flush();
}

void save_json(const LeakCounts& counts, const LostSite* sites, unsigned count) FREESTONE_REQUIRES(profile_store.lock) {
  char path[kOptionTextBytes + 32];
  expand_profile_path(options.leak_file, path, sizeof path);
  const os::File file = os::File::create_private(path);
  if (!file.is_open() || !put_json(counts, sites, count, file))
    (Message() << "the leak report cannot be written to " << path).write();
}

// Searches, and writes the report into `text`, or if that is null to where the options say. Clears `good` if the text
// has no room.
FREESTONE_APART LeakCounts search(const ProgramFrames& here, MemoryText* text, bool& good) {
  // Threads run again once the search is over. What they allocate from now on counts neither as lost nor as reachable.
  const u64 asked_ns = os::nanoseconds();
  Reachable reachable;
  LeakCounts counts{};
  counts.scanned = reachable.find(here);
  ProfileLock lock;
  const usize start = profile_store.scratch_start_locked();
  const unsigned site_count = profile_store.site_count();
  auto* sites = static_cast<LostSite*>(profile_store.scratch_locked(max_of(site_count, 1U) * sizeof(LostSite)));
  unsigned count = 0;
  if (sites == nullptr) counts.scanned = false;
  if (counts.scanned) {
    for (unsigned i = 0; i < site_count; ++i) sites[i] = {&profile_store.site(i), {}};
    profile_store.for_each_live([&](const LiveSample& sample) {
      if (sample.born_ns >= asked_ns) return;
      const bool lost = !reachable.holds(reinterpret_cast<const void*>(sample.block));
      (lost ? counts.lost_objects : counts.reachable_objects) += sample.weight;
      (lost ? counts.lost_bytes : counts.reachable_bytes) += sample.weight * static_cast<double>(sample.bytes);
      if (lost) {
        ++counts.lost_samples;
        sites[sample.site->id].lost.add(sample.weight, sample.bytes);
      }
    });
    for (unsigned i = 0; i < site_count; ++i) {
      if (sites[i].lost.objects > 0) sites[count++] = sites[i];
    }
    const auto by_loss = [](const LostSite& a, const LostSite& b) { return a.lost.bytes > b.lost.bytes; };
    std::make_heap(sites, sites + count, by_loss);
    std::sort_heap(sites, sites + count, by_loss);
  }
  if (text != nullptr) {
    good = put_json(counts, sites, count, *text);
  } else if (options.leak_file[0] == '\0') {
    print_report(counts, sites, count);
  } else {
    save_json(counts, sites, count);
  }
  profile_store.release_scratch_locked(start);
  return counts;
}

}  // namespace

LeakCounts report_leaks() {
  const ProgramFrames here;
  bool good = true;
  return search(here, nullptr, good);
}

int write_leaks(MemoryText& text) {
  const ProgramFrames here;
  bool good = false;
  search(here, &text, good);
  return good ? 0 : ENOMEM;
}

void report_leaks_at_exit() {
  const LeakCounts counts = report_leaks();
  if (counts.lost_samples == 0 || options.leak_error == 0) return;
  std::fflush(nullptr);  // as exit would still do for the program
  os::exit_now(static_cast<int>(options.leak_error));
}

}  // namespace freestone
