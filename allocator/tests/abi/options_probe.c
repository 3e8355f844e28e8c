/* Prints how it is served: whether libfreestone is active, and whether a small block lies in the heap that brk made
 * (glibc's). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(void) {
  int (*active)(void) = (int (*)(void))(size_t)dlsym(RTLD_DEFAULT, "freestone_is_active");
  char* volatile block = malloc(100);
  char* volatile huge = malloc(100u << 20);
  if (block == NULL || huge == NULL) return 1;
  memset(block, 1, 100);
  huge[0] = 1;
  block = realloc(block, 5000);
  free(huge);
  char* volatile aligned = aligned_alloc(64, 128);
  free(aligned);
  free(calloc(3, 5));
  const char* end_of_brk = sbrk(0);
  const int in_brk = block < end_of_brk && block > end_of_brk - (64 << 20);
  printf("active=%d brk=%d secure=%lu\n", active != NULL ? active() : -1, in_brk, getauxval(AT_SECURE));
  free(block);
  return 0;
}
