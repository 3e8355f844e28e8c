/* Freestone: a drop-in malloc for Linux. The C interface beyond malloc itself.
 *
 * Link with -lfreestone, or load the library with LD_PRELOAD and reach these functions through weak symbols or dlsym.
 * Every function may be called from any thread. Functions that can fail return 0 on success or an errno value; none
 * sets errno.
 */
#ifndef FREESTONE_FREESTONE_H
#define FREESTONE_FREESTONE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FREESTONE_VERSION_MAJOR 1
#define FREESTONE_VERSION_MINOR 1
#define FREESTONE_VERSION_PATCH 0

/* The application may define this symbol: options in the form "key:value,key:value". The environment variable
 * FREESTONE_CONF is read after it. */
extern const char *freestone_conf;

/* The version of the library in use as "major.minor.patch"; "-dev" follows before these numbers are released. */
const char *freestone_version(void);

/* 1 when malloc in this process is served by Freestone, 0 when it is switched off (FREESTONE_DISABLE=1). */
int freestone_is_active(void);

/* The largest size that costs no more than malloc(bytes): malloc_usable_size of a block asked for with it is exactly
 * that. */
size_t freestone_good_size(size_t bytes);

/* Gives free memory back to the kernel, keeping up to keep_bytes of free spans for reuse. 1 if anything was given. */
int freestone_trim(size_t keep_bytes);

/* What the heap holds, in bytes unless said otherwise. Set `version` to FREESTONE_STATS_VERSION before the call;
 * members are only ever added at the end, under a new version, and the library fills in those of the version it is
 * given.
 *
 * At rest: live + cached + slab_free + dirty + clean = committed + mapped, and charged = committed + mapped + metadata
 * - clean. While other threads run, figures of one call may belong to slightly different instants. A call takes about
 * 0.1 ms, whatever the heap's size. */
#define FREESTONE_STATS_VERSION 2
struct freestone_stats {
  uint32_t version;
  uint32_t threads;         /* threads that hold a cache */
  uint64_t live_bytes;      /* handed out and not yet freed, counted by block size */
  uint64_t live_blocks;     /* count */
  uint64_t cached_bytes;    /* free, in thread caches and run caches */
  uint64_t slab_free_bytes; /* free blocks inside slabs, with memory behind them or without */
  uint64_t dirty_bytes;     /* free spans with memory behind them */
  uint64_t clean_bytes;     /* free spans without memory */
  uint64_t mapped_bytes;    /* blocks with an own mapping, part of live_bytes */
  uint64_t metadata_bytes;  /* accessible for the allocator's own records */
  uint64_t committed_bytes; /* accessible heap, own mappings excluded */
  uint64_t reserved_bytes;  /* address space */
  uint64_t resident_bytes;  /* of the process */
  uint64_t purged_bytes;    /* given back to the kernel since the start */
  uint64_t purge_calls;     /* count */
  /* since version 2 */
  uint64_t thread_cached_bytes;
  uint64_t run_cached_bytes;
  uint64_t large_bytes;             /* runs above the size classes, part of live_bytes */
  uint64_t heap_object_bytes;       /* spans of the heap objects below */
  uint64_t metadata_resident_bytes; /* records that are in memory */
  uint64_t charged_bytes;           /* what limits are about */
  uint64_t peak_bytes;              /* the highest charged_bytes so far */
  uint64_t peak_resident_bytes;     /* of the process */
  uint64_t limit_soft_bytes;        /* 0: none */
  uint64_t limit_hard_bytes;
  uint64_t soft_limit_crossings;    /* count */
  uint64_t pressure_reactions;      /* count */
  uint64_t reclaims;                /* times that all free memory was given back because an allocation found none */
  uint64_t failed_allocations;      /* count */
  uint64_t system_calls;            /* count, all kinds */
};
/* EINVAL when stats is null or its version is not known. */
int freestone_get_stats(struct freestone_stats *stats);

/* The same and more as text, from a descriptor that is open for writing. EINVAL for an unknown format, EIO when it
 * cannot be written. */
enum freestone_format {
  FREESTONE_TEXT,        /* for people; what malloc_stats prints */
  FREESTONE_JSON,        /* per size class and per thread too */
  FREESTONE_XML,         /* what malloc_info prints */
  FREESTONE_OPENMETRICS  /* for Prometheus */
};
int freestone_stats_write(int file, enum freestone_format format);
/* Writes statistics to where the option stats_file says, now. EBUSY while another thread does, EIO when it cannot be
 * written. */
int freestone_stats_report(void);

/* Limits on what the heap holds (charged_bytes above): memory in use, free memory with pages behind it, mappings, and
 * the allocator's own records; not the program's own mappings and stacks. Above the soft limit everything free goes
 * back to the kernel. The hard limit is never exceeded: when giving everything back does not help, allocations fail
 * with ENOMEM. Nothing ever aborts, and free needs no memory. 0 stands for no limit. EINVAL for an unknown version or a
 * soft limit above the hard one. */
#define FREESTONE_LIMITS_VERSION 1
struct freestone_limits {
  uint32_t version;
  uint32_t reserved; /* 0 */
  uint64_t soft_bytes;
  uint64_t hard_bytes;
};
int freestone_set_limits(const struct freestone_limits *limits);
int freestone_get_limits(struct freestone_limits *limits);

/* What the program wants to be told. A null member is not called; a null pointer takes all back. The structure is
 * copied. */
