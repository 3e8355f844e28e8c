// Threads hand blocks to each other; each block carries its own size at both ends until it is freed by whoever got it.
#define _GNU_SOURCE
#include <freestone/freestone.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { threads = 4, mailboxes = 64, steps = 20000 };

static _Atomic(size_t *) mailbox[mailboxes];
static atomic_long damaged;

static void take_back(size_t *block) {
  if (block == NULL) return;
  if (block[block[0] - 1] != block[0]) ++damaged;
  free(block);
}

static void *work(void *argument) {
  uint64_t random = (uintptr_t)argument * 0x9E3779B97F4A7C15u;
  for (int i = 0; i < steps; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const size_t words = 1 + (random >> 33) % ((random >> 60) == 0 ? 20000 : 100);
    size_t *block = malloc(words * sizeof *block);
    if (block == NULL) abort();
    block[0] = block[words - 1] = words;
    take_back(atomic_exchange(&mailbox[(random >> 40) % mailboxes], block));
  }
  return NULL;
}

int main(void) {
  pthread_t team[threads];
  for (uintptr_t i = 0; i < threads; ++i) pthread_create(&team[i], NULL, work, (void *)(i + 1));
  for (int i = 0; i < threads; ++i) pthread_join(team[i], NULL);
  for (int i = 0; i < mailboxes; ++i) take_back(mailbox[i]);
  const char *damage = NULL;
  const int status = freestone_validate(&damage);
  if (status != 0) fprintf(stderr, "%s\n", damage);
  printf("damaged=%ld\nvalid=%d\n", (long)damaged, status == 0);
  return 0;
}
