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

#define FREESTONE_VERSION_MAJOR 0
#define FREESTONE_VERSION_MINOR 1
#define FREESTONE_VERSION_PATCH 0

/* The application may define this symbol: options in the form "key:value,key:value". The environment variable FREESTONE_CONF is
 * read after it. */
extern const char *freestone_conf;

/* The version of the library in use as "major.minor.patch". */
const char *freestone_version(void);

/* 1 when malloc in this process is served by Freestone, 0 when it is switched off (FREESTONE_DISABLE=1). */
int freestone_is_active(void);

/* The bytes that malloc(bytes) would make usable. */
size_t freestone_good_size(size_t bytes);

/* Gives free memory back to the kernel, keeping up to keep_bytes of free spans for reuse. 1 if anything was given. */
int freestone_trim(size_t keep_bytes);

/* What the heap holds, in bytes unless said otherwise. Set `version` to FREESTONE_STATS_VERSION before the call; members are
 * only ever added at the end, under a new version. */
#define FREESTONE_STATS_VERSION 1
struct freestone_stats {
  uint32_t version;
  uint32_t threads;         /* threads that hold a cache */
  uint64_t live_bytes;      /* handed out and not yet freed, counted by block size */
  uint64_t live_blocks;     /* count */
  uint64_t cached_bytes;    /* free, in thread caches */
  uint64_t slab_free_bytes; /* free blocks inside slabs */
  uint64_t dirty_bytes;     /* free spans with memory behind them */
  uint64_t clean_bytes;     /* free spans without memory */
  uint64_t mapped_bytes;    /* blocks with an own mapping, part of live_bytes */
  uint64_t metadata_bytes;  /* accessible for the allocator's own records */
  uint64_t committed_bytes; /* accessible heap, own mappings excluded */
  uint64_t reserved_bytes;  /* address space */
  uint64_t resident_bytes;  /* of the process */
  uint64_t purged_bytes;    /* given back to the kernel since the start */
  uint64_t purge_calls;     /* count */
};
/* EINVAL when stats is null or its version is not known. */
int freestone_get_stats(struct freestone_stats *stats);

/* The value of an option as text. ENOENT for an unknown name, ERANGE when the buffer is too small. */
int freestone_option_get(const char *name, char *value, size_t capacity);
/* Changes an option that takes effect at run time. ENOENT for an unknown name, EINVAL for a bad value. */
int freestone_option_set(const char *name, const char *value);

#ifdef __cplusplus
}
#endif

#endif
