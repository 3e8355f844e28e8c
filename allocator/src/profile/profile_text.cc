// Room 14, profile: writes a profile as collapsed stacks ("main;f;g 4096", for flame graphs) and as jemalloc's heap_v2
// (for jeprof).

#include <initializer_list>

#include "profile/profile_report.h"

namespace freestone {

namespace {

void write_stack(const ProfileReport& report, const Site& site, Output& out) {
  const unsigned depth = report.depth_of(site);
  if (depth == 0) out << "unknown";
  for (unsigned k = depth; k-- > 0;) {
    write_place(report, report.places[report.place_of(site.frames[k])], out);
    if (k > 0) out << ';';
  }
}

constexpr const char* kLived[kLifetimes] = {"below 1us",   "1us to 10us",   "10us to 100us",   "100us to 1ms",
                                            "1ms to 10ms", "10ms to 100ms", "100ms to 1s",     "1s to 10s",
                                            "10s to 100s", "100s to 1000s", "1000s and longer"};

}  // namespace

void write_collapsed(const ProfileReport& report, ProfileView view, Output& out) {
  for (unsigned i = 0; i < profile_store.site_count(); ++i) {
    const Site& site = profile_store.site(i);
    const auto line = [&](const Amount& amount, const char* leaf) {
      const u64 bytes = whole(amount.bytes);
      if (bytes == 0) return;
      write_stack(report, site, out);
      if (leaf != nullptr) out << ";[lived " << leaf << ']';
      out << ' ' << bytes << '\n';
    };
    switch (view) {
      case ProfileView::live: line(site.live, nullptr); break;
      case ProfileView::cumulative: line(site.allocated, nullptr); break;
      case ProfileView::peak: line(profile_store.peak_of(site), nullptr); break;
      case ProfileView::lifetime:
        for (unsigned k = 0; k < kLifetimes; ++k) line(site.freed[k], kLived[k]);
        break;
    }
  }
}

// Counts and bytes as sampled. The reader weights them by the mean in the first line.
void write_heap_v2(const ProfileReport& report, Output& out) {
  u64 sums[4] = {};
  for (unsigned i = 0; i < profile_store.site_count(); ++i) {
    const Site& site = profile_store.site(i);
    sums[0] += site.live_samples;
    sums[1] += site.live_sample_bytes;
    sums[2] += site.samples;
    sums[3] += site.sample_bytes;
  }
  const auto rows = [&](u64 live, u64 live_bytes, u64 all, u64 all_bytes) {
    for (const char* thread : {"t*", "t0"})
      out << "  " << thread << ": " << live << ": " << live_bytes << " [" << all << ": " << all_bytes << "]\n";
  };
  out << "heap_v2/" << report.sample_bytes << '\n';
  rows(sums[0], sums[1], sums[2], sums[3]);
  for (unsigned i = 0; i < profile_store.site_count(); ++i) {
    const Site& site = profile_store.site(i);
    if (site.samples == 0) continue;  // of an earlier profile
    out << '@';
    for (unsigned k = 0, depth = report.depth_of(site); k < depth; ++k) {
      // A reader knows addresses only.
      if (!is_python_frame(site.frames[k])) (out << ' ').hex(site.frames[k]);
    }
    out << '\n';
    rows(site.live_samples, site.live_sample_bytes, site.samples, site.sample_bytes);
  }
  out << "\nMAPPED_LIBRARIES:\n";
  const os::File maps = os::File::open_own("maps");
  char piece[1024];
  for (usize got; maps.is_open() && (got = maps.read(piece, sizeof piece)) > 0;) out.raw(piece, got);
}

}  // namespace freestone
