// What faults around blocks of a program that runs with more rights than its caller.
#include <stdio.h>
#include <stdlib.h>
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

int main(void) {
  volatile char* const run = malloc(40000);
  volatile char* const freed = malloc(300000);
  if (run == NULL || freed == NULL) return 2;
  run[0] = freed[0] = 1;
  free((void*)freed);
  printf("secure=%lu behind=%s ", getauxval(AT_SECURE), access_in_child(run + 49152 + 100));
  printf("before=%s freed=%s\n", access_in_child(run - 8), access_in_child(freed + 100000));
  return 0;
}
