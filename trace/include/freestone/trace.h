/* freestone/trace.h: the layout of a trace file (.fst), version 1, for readers and writers in C. docs/TRACE.md is the
 * full description.
 *
 * A file is one fst_header, then blocks, then one fst_end. A block is an fst_block and its payload, which is compressed
 * by zstd when `codec` says so. All numbers are little-endian; a checksum is CRC-32C and covers every byte before it in
 * its structure. Every byte of a file is under a checksum.
 */
#ifndef FREESTONE_TRACE_H
#define FREESTONE_TRACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FST_MAGIC "FSTRACE\n"
#define FST_END_MAGIC "FSTREND\n"
#define FST_VERSION 1
#define FST_BLOCK_MAGIC 0x42545346u /* "FSTB" */

/* No payload is larger. A reader refuses a block that claims more, before it allocates anything. */
#define FST_MOST_PAYLOAD_BYTES (64u << 20)

struct fst_header {
  char magic[8];
  uint16_t version;
  uint16_t header_bytes; /* sizeof(struct fst_header) */
  uint32_t flags;        /* none yet */
  uint64_t step_ns;      /* one step of a time, in nanoseconds */
  uint64_t started_unix_ns;
  uint8_t reserved[28];
  uint32_t crc;
};

/* Times are steps since the start of the recording. */
struct fst_block {
  uint32_t magic;
  uint8_t type;  /* enum fst_block_type */
  uint8_t codec; /* enum fst_codec */
  uint16_t reserved;
  uint32_t process; /* of events and samples: numbers from 0, in order of appearance */
  uint32_t thread;  /* of events: numbers from 0, unique in the whole file */
  uint32_t events;
  uint32_t raw_bytes;    /* of the payload when unpacked */
  uint32_t stored_bytes; /* of the payload in the file */
  uint32_t payload_crc;  /* of the payload as stored */
  uint64_t first_time;
  uint64_t last_time;
  uint64_t first_birth; /* of events: number of the thread's first birth in this block */
  uint32_t reserved2;
  uint32_t crc;
};

struct fst_end {
  char magic[8];
  uint64_t index_offset; /* of the index block */
  uint64_t blocks;       /* before the index block */
  uint32_t reserved;
  uint32_t crc;
};

/* The payload of the index block is an array of these, one per block before it. */
struct fst_index_entry {
  uint64_t offset;
  uint32_t type;
  uint32_t process;
  uint32_t thread;
  uint32_t events;
  uint64_t first_time;
  uint64_t last_time;
};

enum fst_codec { FST_RAW = 0, FST_ZSTD = 1 };

enum fst_block_type {
  FST_BLOCK_META = 1,   /* JSON: who recorded what, where */
  FST_BLOCK_EVENTS = 2, /* calls of one thread, in its order */
  FST_BLOCK_SAMPLES =
      3, /* resident memory of one process: (varint steps since the last, varint KiB, varint anonymous KiB)* */
  FST_BLOCK_GAP =
      4, /* nothing was recorded between first_time and last_time; of one thread, or of all: thread FST_ALL */
  FST_BLOCK_STACKS = 5,  /* sampled call stacks, with --stacks only */
  FST_BLOCK_SUMMARY = 6, /* JSON: what the writer counted */
  FST_BLOCK_INDEX = 7,
};

#define FST_ALL 0xffffffffu

/* The payload of events: six lengths (uint32_t), then six columns of that many bytes.
 *   kinds   one byte an event: bits 0-4 enum fst_kind, bit 5 FST_FAILED, bit 6 FST_FOREIGN, bit 7 FST_TIMED
 *   sizes   a varint for each birth: the bytes asked for
 *   aligns  a byte for each birth of an aligned kind: the binary logarithm of the alignment
 *   refs    for each event that names an object. Of this thread: varint(births so far - 1 - birth). With FST_FOREIGN:
 *           varint(thread), varint(zigzag(birth - the birth that the last foreign reference of this block named))
 *   times   for each event with FST_TIMED: varint(steps since the event before); the first counts from first_time
 *   extras  a varint for each event of FST_FORK (the child's process), FST_TOUCH (pages touched so far)
 *
 * An object's name is the thread that made it and its number among that thread's births. A realloc ends one object and
 * makes another. An event that ends or touches an object comes after that object's birth, in whichever thread it was
 * born. This is the order between threads. */
enum fst_column { FST_KINDS, FST_SIZES, FST_ALIGNS, FST_REFS, FST_TIMES, FST_EXTRAS, FST_COLUMNS };

enum fst_kind {
  /* births */
  FST_MALLOC = 1,
  FST_CALLOC = 2,
  FST_ALIGNED_ALLOC = 3,
  FST_POSIX_MEMALIGN = 4,
  FST_MEMALIGN = 5,
  FST_VALLOC = 6,
  FST_PVALLOC = 7,
  FST_NEW = 8,
  FST_NEW_ARRAY = 9,
  FST_NEW_ALIGNED = 10,
  FST_NEW_ARRAY_ALIGNED = 11,
  FST_REALLOC_NULL = 12, /* realloc(NULL, size) */
  /* a death and a birth */
  FST_REALLOC = 13,
  /* deaths */
  FST_FREE = 14,
  FST_FREE_SIZED = 15,
  FST_FREE_ALIGNED_SIZED = 16,
  FST_DELETE = 17,
  FST_DELETE_ARRAY = 18,
  FST_DELETE_SIZED = 19,
  FST_DELETE_ARRAY_SIZED = 20,
  FST_DELETE_ALIGNED = 21,
  FST_DELETE_ARRAY_ALIGNED = 22,
  FST_REALLOC_ZERO = 23, /* realloc(p, 0) that freed p */
  FST_LOST_FREE = 24,    /* the free itself was not recorded; its place is a guess */
  /* others */
  FST_THREAD_START = 25,
  FST_THREAD_END = 26,
  FST_FORK = 27,
  FST_TOUCH = 28,
  FST_KINDS_END = 29,
};

#define FST_KIND_MASK 0x1fu
#define FST_FAILED 0x20u /* the call returned no memory; a failed birth is no object, a failed realloc ends none */
#define FST_FOREIGN 0x40u
#define FST_TIMED 0x80u

static inline int fst_is_birth(unsigned kind) { return kind >= FST_MALLOC && kind <= FST_REALLOC; }
static inline int fst_is_death(unsigned kind) { return kind >= FST_REALLOC && kind <= FST_LOST_FREE; }
static inline int fst_has_reference(unsigned kind) { return fst_is_death(kind) || kind == FST_TOUCH; }
static inline int fst_has_extra(unsigned kind) { return kind == FST_FORK || kind == FST_TOUCH; }
static inline int fst_is_aligned(unsigned kind) {
  return (kind >= FST_ALIGNED_ALLOC && kind <= FST_MEMALIGN) || kind == FST_NEW_ALIGNED ||
         kind == FST_NEW_ARRAY_ALIGNED;
}

#ifdef __cplusplus
}
#endif

#endif
