// small_stack_probe SIGNAL BYTES: raises the signal twice on an alternate stack of so many bytes, 0 for the smallest
// that the kernel takes and a little; says whether what lies below it stayed as it was.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kBelow = 256 << 10, kAbove = 64 << 10, kMark = 0xA5, kLeft = 2048 };

static __attribute__((noinline)) void* deeper(int depth, size_t size) {
  void* block = depth == 0 ? malloc(size) : deeper(depth - 1, size);
  __asm__ volatile("" : "+r"(block));
  return block;
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  const int number = atoi(arguments[1]);
  size_t bytes = (size_t)atol(arguments[2]);
#ifndef _SC_MINSIGSTKSZ
  enum { _SC_MINSIGSTKSZ = 249 };
#endif
  const long least = sysconf(_SC_MINSIGSTKSZ);
  if (bytes == 0) bytes = (size_t)(least > 2048 ? least : 2048) + kLeft;
  if (least > 0 && bytes < (size_t)least + kLeft) return 77;  // of the larger processors
  const int kind = MAP_PRIVATE | MAP_ANONYMOUS;
  unsigned char* below = mmap(NULL, kBelow + bytes + kAbove, PROT_READ | PROT_WRITE, kind, -1, 0);
  memset(below, kMark, kBelow + bytes);
  const stack_t stack = {.ss_sp = below + kBelow, .ss_size = bytes};
  if (sigaltstack(&stack, NULL) != 0) return 3;
  for (int i = 0; i < 3000; ++i) {
    void* block = deeper(i % 40, (size_t)(100 + i * 37 % 5000));
    if (i % 3 == 0) free(block);
  }
  raise(number);
  raise(number);
  size_t untouched = 0;
  while (untouched < kBelow + bytes && below[untouched] == kMark) ++untouched;
  printf("%ld of %zu bytes used, the kernel asks for %ld\n", (long)(kBelow + bytes - untouched), bytes, least);
  return untouched >= kBelow ? 0 : 1;
}
