/* The control of the model test: the C library's malloc with one promise broken, named by BROKEN, for blocks of 100 to
   200 bytes once the program is well under way. The model must notice and say which promise it was. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

/* From the word before the block: the size, of which a block with a mapping of its own (bit 1) may use 16 bytes less,
 * others 8. */
static size_t glibc_usable(const void* block) {
  const size_t word = ((const size_t*)block)[-1];
  return (word & ~(size_t)15) - (word & 2 ? 16 : 8);
}

static int breaks(const char* promise, size_t size) {
  static _Atomic size_t calls;
  static const char* broken;
  if (broken == NULL) broken = getenv("BROKEN") != NULL ? getenv("BROKEN") : "";
  return size >= 100 && size <= 200 && ++calls > 3000 && calls % 16 == 0 && strcmp(broken, promise) == 0;
}

static void* last; /* a live block of 150 bytes, or null */

void free(void* block) {
  if (block == last) last = NULL;
  if (block != NULL && (uintptr_t)block % 16 == 8) block = (char*)block - 8;
  if (block != NULL && breaks("errno", glibc_usable(block))) errno = EINVAL;
  __libc_free(block);
}

void* malloc(size_t size) {
  if (size <= 150 && last != NULL && breaks("overlap", size)) return last;
  if (breaks("alignment", size)) return (char*)__libc_malloc(size + 8) + 8;
  if (breaks("null", size)) return NULL;
  void* block = __libc_malloc(size);
  if (size == 150) last = block;
  return block;
}

void* calloc(size_t count, size_t size) {
  void* block = __libc_calloc(count, size);
  if (block != NULL && breaks("zero", count * size)) ((char*)block)[count * size - 1] = 1;
  return block;
}

void* realloc(void* block, size_t size) {
  if (block != NULL && (uintptr_t)block % 16 == 8) return NULL;
  if (block == last) last = NULL;
  void* moved = __libc_realloc(block, size);
  if (block != NULL && moved != NULL && breaks("realloc", size)) ((char*)moved)[20] ^= 1;
  return moved;
}

void* memalign(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
int posix_memalign(void** result, size_t alignment, size_t size) {
  *result = __libc_memalign(alignment, size);
  return *result == NULL ? ENOMEM : 0;
}

size_t malloc_usable_size(void* block) {
  if (block == NULL) return 0;
  if ((uintptr_t)block % 16 == 8) return glibc_usable((char*)block - 8) - 8;
  return glibc_usable(block) - (breaks("usable", glibc_usable(block)) ? 64 : 0);
}
