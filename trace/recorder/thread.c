/* recorder/thread.c: where a process joins a recording, and what a thread does when its block is full.
 *
 * A process that finds FREESTONE_RECORD in its environment joins at its first call. Any other is dormant: it offers a
 * small file, /dev/shm/freestone-record.PID, where `freestone record --pid` tells it what to join. A recorded thread
 * comes here once per block of 2044 events, a dormant one at each call. Nothing here takes a lock.
 */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "recorder/thread.h"

enum {
  kWaitShare = 5,
  kWaitNs = 100000,
  kMostWaitNs = 500000000
}; /* a thread waits for the writer at most a fifth of its time */
enum { kMostFrames = 48, kOwnFrames = 3 }; /* of a sampled stack; those of this library are left out */

FSR_LOCAL __thread struct fsr_thread fsr_self;

static struct fsr_header* session; /* stored last, when the session is ready */
static uint32_t generation;        /* of `session`; 0: none was ever joined */
static uint32_t process;           /* this process's number in it */
static uint32_t forked;            /* the number that the child of the current fork will have */
static uint64_t joined_ns;
static struct fsr_control* control;
static uint32_t seen_request; /* of `control` */
static int setup_state;       /* 0 not begun, 1 under way, 2 done */
static pthread_key_t at_thread_end;
static bool has_key;

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Maps the recording at `path` and enters this process into it. */
static void join(const char* path, uint32_t wanted_generation) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  struct stat about;
  struct fsr_header* header = MAP_FAILED;
  if (fstat(fd, &about) == 0 && (size_t)about.st_size >= sizeof *header)
    header = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (header == MAP_FAILED) return;
  if (header->magic != FSR_MAGIC || header->blocks > kMostBlocks ||
      header->blocks_offset + (uint64_t)header->blocks * kBlockBytes > (uint64_t)about.st_size) {
    munmap(header, (size_t)about.st_size);
    return;
  }
  const uint32_t number =
      __atomic_fetch_add(&header->next_process, 1, __ATOMIC_RELAXED); /* only its uniqueness counts */
  if (number >= kMostProcesses) {
    munmap(header, (size_t)about.st_size);
    return;
  }
  process = number;
  joined_ns = now_ns(CLOCK_MONOTONIC);
  header->processes[number].parent = kNoProcess;
  header->processes[number].started = fsr_ticks();
  __atomic_store_n(&header->processes[number].pid, (uint32_t)getpid(),
                   __ATOMIC_RELEASE); /* publishes the entry to the writer */
  if (header->stack_every) {
    void* frame;
    backtrace(&frame, 1); /* loads all that unwinding needs, so that later calls load nothing */
  }
  __atomic_store_n(&generation, wanted_generation, __ATOMIC_RELAXED); /* ordered by the next store */
  __atomic_store_n(&session, header, __ATOMIC_RELEASE);               /* publishes all of the above to other threads */
}

static void hand_over(struct fsr_thread* self) {
  struct fsr_block* block = self->block;
  if (block) {
    const uintptr_t used = self->cursor < self->end ? self->cursor : self->end;
    block->used = (uint32_t)(used - (uintptr_t)block->words);
    __atomic_store_n(&block->state, kBlockFull, __ATOMIC_RELEASE); /* SHARED-2: the block is the writer's */
  }
  self->block = NULL;
  self->cursor = self->end = self->birth_limit = self->death_limit = 0;
}

static void thread_ends(void* argument) {
  struct fsr_thread* self = argument;
  if (!self->block) return;
  fsr_death(FST_THREAD_END, NULL);
  self->in_slow = true;
  hand_over(self);
  self->in_slow = false;
}

