/* The null allocator: bump allocation from private mappings, and free does nothing. What a workload costs under it is
 * about what the workload itself costs: its own loops, its touching of fresh memory, and the page faults of that.
 *
 * Each thread bumps through chunks of its own, so there is no lock and no atomic on the common path. A header of 16
 * bytes keeps the size for realloc and malloc_usable_size. Nothing is ever given back: peak memory is the sum of all
 * requests. A block that realloc grows at the top of its chunk grows in place.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum { kHeaderBytes = 16, kAlignment = 16, kChunkBytes = 4 << 20 };

static __thread uintptr_t chunk_next;
static __thread uintptr_t chunk_end;

static size_t* size_of(void* pointer) { return (size_t*)((uintptr_t)pointer - kHeaderBytes); }

static void* fail(void) {
  errno = ENOMEM;
  return NULL;
}

/* Fresh from the kernel, hence zero. */
static void* allocate(size_t alignment, size_t bytes) {
  if (bytes > PTRDIFF_MAX - kChunkBytes || alignment > PTRDIFF_MAX / 2 - bytes) return fail();
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  uintptr_t start = (chunk_next + kHeaderBytes + alignment - 1) & ~(uintptr_t)(alignment - 1);
  if (chunk_next == 0 || start + rounded > chunk_end) {
    size_t wanted = rounded + alignment + kHeaderBytes;
    if (wanted < kChunkBytes) wanted = kChunkBytes;
    void* chunk = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (chunk == MAP_FAILED) return fail();
    chunk_next = (uintptr_t)chunk;
    chunk_end = chunk_next + wanted;
    start = (chunk_next + kHeaderBytes + alignment - 1) & ~(uintptr_t)(alignment - 1);
  }
  chunk_next = start + rounded;
  *size_of((void*)start) = bytes;
  return (void*)start;
}

EXPORTED void* malloc(size_t bytes) { return allocate(kAlignment, bytes); }

EXPORTED void free(void* pointer) { (void)pointer; }

EXPORTED void* calloc(size_t count, size_t bytes) {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total)) return fail();
  return allocate(kAlignment, total);
}

EXPORTED size_t malloc_usable_size(void* pointer) { return pointer == NULL ? 0 : *size_of(pointer); }

EXPORTED void* realloc(void* pointer, size_t bytes) {
  if (pointer == NULL) return malloc(bytes);
  const size_t old = *size_of(pointer);
  const size_t old_rounded = (old + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes <= old_rounded) {
    *size_of(pointer) = bytes;
    return pointer;
  }
  if (bytes > PTRDIFF_MAX - kChunkBytes) return fail();
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if ((uintptr_t)pointer + old_rounded == chunk_next && (uintptr_t)pointer + rounded <= chunk_end) {
    chunk_next = (uintptr_t)pointer + rounded;
    *size_of(pointer) = bytes;
    return pointer;
  }
  void* moved = malloc(bytes);
  if (moved != NULL) memcpy(moved, pointer, old);
  return moved;
}

EXPORTED void* reallocarray(void* pointer, size_t count, size_t bytes) {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total)) return fail();
  return realloc(pointer, total);
}

static int power_of_two(size_t value) { return value != 0 && (value & (value - 1)) == 0; }

EXPORTED void* memalign(size_t alignment, size_t bytes) {
  if (!power_of_two(alignment)) {
    errno = EINVAL;
    return NULL;
  }
  return allocate(alignment < kAlignment ? kAlignment : alignment, bytes);
}

EXPORTED void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

EXPORTED int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (!power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved = errno;
  void* pointer = memalign(alignment, bytes);
  errno = saved;
  if (pointer == NULL) return ENOMEM;
  *out = pointer;
  return 0;
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

EXPORTED void* valloc(size_t bytes) { return memalign(page_bytes(), bytes); }

EXPORTED void* pvalloc(size_t bytes) {
  const size_t page = page_bytes();
  return memalign(page, (bytes + page - 1) / page * page);
}
