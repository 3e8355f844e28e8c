/* Watches pages leave as caches of registrations do (RDMA): by libc's functions, whose code it changes, whose names it
   takes (NAMES), or by the library's callback. Says whether pages of its blocks went, and how many it did not see go.
   With "comes back" it allocates under a lock of its own meanwhile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef NAMES
#define WATCHING(name) name
#else
#define WATCHING(name) watching_##name
#endif
extern int freestone_on_pages_leaving(void (*)(void*, void*, size_t), void*) __attribute__((weak));

enum { kBlocks = 700, kPage = 4096 };
static struct { char* start; size_t bytes; int seen; } blocks[kBlocks];
static int comes_back, came_back, locked;

static void see(void* context, void* address, size_t bytes) {
  for (int i = 0; i < kBlocks; ++i)
    if ((char*)address < blocks[i].start + blocks[i].bytes && blocks[i].start < (char*)address + bytes)
      blocks[i].seen = 1;
  if (!comes_back) return;
  if (locked++ || context != NULL) _exit(92);
  free(memset(malloc(50000), came_back = 1, 50000));
  free(memset(malloc(5000000), 1, 5000000));
  locked = 0;
  errno = EILSEQ;
}

int WATCHING(madvise)(void* address, size_t bytes, int advice) {
  if (advice == MADV_DONTNEED) see(NULL, address, bytes);
  return (int)syscall(SYS_madvise, address, bytes, advice);
}
int WATCHING(munmap)(void* address, size_t bytes) {
  see(NULL, address, bytes);
  return (int)syscall(SYS_munmap, address, bytes);
}
void* WATCHING(mremap)(void* address, size_t old_bytes, size_t bytes, int flags, ...) {
  see(NULL, address, old_bytes);
  return (void*)syscall(SYS_mremap, address, old_bytes, bytes, flags, NULL);
}

static void change_code(const char* name, void* to) {
#if defined(__x86_64__)
  unsigned char code[] = {0x90, 0x90, 0x90, 0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3}; /* mov; jmp *%r11 */
  memcpy(code + 5, &to, sizeof to);
#else
  unsigned char code[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0}; /* ldr x16, to; br x16 */
  memcpy(code + 8, &to, sizeof to);
#endif
  char* const place = dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), name);
  if (mprotect((void*)((uintptr_t)place & -kPage), 2 * kPage, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) _exit(93);
  memcpy(place, code, sizeof code);
  __builtin___clear_cache(place, place + sizeof code);
}

int main(int argc, char** argv) {
  static const size_t kinds[][2] = {{20000, 400},  {70000, 200}, {300000, 80},
                                    {2000000, 15}, {9000000, 3}, {40000000, 2}};
  comes_back = argc > 2;
  if (strcmp(argv[1], "code") == 0) {
    change_code("madvise", WATCHING(madvise));
    change_code("munmap", WATCHING(munmap));
    change_code("mremap", WATCHING(mremap));
  }
  if (strcmp(argv[1], "callback") == 0 && freestone_on_pages_leaving(see, NULL) != 0) return 94;
  for (size_t n = 0, k = 0, left = kinds[0][1]; n < kBlocks; ++n, --left) {
    if (left == 0) left = kinds[++k][1];
    blocks[n].start = memset(malloc(kinds[k][0]), 7, blocks[n].bytes = kinds[k][0]);
  }
  errno = EDOM;
  free(realloc(blocks[kBlocks - 1].start, 100000000));
  for (int i = 0; i < kBlocks - 1; ++i) free(blocks[i].start);
  if (errno != EDOM) return 95;
  for (size_t i = 0; i < 2000; ++i) free(memset(malloc(100 + i * 97 % 200000), 1, 100));
  size_t gone = 0, unseen = 0;
  for (int i = 0; i < kBlocks; ++i)
    for (uintptr_t at = ((uintptr_t)blocks[i].start - 1) / kPage + 1;
         (at + 1) * kPage <= (uintptr_t)blocks[i].start + blocks[i].bytes; ++at) {
      unsigned char resident = 0;
      if (mincore((void*)(at * kPage), kPage, &resident) == 0 && (resident & 1)) continue;
      ++gone;
      unseen += !blocks[i].seen;
    }
  printf("%s, %zu unseen%s\n", gone > 20000 ? "gone" : "few gone", unseen, came_back ? ", came back" : "");
  return 0;
}