static void before_fork(void) {
  struct fsr_header* header = __atomic_load_n(&session, __ATOMIC_ACQUIRE); /* from join */
  forked = kNoProcess;
  if (!header || header->stop) return;
  forked = __atomic_fetch_add(&header->next_process, 1, __ATOMIC_RELAXED); /* only its uniqueness counts */
  if (forked >= kMostProcesses) return;
  header->processes[forked].started = fsr_ticks();
  fsr_death(FST_FORK, (void*)(uintptr_t)forked);
}

/* The child has one thread, which is new in the recording. The parent keeps its block. */
static void in_child(void) {
  struct fsr_thread* self = &fsr_self;
  self->block = NULL;
  self->cursor = self->end = self->birth_limit = self->death_limit = 0;
  self->numbered = self->in_slow = false;
  self->nested = self->sequence = 0;
  struct fsr_header* header = session;
  if (!header || header->stop) return;
  if (forked >= kMostProcesses) {
    session = NULL;
    return;
  }
  struct fsr_process* entry = &header->processes[forked];
  entry->parent = process;
  entry->started = fsr_ticks();
  process = forked;
  __atomic_store_n(&entry->pid, (uint32_t)getpid(), __ATOMIC_RELEASE); /* publishes the entry to the writer */
}

static void remove_control(void) {
  if (control && control->pid == (uint32_t)getpid()) {
    char path[sizeof FSR_CONTROL_PREFIX + 12];
    snprintf(path, sizeof path, FSR_CONTROL_PREFIX "%u", control->pid);
    unlink(path);
  }
}

static void offer_control(void) {
  char path[sizeof FSR_CONTROL_PREFIX + 12];
  snprintf(path, sizeof path, FSR_CONTROL_PREFIX "%ld", (long)getpid());
  unlink(path); /* left by an earlier process with this number */
  const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  if (ftruncate(fd, sizeof *control) == 0) {
    struct fsr_control* made = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (made != MAP_FAILED) {
      made->pid = (uint32_t)getpid();
      made->magic = FSR_MAGIC;
      control = made;
      atexit(remove_control);
    }
  }
  close(fd);
}

