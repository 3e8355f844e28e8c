// Room 20, abi: what mallctl answers, name by name.
//
// There is one arena, number 0; 4096 means all of them, as in jemalloc. stats.* shows a snapshot that a write to
// "epoch" renews. Names that have no counterpart here are not in the table.

#include "abi/mallctl_nodes.h"

#include "abi/locks.h"
#include "cache/tick.h"
#include "config/options.h"
#include "freestone/freestone.h"
#include "front/heap.h"
#include "platform/os.h"
#include "platform/seal.h"
#include "upkeep/background.h"
#include "upkeep/upkeep.h"

namespace freestone {

namespace {

using Signed = long;  // jemalloc's ssize_t

constexpr usize kAllArenas = 4096;

// The number of arenas is an old way to name all of them; Redis uses it.
bool is_arena(usize number) { return number <= 1 || number == kAllArenas; }

FREESTONE_FAR Statistics snapshot FREESTONE_GUARDED_BY(snapshot_lock);
u64 epoch FREESTONE_GUARDED_BY(snapshot_lock) = 0;

Statistics snapshot_now() {
  LockGuard guard(snapshot_lock);
  if (epoch == 0) {
    collect_statistics(snapshot, ProcessFigures::left_out);
    epoch = 1;
  }
  return snapshot;
}

int renew_epoch(const MallctlRequest& r) {
  u64 ignored;
  if (r.fresh != nullptr && !r.take(ignored)) return EINVAL;
  snapshot_now();
  LockGuard guard(snapshot_lock);
  if (r.fresh != nullptr) {
    collect_statistics(snapshot, ProcessFigures::left_out);
    ++epoch;
  }
  return r.give(epoch);
}

usize small_bytes(const Statistics& s) {
  usize bytes = 0;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) bytes += s.classes[c].live_blocks * s.classes[c].block_bytes;
  return bytes;
}
usize pages(usize bytes) { return bytes / os::page_bytes(); }

template <usize Value(const Statistics&)>
int statistic(const MallctlRequest& r) {
  return r.read_only(Value(snapshot_now()));
}
template <usize Value(const Statistics&)>
int arena_statistic(const MallctlRequest& r) {
  return is_arena(r.number) ? r.read_only(Value(snapshot_now())) : ENOENT;
}

usize allocated(const Statistics& s) { return s.live_bytes; }
usize metadata(const Statistics& s) { return s.metadata_bytes; }
usize charged(const Statistics& s) { return s.charged_bytes; }
usize retained(const Statistics& s) { return s.clean_bytes; }
usize zero(const Statistics&) { return 0; }
usize active_pages(const Statistics& s) { return pages(active_bytes(s)); }
usize dirty_pages(const Statistics& s) { return pages(s.dirty_bytes); }
usize large_live(const Statistics& s) { return s.live_bytes - small_bytes(s); }

template <auto Value>
int constant(const MallctlRequest& r) {
  return r.read_only(Value);
}

constexpr char kNothing[] = "";
constexpr char kDisabled[] = "disabled";
constexpr char kDefault[] = "default";
constexpr char kFalse[] = "false";
template <const char* Text>
int text(const MallctlRequest& r) {
  return r.read_only(Text);
}

template <typename Value>
bool set_sealed(Value& option, Value value) {
  const OpenedSeal seal;
  if (seal.is_open()) option = value;
  return seal.is_open();
}

int background(const MallctlRequest& r) {
  const bool before = background_runs();
  if (r.fresh != nullptr) {
    bool wanted;
    if (!r.take(wanted)) return EINVAL;
    if (!set_sealed(options.background_purge, wanted)) return EPERM;
    apply_upkeep_options();
    if (wanted && !background_runs()) return EAGAIN;
  }
  return r.give(before);
}

int background_count(const MallctlRequest& r) { return r.read_only(usize{background_runs() ? 1U : 0U}); }

// There is at most one background thread; other numbers are refused.
int background_limit(const MallctlRequest& r) {
  usize wanted = 1;
  if (r.fresh != nullptr && (!r.take(wanted) || wanted != 1)) return EINVAL;
  return r.give(usize{1});
}

int flush_thread(const MallctlRequest& r) {
  if (r.fresh != nullptr || r.old != nullptr) return EPERM;
  if (this_thread.cache_offset != 0) flush_all(thread_cache());
  return 0;
}

// Every thread belongs to the one arena.
int thread_arena(const MallctlRequest& r) {
  unsigned wanted = 0;
  if (r.fresh != nullptr && (!r.take(wanted) || wanted != 0)) return EINVAL;
  return r.give(0U);
}

int thread_cache_enabled(const MallctlRequest& r) {
  bool wanted = true;
  if (r.fresh != nullptr && (!r.take(wanted) || !wanted)) return EINVAL;
  return r.give(true);
}

int purge_arena(const MallctlRequest& r) {
  if (!is_arena(r.number)) return EFAULT;
  if (r.fresh != nullptr || r.old != nullptr) return EPERM;
  trim(0);
  return 0;
}

int decay_arena(const MallctlRequest& r) {
  if (!is_arena(r.number)) return EFAULT;
  if (r.fresh != nullptr || r.old != nullptr) return EPERM;
  tick(ensure_cache());
  return 0;
}

// jemalloc's decay time, after which all is gone, counts as twice our half-life; -1 means never.
int decay_time(const MallctlRequest& r) {
  const auto before = static_cast<Signed>(options.dirty_decay_ms * 2);
  if (r.fresh != nullptr) {
    Signed wanted;
    if (!r.take(wanted) || wanted < -1) return EINVAL;
    const u64 ms = wanted < 0 ? 3'600'000 : min_of<u64>(static_cast<u64>(wanted) / 2, 3'600'000);
    if (!set_sealed(options.dirty_decay_ms, ms)) return EPERM;
  }
  return r.give(before);
}
int arena_decay_time(const MallctlRequest& r) { return is_arena(r.number) ? decay_time(r) : EFAULT; }
// There is no second stage of decay.
int muzzy_decay_time(const MallctlRequest& r) {
  Signed wanted;
  if (r.fresh != nullptr && !r.take(wanted)) return EINVAL;
  return r.give(Signed{0});
}

int thread_count(const MallctlRequest& r) {
  return is_arena(r.number) ? r.read_only(static_cast<unsigned>(snapshot_now().threads)) : ENOENT;
}
int page_bytes(const MallctlRequest& r) { return r.read_only(os::page_bytes()); }

constexpr unsigned kBins = kLastSmallClass - kFirstClass + 1;
bool is_bin(usize number) { return number < kBins; }
const ClassInfo& bin(const MallctlRequest& r) { return class_info(static_cast<SizeClass>(r.number) + kFirstClass); }
int bin_size(const MallctlRequest& r) { return is_bin(r.number) ? r.read_only(bin(r).bytes - kHeldBackBytes) : ENOENT; }
int bin_blocks(const MallctlRequest& r) { return is_bin(r.number) ? r.read_only(bin(r).blocks) : ENOENT; }
int bin_slab(const MallctlRequest& r) { return is_bin(r.number) ? r.read_only(units_to_bytes(bin(r).units)) : ENOENT; }
constexpr unsigned kLargeClasses = kLastClass - kLastSmallClass;
int large_size(const MallctlRequest& r) {
  return r.number < kLargeClasses
             ? r.read_only(class_info(kLastSmallClass + 1 + static_cast<SizeClass>(r.number)).bytes - kHeldBackBytes)
             : ENOENT;
}

int profiler_active(const MallctlRequest& r) {
  const bool before = freestone_prof_is_active() != 0;
  if (r.fresh != nullptr) {
    bool wanted;
    if (!r.take(wanted)) return EINVAL;
    wanted ? freestone_prof_start() : freestone_prof_stop();
  }
  return r.give(before);
}

// The new value is the file's name; without one, prof_file names the file.
int dump_profile(const MallctlRequest& r) {
  if (r.old != nullptr) return EPERM;
  const char* path = nullptr;
  if (r.fresh != nullptr && !r.take(path)) return EINVAL;
  return freestone_prof_dump(path);
}

constexpr MallctlNode kNodes[] = {
    {"version", text<kMallctlVersion>},
    {"epoch", renew_epoch},
    {"background_thread", background},
    {"max_background_threads", background_limit},
    {"config.cache_oblivious", constant<false>},
    {"config.debug", constant<false>},
    {"config.fill", constant<false>},
    {"config.lazy_lock", constant<false>},
    {"config.malloc_conf", text<kNothing>},
    {"config.opt_safety_checks", constant<false>},
    {"config.prof", constant<true>},
    {"config.prof_libgcc", constant<false>},
    {"config.prof_libunwind", constant<false>},
    {"config.stats", constant<true>},
    {"config.utrace", constant<false>},
    {"config.xmalloc", constant<false>},
    {"opt.abort", constant<false>},
    {"opt.abort_conf", constant<false>},
    {"opt.background_thread", background},
    {"opt.max_background_threads", background_limit},
    {"opt.dirty_decay_ms", decay_time},
    {"opt.muzzy_decay_ms", muzzy_decay_time},
    {"opt.dss", text<kDisabled>},
    {"opt.junk", text<kFalse>},
    {"opt.lg_tcache_max", constant<usize{17}>},
    {"opt.metadata_thp", text<kDisabled>},
    {"opt.narenas", constant<1U>},
    {"opt.percpu_arena", text<kDisabled>},
    {"opt.prof", constant<false>},
    {"opt.retain", constant<true>},
    {"opt.stats_print", constant<false>},
    {"opt.tcache", constant<true>},
    {"opt.tcache_max", constant<kCachedBytesMax>},
    {"opt.thp", text<kDefault>},
    {"opt.utrace", constant<false>},
    {"opt.xmalloc", constant<false>},
    {"opt.zero", constant<false>},
    {"thread.arena", thread_arena},
    {"thread.idle", flush_thread},
    {"thread.tcache.enabled", thread_cache_enabled},
    {"thread.tcache.flush", flush_thread},
    {"prof.active", profiler_active},
    {"prof.dump", dump_profile},
    {"arena.#.initialized", constant<true>},
    {"arena.#.purge", purge_arena},
    {"arena.#.decay", decay_arena},
    {"arena.#.dirty_decay_ms", arena_decay_time},
    {"arena.#.muzzy_decay_ms", muzzy_decay_time},
    {"arenas.narenas", constant<1U>},
    {"arenas.dirty_decay_ms", decay_time},
    {"arenas.muzzy_decay_ms", muzzy_decay_time},
    {"arenas.quantum", constant<kGranule>},
    {"arenas.page", page_bytes},
    {"arenas.tcache_max", constant<kCachedBytesMax>},
    {"arenas.nbins", constant<kBins>},
    {"arenas.nhbins", constant<unsigned{kLastClass}>},
    {"arenas.bin.#.size", bin_size},
    {"arenas.bin.#.nregs", bin_blocks},
    {"arenas.bin.#.slab_size", bin_slab},
    {"arenas.nlextents", constant<kLargeClasses>},
    {"arenas.lextent.#.size", large_size},
    {"stats.allocated", statistic<allocated>},
    {"stats.active", statistic<active_bytes>},
    {"stats.metadata", statistic<metadata>},
    {"stats.metadata_thp", statistic<zero>},
    {"stats.resident", statistic<charged>},
    {"stats.mapped", statistic<charged>},
    {"stats.retained", statistic<retained>},
    {"stats.zero_reallocs", statistic<zero>},
    {"stats.background_thread.num_threads", background_count},
    {"stats.arenas.#.nthreads", thread_count},
    {"stats.arenas.#.pactive", arena_statistic<active_pages>},
    {"stats.arenas.#.pdirty", arena_statistic<dirty_pages>},
    {"stats.arenas.#.pmuzzy", arena_statistic<zero>},
    {"stats.arenas.#.mapped", arena_statistic<charged>},
    {"stats.arenas.#.retained", arena_statistic<retained>},
    {"stats.arenas.#.resident", arena_statistic<charged>},
    {"stats.arenas.#.base", arena_statistic<metadata>},
    {"stats.arenas.#.internal", arena_statistic<zero>},
    {"stats.arenas.#.small.allocated", arena_statistic<small_bytes>},
    {"stats.arenas.#.large.allocated", arena_statistic<large_live>},
};

}  // namespace

MallctlNodes mallctl_nodes() { return {kNodes, sizeof kNodes / sizeof kNodes[0]}; }

}  // namespace freestone
