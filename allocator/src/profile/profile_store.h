// Room 14, profile: the sums of the samples. One table holds call stacks with sums, another the live sampled blocks.
//
// A sample stands for `weight` allocations, the inverse of the chance of sampling its size. The weight applies when the
// sample is taken, so sums over mixed sizes are unbiased.
//
// All memory is one range that grows, behind the window or reserved, and never goes back. One lock is held for short
// updates and while a report is written. A signal handler must not wait for it (see try_lock).
//
// STORE-1  site.live_* are the sums over the live samples of the site that count: those taken since begin_locked.
// STORE-2  The peak of a site is its live sum at the instant when the sum over all sites was highest. The site's first
//          change after that instant saves it (peak_epoch counts such instants).
#pragma once

#include "base/units.h"
#include "platform/mutex.h"

namespace freestone {

struct Amount {
  double objects = 0;
  double bytes = 0;

  void add(double weight, usize bytes_each) {
    objects += weight;
    bytes += weight * static_cast<double>(bytes_each);
  }
  void take(double weight, usize bytes_each) {
    objects -= weight;
    bytes -= weight * static_cast<double>(bytes_each);
  }
};

// Lifetimes by powers of ten: below 1 us, below 10 us, ..., below 1000 s, longer.
inline constexpr unsigned kLifetimes = 11;
constexpr u64 lifetime_floor_ns(unsigned index) {
  u64 floor = index == 0 ? 0 : 1000;
  for (; index > 1; --index) floor *= 10;
  return floor;
}

struct Site {
  usize* frames;
  u32 depth;
  u32 id;
  u64 hash;
  u64 samples;       // taken so far, unweighted
  u64 sample_bytes;
  u64 live_samples;
  u64 live_sample_bytes;
  Amount allocated;
  Amount live;
  Amount peak;     // valid when peak_epoch is the store's
  u64 peak_epoch;
  Amount freed[kLifetimes];
};

struct LiveSample {
  Site* site;
  usize block;
  usize bytes;
  double weight;
  u64 born_ns;
  u32 thread;
  u32 link;  // its own index in the pool; while it is unused (site is null), the next unused sample
};

struct StoreTotals {
  Amount live;
  Amount peak;
  u64 samples;
  u64 dropped;  // for want of memory
  u64 started_ns;
};

class ProfileStore {
 public:
  // Notes a sample. Null if memory is out.
  LiveSample* add_locked(const usize* frames, unsigned depth, void* block, usize bytes, double weight, u64 now_ns)
      FREESTONE_REQUIRES(lock);
  void remove_locked(LiveSample& sample, u64 now_ns) FREESTONE_REQUIRES(lock);

  // Samples of ordinary blocks are found by their address.
  void track_locked(LiveSample& sample) FREESTONE_REQUIRES(lock);
  LiveSample* untrack_locked(const void* block) FREESTONE_REQUIRES(lock);

  // Any thread, without the lock. False while nothing is tracked.
  FREESTONE_NO_ANALYSIS bool tracks_any() const { return __atomic_load_n(&tracked_count_, __ATOMIC_RELAXED) != 0; }

  // Begins a profile that stands alone: no earlier sample counts in it. The sample of a block that is still live stays
  // known, because the block's record leads to it.
  void begin_locked(u64 now_ns) FREESTONE_REQUIRES(lock);
  // Forgets the allocations so far, the peak and the lifetimes, but not what is live.
  void restart_locked(u64 now_ns) FREESTONE_REQUIRES(lock);

