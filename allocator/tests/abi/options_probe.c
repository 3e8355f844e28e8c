/* Prints how it is served: whether libfreestone is active, whether a small block lies in the heap that brk made
 * (glibc's), whether the program runs with more rights than its caller; with an
 * argument also what faults around blocks. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

static const char* access_in_child(volatile char* at) {
  const pid_t child = fork();
  if (child == 0) {
    *at = 1;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? "faults" : "passes";
}

int main(int argc, char** argv) {
  (void)argv;
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
  if (argc == 1) return 0;
  fflush(stdout);
  volatile char* const run = malloc(40000);
  volatile char* const freed = malloc(300000);
  if (run == NULL || freed == NULL) return 2;
  run[0] = freed[0] = 1;
  free((void*)freed);
  printf("behind=%s before=%s ", access_in_child(run + 49152 + 100), access_in_child(run - 8));
  printf("freed=%s\n", access_in_child(freed + 100000));
  return 0;
}
