// Room 14, profile: see profile_store.h.

#include "profile/profile_store.h"

#include <cstring>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "platform/os.h"
#include "region/region.h"

namespace freestone {

constinit ProfileStore profile_store;

namespace {

constexpr usize kReserve = 64 * kGiB;
constexpr usize kReserveMin = 4 * kMiB;
constexpr usize kCommitStep = kMiB;

u64 hash_frames(const usize* frames, unsigned depth) {
  u64 hash = depth;
  for (unsigned i = 0; i < depth; ++i) hash = mix_bits(hash ^ frames[i]) + 0x9E3779B97F4A7C15ULL * i;
  return hash;
}

unsigned lifetime_index(u64 lived_ns) {
  unsigned index = 0;
  while (index + 1 < kLifetimes && lived_ns >= lifetime_floor_ns(index + 1)) ++index;
  return index;
}

}  // namespace

// Like the heap, the store reserves nothing if it can take its addresses piece by piece.
bool ProfileStore::find_range() {
  base_ = region.behind;
  reserved_ = kReserve;
  for (usize wanted = kReserve; base_ == 0 && wanted >= kReserveMin; wanted /= 4) {
    base_ = address_of(os::reserve(wanted, 0));
    reserved_ = wanted;
  }
  return base_ != 0;
}

void* ProfileStore::take(usize bytes) {
  bytes = round_up(bytes, 64);
  if (base_ == 0 && !find_range()) return nullptr;
  if (bytes > reserved_ - used_) return nullptr;
  if (used_ + bytes > committed_) {
    const usize more = min_of(round_up(used_ + bytes - committed_, kCommitStep), reserved_ - committed_);
    void* const piece = reinterpret_cast<void*>(base_ + committed_);
    opening_ = more;
    order_stores();
    const os::Failure failure = region.behind != 0 ? os::map_at(piece, more) : os::commit(piece, more);
    if (!failure) committed_ += more;
    order_stores();
    opening_ = 0;
    if (failure) return nullptr;
  }
  void* memory = reinterpret_cast<void*>(base_ + used_);
  used_ += bytes;
  return memory;
}

// Whether the bytes behind are being mapped or are mapped and counted, nothing lies behind what is counted afterwards.
void ProfileStore::repair_locked() {
  if (opening_ != 0 && region.behind != 0) os::undo_map_at(reinterpret_cast<void*>(base_ + committed_), opening_);
  opening_ = 0;
}

bool ProfileStore::grow_sites() {
  const u32 wanted = site_slots_ == 0 ? 4096 : site_slots_ * 2;
  auto* table = static_cast<u32*>(take(wanted * sizeof(u32)));
  if (table == nullptr) return false;
  std::memset(table, 0, wanted * sizeof(u32));
  for (u32 i = 0; i < site_count_; ++i) {
    u32 slot = static_cast<u32>(site_at(i)->hash) & (wanted - 1);
    while (table[slot] != 0) slot = (slot + 1) & (wanted - 1);
    table[slot] = i + 1;
  }
  site_table_ = table;
  site_slots_ = wanted;
  return true;
}

Site* ProfileStore::find_or_add(const usize* frames, unsigned depth) {
  if (sites_ == nullptr) {
    sites_ = static_cast<Site**>(take(kPagesMax * sizeof(Site*)));
    if (sites_ == nullptr) return nullptr;
  }
  if (site_count_ * 2 >= site_slots_ && !grow_sites() && site_count_ + 1 >= site_slots_) return nullptr;
  const u64 hash = hash_frames(frames, depth);
  u32 slot = static_cast<u32>(hash) & (site_slots_ - 1);
  for (; site_table_[slot] != 0; slot = (slot + 1) & (site_slots_ - 1)) {
    Site* site = site_at(site_table_[slot] - 1);
    if (site->hash == hash && site->depth == depth && std::memcmp(site->frames, frames, depth * sizeof *frames) == 0)
      return site;
  }
  if (site_count_ / kPerPage >= kPagesMax) return nullptr;
  if (site_count_ % kPerPage == 0) {
    auto* page = static_cast<Site*>(take(kPerPage * sizeof(Site)));
    if (page == nullptr) return nullptr;
    sites_[site_count_ / kPerPage] = page;
  }
  auto* copy = static_cast<usize*>(take(max_of<usize>(depth, 1) * sizeof *frames));
  if (copy == nullptr) return nullptr;
  std::memcpy(copy, frames, depth * sizeof *frames);
  Site* site = site_at(site_count_);
  *site = Site{};
  site->frames = copy;
  site->depth = depth;
  site->id = site_count_;
  site->hash = hash;
  site->peak_epoch = peak_epoch_;  // it held nothing at the last peak
  site_table_[slot] = ++site_count_;
  return site;
}

void ProfileStore::before_change(Site& site) {
  if (site.peak_epoch == peak_epoch_) return;
  site.peak = site.live;
  site.peak_epoch = peak_epoch_;
}

LiveSample* ProfileStore::add_locked(const usize* frames, unsigned depth, void* block, usize bytes, double weight,
                                     u64 now_ns) {
  if (totals_.started_ns == 0) totals_.started_ns = now_ns;
  Site* site = find_or_add(frames, depth);
  LiveSample* sample = nullptr;
  u32 index = 0;
  if (pool_ == nullptr) pool_ = static_cast<LiveSample**>(take(kPagesMax * sizeof(LiveSample*)));
  if (site != nullptr && pool_ != nullptr) {
    if (pool_free_ != ~u32{0}) {
      index = pool_free_;
      sample = sample_at(index);
      pool_free_ = sample->link;
    } else if (pool_used_ / kPerPage < kPagesMax) {
      if (pool_used_ % kPerPage == 0)
        pool_[pool_used_ / kPerPage] = static_cast<LiveSample*>(take(kPerPage * sizeof(LiveSample)));
      if (pool_[pool_used_ / kPerPage] != nullptr) {
        index = pool_used_++;
        sample = sample_at(index);
      }
    }
  }
  if (sample == nullptr) {
    ++totals_.dropped;
    return nullptr;
  }
  // The caller read the clock before it had the lock: the profile may have begun in between.
  *sample = {site, address_of(block), bytes, weight, max_of(now_ns, begun_ns_), os::thread_id(), index};
  before_change(*site);
  ++totals_.samples;
  ++site->samples;
  site->sample_bytes += bytes;
  ++site->live_samples;
  site->live_sample_bytes += bytes;
  site->allocated.add(weight, bytes);
  site->live.add(weight, bytes);
  totals_.live.add(weight, bytes);
  if (totals_.live.bytes > totals_.peak.bytes) {
    totals_.peak = totals_.live;
    ++peak_epoch_;
  }
  FREESTONE_CHECK("STORE-2", totals_.live.bytes <= totals_.peak.bytes && site->peak_epoch <= peak_epoch_);
  return sample;
}

void ProfileStore::recycle(LiveSample& sample) {
  const u32 index = sample.link;
  sample.site = nullptr;
  sample.link = pool_free_;
  pool_free_ = index;
}

void ProfileStore::remove_locked(LiveSample& sample, u64 now_ns) {
  if (!counts(sample)) return recycle(sample);
  Site& site = *sample.site;
  before_change(site);
  site.live.take(sample.weight, sample.bytes);
  totals_.live.take(sample.weight, sample.bytes);
  --site.live_samples;
  site.live_sample_bytes -= sample.bytes;
  FREESTONE_CHECK("STORE-1", site.live_samples != ~u64{0} && (site.live_samples != 0 || site.live_sample_bytes == 0));
  if (site.live_samples == 0) site.live = {};  // drops rounding errors
  site.freed[lifetime_index(max_of(now_ns, sample.born_ns) - sample.born_ns)].add(sample.weight, sample.bytes);
  recycle(sample);
}

usize ProfileStore::slot_of(usize block) const { return mix_bits(block) & (tracked_slots_ - 1); }

bool ProfileStore::grow_tracked() {
  const usize wanted = tracked_slots_ == 0 ? 1024 : tracked_slots_ * 2;
  auto** table = static_cast<LiveSample**>(take(wanted * sizeof(LiveSample*)));
  if (table == nullptr) return false;
  std::memset(table, 0, wanted * sizeof *table);
  LiveSample** old = tracked_;
  const usize old_slots = tracked_slots_;
  tracked_ = table;
  tracked_slots_ = wanted;
  for (usize i = 0; i < old_slots; ++i) {
    if (old[i] == nullptr) continue;
    usize slot = slot_of(old[i]->block);
    while (table[slot] != nullptr) slot = (slot + 1) & (wanted - 1);
    table[slot] = old[i];
  }
  return true;
}

void ProfileStore::track_locked(LiveSample& sample) {
  if (tracked_count_ * 2 >= tracked_slots_ && !grow_tracked() && tracked_count_ + 1 >= tracked_slots_) return;
  usize slot = slot_of(sample.block);
  while (tracked_[slot] != nullptr) slot = (slot + 1) & (tracked_slots_ - 1);
  tracked_[slot] = &sample;
  __atomic_store_n(&tracked_count_, tracked_count_ + 1, __ATOMIC_RELAXED);
}

LiveSample* ProfileStore::untrack_locked(const void* block) {
  if (tracked_count_ == 0) return nullptr;
  usize hole = slot_of(address_of(block));
  while (tracked_[hole] != nullptr && tracked_[hole]->block != address_of(block))
    hole = (hole + 1) & (tracked_slots_ - 1);
  LiveSample* found = tracked_[hole];
  if (found == nullptr) return nullptr;
  // Later entries of the cluster move up into the hole unless they would then lie before their own place.
  for (usize i = hole;;) {
    i = (i + 1) & (tracked_slots_ - 1);
    if (tracked_[i] == nullptr) break;
    const usize home = slot_of(tracked_[i]->block);
    if (((i - home) & (tracked_slots_ - 1)) < ((i - hole) & (tracked_slots_ - 1))) continue;
    tracked_[hole] = tracked_[i];
    hole = i;
  }
  tracked_[hole] = nullptr;
  __atomic_store_n(&tracked_count_, tracked_count_ - 1, __ATOMIC_RELAXED);
  return found;
}

void ProfileStore::begin_locked(u64 now_ns) {
  for (usize slot = 0; slot < tracked_slots_; ++slot) {
    // While no profile ran, nobody saw the frees of tracked blocks.
    if (tracked_[slot] != nullptr) recycle(*tracked_[slot]);
    tracked_[slot] = nullptr;
  }
  __atomic_store_n(&tracked_count_, usize{0}, __ATOMIC_RELAXED);
  begun_ns_ = now_ns;
  totals_ = {};
  for (u32 i = 0; i < site_count_; ++i) {
    Site& site = *site_at(i);
    site.live = {};
    site.live_samples = site.live_sample_bytes = 0;
  }
  restart_locked(now_ns);
}

void ProfileStore::restart_locked(u64 now_ns) {
  ++peak_epoch_;
  totals_.peak = totals_.live;
  totals_.started_ns = now_ns;
  for (u32 i = 0; i < site_count_; ++i) {
    Site& site = *site_at(i);
    site.allocated = site.live;
    site.samples = site.live_samples;
    site.sample_bytes = site.live_sample_bytes;
    for (Amount& amount : site.freed) amount = {};
  }
}

}  // namespace freestone