  unsigned site_count() const FREESTONE_REQUIRES(lock) { return site_count_; }
  const Site& site(unsigned index) const FREESTONE_REQUIRES(lock) { return *site_at(index); }
  Amount peak_of(const Site& site) const FREESTONE_REQUIRES(lock) {
    return site.peak_epoch == peak_epoch_ ? site.peak : site.live;
  }
  const StoreTotals& totals() const FREESTONE_REQUIRES(lock) { return totals_; }
  // Visits the live samples that count.
  template <typename Visit>
  void for_each_live(Visit visit) const FREESTONE_REQUIRES(lock) {
    for (u32 i = 0; i < pool_used_; ++i) {
      if (const LiveSample& sample = *sample_at(i); sample.site != nullptr && counts(sample)) visit(sample);
    }
  }
  // Memory for a report, valid until release_scratch_locked. Null if memory is out.
  void* scratch_locked(usize bytes) FREESTONE_REQUIRES(lock) { return take(bytes); }
  usize scratch_start_locked() const FREESTONE_REQUIRES(lock) { return used_; }
  void release_scratch_locked(usize start) FREESTONE_REQUIRES(lock) { used_ = start; }
  // FORK-5: in the child of a fork, if another thread had the lock.
  void repair_locked() FREESTONE_REQUIRES(lock);
  // The range that holds all this.
  usize base() const FREESTONE_REQUIRES(lock) { return base_; }
  usize mapped() const FREESTONE_REQUIRES(lock) { return committed_; }

  Mutex lock{LockName::profile};

 private:
  void* take(usize bytes) FREESTONE_REQUIRES(lock);
  bool find_range() FREESTONE_REQUIRES(lock);
  Site* find_or_add(const usize* frames, unsigned depth) FREESTONE_REQUIRES(lock);
  bool grow_sites() FREESTONE_REQUIRES(lock);
  bool grow_tracked() FREESTONE_REQUIRES(lock);
  Site* site_at(unsigned index) const FREESTONE_REQUIRES(lock) { return sites_[index / kPerPage] + index % kPerPage; }
  LiveSample* sample_at(u32 index) const FREESTONE_REQUIRES(lock) { return pool_[index / kPerPage] + index % kPerPage; }
  void before_change(Site& site) FREESTONE_REQUIRES(lock);
  bool counts(const LiveSample& sample) const FREESTONE_REQUIRES(lock) { return sample.born_ns >= begun_ns_; }
  void recycle(LiveSample& sample) FREESTONE_REQUIRES(lock);
  usize slot_of(usize block) const FREESTONE_REQUIRES(lock);

  static constexpr unsigned kPerPage = 1024;
  static constexpr unsigned kPagesMax = 64 * 1024;  // 64 Mi live samples, and as many sites

  usize base_ FREESTONE_GUARDED_BY(lock) = 0;
  usize reserved_ FREESTONE_GUARDED_BY(lock) = 0;  // the length of the range
  usize committed_ FREESTONE_GUARDED_BY(lock) = 0;
  usize opening_ FREESTONE_GUARDED_BY(lock) = 0;  // bytes behind those that are being mapped
  usize used_ FREESTONE_GUARDED_BY(lock) = 0;

  Site** sites_ FREESTONE_GUARDED_BY(lock) = nullptr;  // kPagesMax pointers, then pages
  LiveSample** pool_ FREESTONE_GUARDED_BY(lock) = nullptr;
  u32 site_count_ FREESTONE_GUARDED_BY(lock) = 0;
  u32* site_table_ FREESTONE_GUARDED_BY(lock) = nullptr;  // open addressing by hash: index + 1, 0 is empty
  u32 site_slots_ FREESTONE_GUARDED_BY(lock) = 0;
  u32 pool_used_ FREESTONE_GUARDED_BY(lock) = 0;
  u32 pool_free_ FREESTONE_GUARDED_BY(lock) = ~u32{0};
  LiveSample** tracked_ FREESTONE_GUARDED_BY(lock) = nullptr;  // open addressing by address
  usize tracked_slots_ FREESTONE_GUARDED_BY(lock) = 0;
  usize tracked_count_ FREESTONE_GUARDED_BY(lock) = 0;
  u64 peak_epoch_ FREESTONE_GUARDED_BY(lock) = 0;
  u64 begun_ns_ FREESTONE_GUARDED_BY(lock) = 0;
  StoreTotals totals_ FREESTONE_GUARDED_BY(lock){};
};

extern FREESTONE_HIDDEN ProfileStore profile_store;

}  // namespace freestone
