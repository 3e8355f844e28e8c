// Room 20, abi: the answers of mallctl, name by name.
//
// Arena 0 is the process heap, the others are made by "arenas.create" (heaps/arena.h); 4096 means all of them, as in
// jemalloc. stats.* shows a snapshot that a write to "epoch" renews. Names without a counterpart are not in the table.

#include "abi/mallctl_nodes.h"

#include <functional>

#include "abi/locks.h"
#include "cache/slow.h"
#include "config/options.h"
#include "freestone/freestone.h"
#include "front/heap.h"
#include "front/reclaim.h"
#include "heaps/arena.h"
#include "platform/os.h"
#include "platform/seal.h"
#include "upkeep/background.h"
#include "upkeep/upkeep.h"

namespace freestone {

namespace {

using Signed = long;  // jemalloc's ssize_t

constexpr usize kAllArenas = 4096;

// The number of arenas is an old way to name all of them; Redis uses it.
bool is_all(usize number) { return number == kAllArenas || number == arena_count(); }
bool is_arena(usize number) { return number == 0 || is_all(number) || is_made_arena(number); }

FREESTONE_FAR Statistics snapshot FREESTONE_GUARDED_BY(snapshot_lock);
u64 epoch FREESTONE_GUARDED_BY(snapshot_lock) = 0;

void renew_snapshot() FREESTONE_REQUIRES(snapshot_lock) {
  collect_statistics(snapshot, ProcessFigures::left_out);
  ++epoch;
}

HeapFigures snapshot_now() {
  LockGuard guard(snapshot_lock);
  if (epoch == 0) renew_snapshot();
  return snapshot;
}

int renew_epoch(const MallctlRequest& r) {
  u64 ignored;
  if (r.fresh != nullptr && !r.take(ignored)) return EINVAL;
  snapshot_now();
  LockGuard guard(snapshot_lock);
  if (r.fresh != nullptr) renew_snapshot();
  return r.give(epoch);
}

usize pages(usize bytes) { return bytes / os::page_bytes(); }

// The snapshot of all arenas; of a made arena, its figures now; of arena 0, what the others leave of the snapshot.
HeapFigures of_arena(usize number) {
  usize live = 0;
  usize spans = 0;
  for (unsigned k = 1; !is_all(number) && k < arena_count(); ++k) {
    HeapObject* made = arena(k);
    if (made == nullptr || (number != 0 && number != k)) continue;
    const HeapObject::Counts c = made->counts();
    live += c.live_bytes;
    spans += c.span_bytes;
  }
  HeapFigures s = {};
  if (number != 0 && !is_all(number)) {
    s.live_bytes = live;
    s.slab_free_bytes = spans - min_of(live, spans);
    s.charged_bytes = spans;
    return s;
  }
  s = snapshot_now();
  s.live_bytes -= min_of(live, s.live_bytes);
  s.slab_free_bytes -= min_of(spans - min_of(live, spans), s.slab_free_bytes - s.unbacked_bytes);
  s.charged_bytes -= min_of(spans, s.charged_bytes);
  return s;
}

// A member of HeapFigures, or a function of it.
template <auto Value>
int statistic(const MallctlRequest& r) {
  return r.read_only(std::invoke(Value, snapshot_now()));
}
template <auto Value>
int arena_statistic(const MallctlRequest& r) {
  return is_arena(r.number) ? r.read_only(std::invoke(Value, of_arena(r.number))) : ENOENT;
}

usize zero(const HeapFigures&) { return 0; }
usize active_pages(const HeapFigures& s) { return pages(active_bytes(s)); }
usize dirty_pages(const HeapFigures& s) { return pages(s.dirty_bytes); }
usize large_live(const HeapFigures& s) { return s.live_bytes - s.small_bytes; }

template <auto Value>
int constant(const MallctlRequest& r) {
  return r.read_only(Value);
}

constexpr char kNothing[] = "";
constexpr char kDisabled[] = "disabled";
constexpr char kDefault[] = "default";
constexpr char kFalse[] = "false";

// A setting that never changes. A new value must be the same, or any will do.
template <auto Value, bool Any = false>
int unchanging(const MallctlRequest& r) {
  auto wanted = Value;
  if (r.fresh != nullptr && (!r.take(wanted) || (!Any && wanted != Value))) return EINVAL;
  return r.give(Value);
}
constexpr auto background_limit = unchanging<usize{1}>;  // there is at most one background thread
constexpr auto thread_cache_enabled = unchanging<true>;
constexpr auto growth_limit = unchanging<usize{PTRDIFF_MAX}, true>;  // growth takes what it needs, whatever its limit
constexpr auto muzzy_decay_time = unchanging<Signed{0}, true>;       // there is no second stage of decay

template <auto Answer>
int in_arena(const MallctlRequest& r) {
  return is_arena(r.number) ? Answer(r) : EFAULT;
}

int background(const MallctlRequest& r) {
  const bool before = background_runs();
  if (r.fresh != nullptr) {
    bool wanted;
    if (!r.take(wanted)) return EINVAL;
    if (!set_sealed(options.background_purge, wanted)) return EPERM;
    if (mode() == Mode::active) apply_upkeep_options();
    if (wanted && !background_runs()) return EAGAIN;
  }
  return r.give(before);
}

int background_count(const MallctlRequest& r) { return r.read_only(usize{background_runs() ? 1U : 0U}); }

// A thread may name an arena for itself. malloc takes from arena 0 all the same, so that it stays fast.
int thread_arena(const MallctlRequest& r) {
  unsigned wanted = this_thread.arena;
  const unsigned before = wanted;
  if (r.fresh != nullptr && (!r.take(wanted) || (wanted != 0 && !is_made_arena(wanted)))) return EINVAL;
  this_thread.arena = static_cast<u16>(wanted);
  return r.give(before);
}

// Memory that the program's own functions manage is not served.
int new_arena(const MallctlRequest& r) {
  const void* hooks = nullptr;
  if (r.fresh != nullptr && (!r.take(hooks) || hooks != nullptr)) return EINVAL;
  if (r.old == nullptr || r.old_bytes == nullptr || *r.old_bytes != sizeof(unsigned)) return EINVAL;
  const unsigned number = create_arena();
  return number == 0 ? EAGAIN : r.give(number);
}

template <void Clear(usize)>
int clear_arena(const MallctlRequest& r) {
  if (r.fresh != nullptr || r.old != nullptr) return EPERM;
  if (!is_made_arena(r.number)) return EFAULT;
  Clear(r.number);
  return 0;
}
void reset_arena(usize number) {
  if (HeapObject* made = arena(number); made != nullptr) made->reset();
}

int arena_is_made(const MallctlRequest& r) { return r.read_only(is_arena(r.number)); }

// No arena takes memory by sbrk.
int arena_dss(const MallctlRequest& r) {
  const char* wanted = kDisabled;
  if (r.fresh != nullptr && !r.take(wanted)) return EINVAL;
  return std::strcmp(wanted, kDisabled) == 0 ? r.give(&kDisabled[0]) : EFAULT;
}

// Which arena a block is in.
int arena_lookup(const MallctlRequest& r) {
  const void* block = nullptr;
  if (!r.take(block) || block == nullptr) return EINVAL;
  if (!in_window(block) || tag_of(unit_of(block)) != kTagHeapObject) return r.give(0U);
  const HeapObject* holder = &HeapObject::holder_of(unit_of(block));
  for (unsigned k = 1; k < arena_count(); ++k) {
    if (arena(k) == holder) return r.give(k);
  }
  return EINVAL;
}

// The caches that a program makes hold nothing: each thread has its own. They are numbers that are in use or not.
constexpr unsigned kMadeCachesMax = 512;
FREESTONE_FAR bool made_caches[kMadeCachesMax] FREESTONE_GUARDED_BY(snapshot_lock);

int new_cache(const MallctlRequest& r) {
  if (r.fresh != nullptr) return EPERM;
  if (r.old == nullptr || r.old_bytes == nullptr || *r.old_bytes != sizeof(unsigned)) return EINVAL;
  LockGuard guard(snapshot_lock);
  unsigned number = 0;
  while (number < kMadeCachesMax && made_caches[number]) ++number;
  if (number == kMadeCachesMax) return EAGAIN;
  made_caches[number] = true;
  return r.give(number);
}

template <bool Stays>
int flush_cache(const MallctlRequest& r) {
  unsigned number = kMadeCachesMax;
  if (r.old != nullptr) return EPERM;
  if (!r.take(number)) return EINVAL;
  LockGuard guard(snapshot_lock);
  if (number >= kMadeCachesMax || !made_caches[number]) return EFAULT;
  made_caches[number] = Stays;
  return 0;
}

template <auto Work>
int work(const MallctlRequest& r) {
  if (r.fresh != nullptr || r.old != nullptr) return EPERM;
  if (mode() == Mode::active) Work();
  return 0;
}

// -1 means never.
int decay_time(const MallctlRequest& r) {
  const auto before = static_cast<Signed>(options.dirty_decay_ms);
  if (r.fresh != nullptr) {
    Signed wanted;
    if (!r.take(wanted) || wanted < -1) return EINVAL;
    const u64 ms = wanted < 0 ? 3'600'000 : min_of<u64>(static_cast<u64>(wanted), 3'600'000);
    if (!set_sealed(options.dirty_decay_ms, ms)) return EPERM;
  }
  return r.give(before);
}
// The arenas share the free memory, so what is set for a made one changes nothing.
int arena_decay_time(const MallctlRequest& r) {
  if (arena(r.number) == nullptr) return decay_time(r);
  Signed wanted = 0;
  if (r.fresh != nullptr && (!r.take(wanted) || wanted < -1)) return EINVAL;
  return decay_time({r.number, 0, r.old, r.old_bytes, nullptr, 0});
}

int thread_count(const MallctlRequest& r) {
  return is_arena(r.number) ? r.read_only(static_cast<unsigned>(snapshot_now().threads)) : ENOENT;
}
int arenas_in_all(const MallctlRequest& r) { return r.read_only(arena_count()); }
int page_bytes(const MallctlRequest& r) { return r.read_only(os::page_bytes()); }

constexpr unsigned kBins = kPlainClasses - kFirstClass + 1;
bool is_bin(usize number) { return number < kBins; }
const ClassInfo& bin(const MallctlRequest& r) { return class_info(static_cast<SizeClass>(r.number) + kFirstClass); }
int bin_size(const MallctlRequest& r) { return is_bin(r.number) ? r.read_only(bin(r).bytes - kHeldBackBytes) : ENOENT; }
int bin_blocks(const MallctlRequest& r) { return is_bin(r.number) ? r.read_only(bin(r).blocks) : ENOENT; }
int bin_slab(const MallctlRequest& r) { return is_bin(r.number) ? r.read_only(units_to_bytes(bin(r).units)) : ENOENT; }
// Slabs and the blocks in use in them, so that `nregs` times the first less the second is what is free. A made arena
// keeps no figures by class.
struct BinFigures {
  usize slabs;
  usize blocks;
};
BinFigures bin_figures(const MallctlRequest& r) {
  if (arena(r.number) != nullptr) return {};
  snapshot_now();
  const auto c = static_cast<SizeClass>(r.second) + kFirstClass;
  LockGuard guard(snapshot_lock);
  const ClassStatistics& k = snapshot.classes[c];
  return {k.slabs, min_of(k.live_blocks, k.slabs * class_info(c).blocks)};
}
template <auto Figure>
int bin_statistic(const MallctlRequest& r) {
  return is_arena(r.number) && is_bin(r.second) ? r.read_only(bin_figures(r).*Figure) : ENOENT;
}
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
    {"version", constant<kMallctlVersion>},
    {"epoch", renew_epoch},
    {"background_thread", background},
    {"max_background_threads", background_limit},
    {"config.cache_oblivious", constant<false>},
    {"config.debug", constant<false>},
    {"config.fill", constant<false>},
    {"config.lazy_lock", constant<false>},
    {"config.malloc_conf", constant<kNothing>},
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
    {"opt.dss", constant<kDisabled>},
    {"opt.junk", constant<kFalse>},
    {"opt.lg_tcache_max", constant<usize{17}>},
    {"opt.metadata_thp", constant<kDisabled>},
    {"opt.narenas", constant<1U>},
    {"opt.percpu_arena", constant<kDisabled>},
    {"opt.prof", constant<false>},
    {"opt.retain", constant<true>},
    {"opt.stats_print", constant<false>},
    {"opt.tcache", constant<true>},
    {"opt.tcache_max", constant<kCachedBytesMax>},
    {"opt.thp", constant<kDefault>},
    {"opt.utrace", constant<false>},
    {"opt.xmalloc", constant<false>},
    {"opt.zero", constant<false>},
    {"thread.arena", thread_arena},
    {"thread.idle", work<freestone_flush_thread>},
    {"thread.tcache.enabled", thread_cache_enabled},
    {"thread.tcache.flush", work<freestone_flush_thread>},
    {"prof.active", profiler_active},
    {"prof.dump", dump_profile},
    {"tcache.create", new_cache},
    {"tcache.flush", flush_cache<true>},
    {"tcache.destroy", flush_cache<false>},
    {"arena.#.initialized", arena_is_made},
    {"arena.#.purge", in_arena<work<[] { trim(0); }>>},
    {"arena.#.decay", in_arena<work<[] { tick(ensure_cache()); }>>},
    {"arena.#.reset", clear_arena<reset_arena>},
    {"arena.#.destroy", clear_arena<destroy_arena>},
    {"arena.#.dss", in_arena<arena_dss>},
    {"arena.#.retain_grow_limit", in_arena<growth_limit>},
    {"arena.#.dirty_decay_ms", in_arena<arena_decay_time>},
    {"arena.#.muzzy_decay_ms", muzzy_decay_time},
    {"arenas.narenas", arenas_in_all},
    {"arenas.create", new_arena},
    {"arenas.lookup", arena_lookup},
    {"arenas.dirty_decay_ms", decay_time},
    {"arenas.muzzy_decay_ms", muzzy_decay_time},
    {"arenas.quantum", constant<kGranule>},
    {"arenas.page", page_bytes},
    {"arenas.tcache_max", constant<kCachedBytesMax>},
    {"arenas.nbins", constant<kBins>},
    {"arenas.nhbins", constant<plain_class(kLastClass)>},
    {"arenas.bin.#.size", bin_size},
    {"arenas.bin.#.nregs", bin_blocks},
    {"arenas.bin.#.slab_size", bin_slab},
    {"arenas.nlextents", constant<kLargeClasses>},
    {"arenas.lextent.#.size", large_size},
    {"stats.allocated", statistic<&Statistics::live_bytes>},
    {"stats.active", statistic<active_bytes>},
    {"stats.metadata", statistic<&Statistics::metadata_bytes>},
    {"stats.metadata_thp", statistic<zero>},
    {"stats.resident", statistic<&Statistics::backed_bytes>},
    {"stats.mapped", statistic<&Statistics::charged_bytes>},
    {"stats.retained", statistic<&Statistics::clean_bytes>},
    {"stats.zero_reallocs", statistic<zero>},
    {"stats.background_thread.num_threads", background_count},
    {"stats.arenas.#.nthreads", thread_count},
    {"stats.arenas.#.pactive", arena_statistic<active_pages>},
    {"stats.arenas.#.pdirty", arena_statistic<dirty_pages>},
    {"stats.arenas.#.pmuzzy", arena_statistic<zero>},
    {"stats.arenas.#.mapped", arena_statistic<&Statistics::charged_bytes>},
    {"stats.arenas.#.retained", arena_statistic<&Statistics::clean_bytes>},
    {"stats.arenas.#.resident", arena_statistic<&Statistics::backed_bytes>},
    {"stats.arenas.#.base", arena_statistic<&Statistics::metadata_bytes>},
    {"stats.arenas.#.internal", arena_statistic<zero>},
    {"stats.arenas.#.small.allocated", arena_statistic<&Statistics::small_bytes>},
    {"stats.arenas.#.bins.#.curregs", bin_statistic<&BinFigures::blocks>},
    {"stats.arenas.#.bins.#.curslabs", bin_statistic<&BinFigures::slabs>},
    {"stats.arenas.#.large.allocated", arena_statistic<large_live>},
};

}  // namespace

MallctlNodes mallctl_nodes() { return {kNodes, sizeof kNodes / sizeof kNodes[0]}; }

}  // namespace freestone
