/* Allocates in a rhythm and prints nothing but what it is asked for.
 *
 *   probe hold MEBIBYTES        holds so much, writes "ready", ends when its standard input does
 *   probe churn MILLISECONDS    allocates and frees for so long or longer: a slow machine does no less
 *   probe fork MILLISECONDS     churns in a child and, when that has ended, in the parent; prints the child's number
 *   probe fill MEBIBYTES        allocates touched blocks until null or so much; prints how many MiB it got */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void churn(long milliseconds) {
  static void* blocks[512];
  unsigned seed = 1;
  for (long i = 0; i < milliseconds; ++i) {
    for (int k = 0; k < 200; ++k) {
      seed = seed * 1103515245 + 12345;
      void** place = &blocks[seed >> 16 & 511];
      free(*place);
      *place = malloc(16 + (seed >> 8) % 20000);
      if (*place != NULL) memset(*place, 1, 16);
    }
    usleep(1000);
  }
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const long amount = atol(argv[2]);
  if (strcmp(argv[1], "hold") == 0) {
    static char* blocks[1 << 20];
    for (long i = 0; i < amount * 1024; ++i) {
      blocks[i & ((1 << 20) - 1)] = malloc(1000);
      memset(blocks[i & ((1 << 20) - 1)], 1, 1000);
    }
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) churn(100);
    return 0;
  }
  if (strcmp(argv[1], "churn") == 0) return churn(amount), 0;
  if (strcmp(argv[1], "fork") == 0) {
    const pid_t child = fork();
    churn(amount);
    if (child == 0) return 0;
    int status = 1;
    waitpid(child, &status, 0);
    printf("%d\n", (int)child);
    return status != 0;
  }
  if (strcmp(argv[1], "fill") == 0) {
    long got = 0;
    for (; got < amount * 16; ++got) {
      char* block = malloc(65536);
      if (block == NULL) break;
      memset(block, 1, 65536);
    }
    printf("%ld\n", got / 16);
    return 0;
  }
  return 2;
}
