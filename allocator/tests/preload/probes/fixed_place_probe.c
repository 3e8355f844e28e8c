// A program of fixed place that hands malloc and free on by address, as Debian's python3 does. Everybody then knows
// them by its own entries. Prints what it may use of a block of 100 bytes by operator new: less than that of malloc, if
// the library believes that another's malloc serves. With an argument it then frees a block of operator new.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

struct Sized {
  void* block;
  size_t bytes;
};

__attribute__((noinline)) static void* take(void* (*from)(size_t), size_t bytes) { return from(bytes); }
__attribute__((noinline)) static void give(void (*to)(void*), void* block) { to(block); }

int main(int argc, char** argv) {
  struct Sized (*new_sized)(size_t) = (struct Sized(*)(size_t))dlsym(RTLD_DEFAULT, "__size_returning_new");
  void* block = take(malloc, 100);
  printf("%d\n", new_sized != NULL && new_sized(100).bytes == malloc_usable_size(block));
  give(free, block);
  fflush(stdout);
  if (argc > 1 && argv[1][0] != '\0') give(free, new_sized(100).block);
}
