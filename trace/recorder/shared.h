/* recorder/shared.h: the memory through which recorded processes hand their events to the writer. Both sides use it.
 *
 * One file of shared memory serves a whole recording: a header, then blocks. A thread takes a free block, fills it,
 * marks it full and takes the next. The writer reads along and frees full blocks. So the events of a killed process are
 * still there. Nobody waits for a lock.
 *
 * SHARED-1: an event's first word is stored last (release) and is never zero. The writer clears a block before freeing
 *           it.
 * SHARED-2: a block belongs to the thread that takes it until `state` is kBlockFull, then to the writer.
 */
#ifndef FREESTONE_RECORDER_SHARED_H
#define FREESTONE_RECORDER_SHARED_H

#include <stdint.h>

#define FSR_MAGIC 0x31524345525453ull /* "STRECR1" */
#define FSR_ENVIRONMENT "FREESTONE_RECORD"

enum {
  kBlockBytes = 32768,
  kBlockHeaderBytes = 64,
  kEventBytes = 16, /* two words; see raw_event below */
  kBlockEvents = (kBlockBytes - kBlockHeaderBytes) / kEventBytes,
  kMostBlocks = 8192,
  kMostProcesses = 8192,
  kTickShift = 5, /* a tick is 32 cycles of the time stamp counter (aarch64: one of the virtual counter) */
};

enum fsr_state { kBlockFree = 0, kBlockFilling = 1, kBlockFull = 2 };

struct fsr_process {
  uint32_t pid;     /* stored last: 0 while the entry is not valid */
  uint32_t parent;  /* number of the process it was forked from, or kNoProcess */
  uint64_t started; /* ticks; stored before the fork that makes it: with no pid yet, it is about to begin */
};
#define kNoProcess 0xffffffffu

struct fsr_header {
  uint64_t magic;
  uint32_t blocks;         /* how many follow */
  uint32_t stop;           /* 1: the recording is over */
  uint32_t sample_threads; /* record one thread in this many; 1: all */
  uint32_t stack_every;    /* record the call stack of one birth in this many; 0: none */
  uint32_t next_process;
  uint32_t next_thread;
  uint64_t dropped_calls;               /* of threads that found no free block */
  uint64_t blocks_offset;               /* from the start of the file */
  uint64_t free_bits[kMostBlocks / 64]; /* bit set: the block is free */
  struct fsr_process processes[kMostProcesses];
};

struct fsr_block {
  uint32_t state;
  uint32_t process;
  uint32_t thread;
  uint32_t sequence; /* of the thread's blocks, from 0 */
  uint32_t pid;
  uint32_t tid;
  uint32_t used; /* bytes of events, valid once full */
  uint32_t reserved;
  uint64_t first_tick; /* not later than the first event */
  uint64_t padding[3];
  uint64_t words[(kBlockBytes - kBlockHeaderBytes) / 8];
};

/* An event is two words.
 *   word 0: address << 16 | binary logarithm of the alignment << 8 | kind
 *   word 1: low half of the size << 32 | low half of the tick
 * A size of 4 GiB or more has kRawBigSize in front (its "address" is the size), and all ones as its low half. */
enum fsr_kind {
  /* 1 to 28: those of enum fst_kind in freestone/trace.h; FST_REALLOC stands for the end of a realloc */
  kRawReallocBegin = 32, /* address: the old one */
  kRawBigSize = 33,
  kRawGap = 34,   /* word 1: seconds lost << 32 */
  kRawStack = 35, /* word 1: number of frames << 32; each frame follows as an event of kRawFrame */
  kRawFrame = 36, /* address: the code's */
};

#define kRawSizeBig 0xffffffffu

/* The file that tells a dormant process which recording to join. */
#define FSR_CONTROL_PREFIX "/dev/shm/freestone-record."

struct fsr_control {
  uint64_t magic;
  uint32_t pid;
  uint32_t request; /* rises after `path` is written */
  char path[4080];
};

static inline uint64_t fsr_ticks(void) {
#if defined(__x86_64__)
  uint32_t low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return ((uint64_t)high << 32 | low) >> kTickShift;
#elif defined(__aarch64__)
  uint64_t count;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
#error "the recorder needs a time stamp counter: x86-64 or aarch64"
#endif
}

#endif