#define FREESTONE_CALLBACKS_VERSION 1
struct freestone_callbacks {
  uint32_t version;
  uint32_t reserved; /* 0 */
  void *context;
  /* An allocation of `bytes` is about to fail, for the attempt-th time counted from 0. Returns 1 after having freed
   * something: it is tried again; 0: it fails. Called on the allocating thread with no lock held. */
  int (*out_of_memory)(void *context, size_t bytes, unsigned attempt);
  /* The heap was misused or damaged ("double free", ...); the process ends when this returns. May not allocate or free.
   */
  void (*corruption)(void *context, const char *kind, const void *block, const char *detail);
};
/* EINVAL for an unknown version; EPERM where a sandbox keeps the hardened build from opening its sealed page. */
int freestone_set_callbacks(const struct freestone_callbacks *callbacks);

/* Calls leaving before pages of freed or moved blocks leave, for who registered them with a device (RDMA): on the
 * thread that allocates or frees, with no lock but that of a heap object whose memory goes. It may allocate and free.
 * Null takes it back; a thread may still be in it. EPERM as for freestone_set_callbacks. */
int freestone_on_pages_leaving(void (*leaving)(void *context, void *address, size_t bytes), void *context);

/* With 1 the calling thread gives no memory back to the kernel, nor by freestone_trim: other threads do. For threads
 * that must not wait there: of audio, or that read events of userfaultfd. */
void freestone_thread_never_purges(int never);

/* Gives the calling thread's cache back. */
void freestone_flush_thread(void);

/* Calls visit for every live block of the process until it returns 0; a block in a cache is not live, blocks of heap
 * objects are. The visitor may not allocate or free, and no other thread should: what it does meanwhile may be missed.
 * ENOMEM when the walk itself finds no memory. */
typedef int (*freestone_visitor)(void *context, void *block, size_t bytes);
int freestone_walk(freestone_visitor visit, void *context);

/* Whether the allocator's records agree with each other. 0, or EFAULT with a sentence in *damage (if not null). No
 * other thread may allocate or free meanwhile. */
int freestone_validate(const char **damage);

/* A heap object: a heap of its own with a limit, from which any thread may allocate and which is freed as a whole. Its
 * blocks are freed by freestone_heap_deallocate only. The limit is on the memory the object takes, in steps of 16 KiB;
 * what does not fit returns null. A block that is not a live block of the heap ends the process with one line. */
typedef struct freestone_heap freestone_heap;
/* limit_bytes 0: none. Null when memory is out. */
freestone_heap *freestone_heap_create(size_t limit_bytes);
/* Frees all blocks and the heap. Returns how many blocks were live: 0 when nothing leaked. */
size_t freestone_heap_destroy(freestone_heap *heap);
/* At least `bytes` bytes aligned to 16; null when the limit is reached (errno is left alone). */
void *freestone_heap_allocate(freestone_heap *heap, size_t bytes);
void *freestone_heap_allocate_zeroed(freestone_heap *heap, size_t bytes);
/* alignment: a power of two up to 2 MiB. */
void *freestone_heap_allocate_aligned(freestone_heap *heap, size_t bytes, size_t alignment);
/* Null leaves the block as it was. A null block is allocated. */
void *freestone_heap_reallocate(freestone_heap *heap, void *block, size_t bytes);
void freestone_heap_deallocate(freestone_heap *heap, void *block);
size_t freestone_heap_usable_size(freestone_heap *heap, const void *block);

#define FREESTONE_HEAP_STATS_VERSION 1
struct freestone_heap_stats {
  uint32_t version;
  uint32_t reserved;
  uint64_t limit_bytes; /* 0: none */
  uint64_t held_bytes;  /* taken from the process, the heap's own record included */
  uint64_t peak_bytes;  /* the highest held_bytes so far */
  uint64_t live_bytes;
  uint64_t live_blocks;
  uint64_t failed_allocations;
};
int freestone_heap_get_stats(freestone_heap *heap, struct freestone_heap_stats *stats);
/* 0, or EFAULT when the heap's records contradict each other. */
int freestone_heap_validate(freestone_heap *heap);
/* Visits the heap's live blocks, under its lock; returns how many were visited. Before destroy these are the leaks. */
size_t freestone_heap_walk(freestone_heap *heap, freestone_visitor visit, void *context);

/* The heap profiler, without the option prof too. start and stop act on the calling thread at once, on others from
 * their next refill; what was sampled stays until its block is freed. dump writes the profile to path, or where the
 * option prof_file says when it is null, in the format of the option prof_format: 0, EIO or ENOMEM. Not in signal
 * handlers: for these there is the option prof_signal. */
void freestone_prof_start(void);
void freestone_prof_stop(void);
int freestone_prof_is_active(void);
int freestone_prof_dump(const char *path);

/* Looks for blocks that nothing points to among the profiler's samples (all blocks with the option leak:exact), prints
 * them to standard error or where the option leak_file says, and returns how many were found. Other threads stand still
 * meanwhile. */
size_t freestone_leak_check(void);

/* The value of an option as text. ENOENT for an unknown name, ERANGE when the buffer is too small. */
int freestone_option_get(const char *name, char *value, size_t capacity);
/* Changes an option that takes effect at run time. ENOENT for an unknown name, EINVAL for a bad value, EPERM as for
   freestone_set_callbacks. */
int freestone_option_set(const char *name, const char *value);

#ifdef __cplusplus
}
#endif

#endif