/* Runs once per process. Threads that come meanwhile record nothing yet. */
static bool set_up(void) {
  int expected = 0;
  if (__atomic_load_n(&setup_state, __ATOMIC_ACQUIRE) == 2) return true; /* from the store below */
  if (!__atomic_compare_exchange_n(&setup_state, &expected, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return expected == 2;
  pthread_atfork(before_fork, NULL, in_child);
  has_key = pthread_key_create(&at_thread_end, thread_ends) == 0;
  const char* path = getenv(FSR_ENVIRONMENT);
  if (path && *path)
    join(path, 1);
  else
    offer_control();
  __atomic_store_n(&setup_state, 2, __ATOMIC_RELEASE); /* publishes the key and the control file */
  return true;
}

/* Before the program can change its user, its root or its limits, so that all its processes are recorded. */
__attribute__((constructor)) static void at_load(void) {
  const bool in_slow = fsr_self.in_slow;
  fsr_self.in_slow = true;
  set_up();
  fsr_self.in_slow = in_slow;
}

/* The running session, or null. Joins the one that the control file asks for. */
static struct fsr_header* current_session(void) {
  struct fsr_header* header = __atomic_load_n(&session, __ATOMIC_ACQUIRE);        /* from join */
  if (header && !__atomic_load_n(&header->stop, __ATOMIC_RELAXED)) return header; /* noticed sooner or later */
  if (!control) return NULL;
  uint32_t wanted = __atomic_load_n(&control->request, __ATOMIC_ACQUIRE); /* publishes control->path */
  uint32_t seen = __atomic_load_n(&seen_request, __ATOMIC_RELAXED);       /* the exchange decides */
  if (wanted == seen ||
      !__atomic_compare_exchange_n(&seen_request, &seen, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return NULL;
  join(control->path, generation + 1);
  header = __atomic_load_n(&session, __ATOMIC_ACQUIRE); /* from join */
  return header && !header->stop ? header : NULL;
}

static struct fsr_block* take_block(struct fsr_header* header) {
  const uint32_t words = (header->blocks + 63) / 64;
  const uint32_t begin = fsr_self.number % words; /* spreads the threads over the words */
  for (uint32_t i = 0; i < words; i++) {
    uint64_t* word = &header->free_bits[(begin + i) % words];
    uint64_t bits = __atomic_load_n(word, __ATOMIC_RELAXED); /* a hint */
    while (bits) {
      const unsigned bit = (unsigned)__builtin_ctzll(bits);
      bits = __atomic_fetch_and(word, ~(1ull << bit), __ATOMIC_ACQUIRE); /* the writer has cleared the block */
      if (bits >> bit & 1) {
        const uint64_t number = (uint64_t)((begin + i) % words) * 64 + bit;
        return (struct fsr_block*)((char*)header + header->blocks_offset + number * kBlockBytes);
      }
    }
  }
  return NULL;
}

/* Takes a block, and waits for one if it must. Null once this thread has waited for its share of time. */
static struct fsr_block* take_or_wait(struct fsr_thread* self, struct fsr_header* header) {
  struct fsr_block* block = take_block(header);
  if (block) return block;
  const uint64_t begin = now_ns(CLOCK_MONOTONIC);
  for (uint64_t now = begin; !block && !header->stop;) {
    if (self->waited_ns + (now - begin) > (now - joined_ns) / kWaitShare || now - begin > kMostWaitNs) break;
    const struct timespec pause = {0, kWaitNs};
    nanosleep(&pause, NULL);
    block = take_block(header);
    now = now_ns(CLOCK_MONOTONIC);
  }
  self->waited_ns += now_ns(CLOCK_MONOTONIC) - begin;
  return block;
}

static void put(struct fsr_thread* self, unsigned kind, unsigned align_log2, uintptr_t address, uint64_t size) {
  const uintptr_t place = fsr_reserve(self, &self->end);
  if (place) fsr_store(place, kind, align_log2, address, size, fsr_ticks());
}

static void set_limits(struct fsr_thread* self, struct fsr_header* header) {
  self->death_limit = self->end;
  self->birth_limit = self->skipped ? 0 : self->end;
  if (header->stack_every && !self->skipped) {
    const uintptr_t next =
        self->cursor + 2 * (uintptr_t)header->stack_every * kEventBytes; /* every second event is a birth */
    if (next < self->birth_limit) self->birth_limit = next;
  }
}

/* Gives the thread a block with room, or reports that the call must be dropped. */
static bool next_block(struct fsr_thread* self, struct fsr_header* header) {
  const uint64_t second = now_ns(CLOCK_MONOTONIC_COARSE) / 1000000000u;
  if (self->gap_until_s > second) return false;
  const bool first = !self->numbered;
  if (first) {
    self->number = __atomic_fetch_add(&header->next_thread, 1, __ATOMIC_RELAXED); /* only its uniqueness counts */
    self->sequence = 0;
    self->numbered = true;
    self->skipped = header->sample_threads > 1 && self->number % header->sample_threads != 0;
  }
  struct fsr_block* block = take_or_wait(self, header);
  if (!block) {
    if (!self->gap_until_s) self->gap_from_s = second;
    self->gap_until_s = now_ns(CLOCK_MONOTONIC_COARSE) / 1000000000u + 1;
    return false;
  }
  block->process = self->process;
  block->thread = self->number;
  block->sequence = self->sequence++;
  block->pid = (uint32_t)getpid();
  block->tid = (uint32_t)syscall(SYS_gettid);
  block->first_tick = fsr_ticks();
  block->used = 0;
  __atomic_store_n(&block->state, kBlockFilling, __ATOMIC_RELEASE); /* SHARED-2: the writer may read along */
  self->block = block;
  self->end = (uintptr_t)block->words + sizeof block->words;
  self->cursor = (uintptr_t)block->words;
  if (first) put(self, FST_THREAD_START, 0, 0, 0);
  if (self->gap_until_s) put(self, kRawGap, 0, 0, self->gap_until_s - self->gap_from_s);
  self->gap_until_s = 0;
  if (has_key) pthread_setspecific(at_thread_end, self);
  return true;
}

/* Stores the caller's stack behind the last event. */
__attribute__((noinline)) static void put_stack(struct fsr_thread* self) {
  void* frames[kMostFrames];
  const int found = backtrace(frames, kMostFrames);
  const unsigned count = found > kOwnFrames ? (unsigned)(found - kOwnFrames) : 0;
  if (count == 0 || self->cursor + (count + 1) * kEventBytes > self->end) return;
  put(self, kRawStack, 0, 0, count);
  for (unsigned i = 0; i < count; i++)
    put(self, kRawFrame, 0, (uintptr_t)frames[kOwnFrames + i] & 0xffffffffffffull, 0);
}

static void record(struct fsr_thread* self, struct fsr_header* header, unsigned kind, unsigned align_log2,
                   uintptr_t address, uint64_t size) {
  const bool birth = fst_is_birth(kind) && kind != FST_REALLOC;
  if (self->numbered && self->generation != generation) { /* an earlier recording, whose writer is gone */
    hand_over(self);
    self->numbered = false;
  }
  self->generation = generation;
  self->process = process;
  if (birth && self->skipped && self->numbered) return;
  const unsigned needed = size >= kRawSizeBig ? 2 : 1;
  if (!self->block || self->cursor + needed * kEventBytes > self->end) {
    hand_over(self);
    if (!next_block(self, header)) {
      __atomic_fetch_add(&header->dropped_calls, 1, __ATOMIC_RELAXED); /* a statistic */
      return;
    }
    if (birth && self->skipped) return;
  }
  if (size >= kRawSizeBig) {
    put(self, kRawBigSize, 0, size, 0);
    size = kRawSizeBig;
  }
  put(self, kind, align_log2, address, size);
  if (header->stack_every && birth && self->cursor >= self->birth_limit) put_stack(self);
}

FSR_LOCAL void fsr_record_slow(struct fsr_thread* self, unsigned kind, unsigned align_log2, uintptr_t address,
                               uint64_t size) {
  self->cursor -= kEventBytes; /* gives the unused place back */
  if (self->nested || self->in_slow) return;
  const int error = errno;
  self->in_slow = true;
  struct fsr_header* header = set_up() ? current_session() : NULL;
  if (header) {
    record(self, header, kind, align_log2, address, size);
    set_limits(self, header);
  } else if (self->block || self->cursor) {
    hand_over(self);
  }
  self->in_slow = false;
  errno = error;
}

FSR_LOCAL void fsr_record_pages(uintptr_t address) {
  uint64_t pages;
  struct fsr_thread* self = &fsr_self;
  if (self->nested || self->in_slow || !fsr_large_remove(address, &pages)) return;
  const uintptr_t place = fsr_reserve(self, &self->death_limit);
  if (place)
    fsr_store(place, FST_TOUCH, 0, address, pages, fsr_ticks());
  else
    fsr_record_slow(self, FST_TOUCH, 0, address, pages);
}

FSR_LOCAL void fsr_record_large(struct fsr_thread* self, uintptr_t place, unsigned kind, unsigned align_log2,
                                uintptr_t address, uint64_t size) {
  if (address) fsr_large_add(address, size);
  if (size < kRawSizeBig) {
    fsr_store(place, kind, align_log2, address, size, fsr_ticks());
    return;
  }
  fsr_store(place, kRawBigSize, 0, (uintptr_t)size, 0, fsr_ticks());
  const uintptr_t next = fsr_reserve(self, &self->end);
  if (next)
    fsr_store(next, kind, align_log2, address, kRawSizeBig, fsr_ticks());
  else
    fsr_record_slow(self, kind, align_log2, address, size);
}
