// Sixteen threads that each make and fill N blocks; a block is read and freed by whichever thread draws its place next:
// some 5 million calls a second and thread. Prints the processor time of the process in seconds.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { kThreads = 16, kPlaces = 1 << 14 };

static _Atomic(char*) places[kPlaces];
static atomic_ulong folded;
static long blocks;

static void* work(void* argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument + 1, sum = 0;
  for (long i = 0; i < blocks; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const size_t size = 16 + (state >> 40) % 240;
    char* block = malloc(size);
    for (size_t k = 0; k < size; k++) block[k] = (char)(sum + k);
    block[size - 1] = 0;
    char* other = atomic_exchange(&places[state >> 50], block);
    for (const char* at = other; at && *at; at++) sum = sum * 31 + (unsigned char)*at;
    free(other);
  }
  atomic_fetch_add(&folded, sum);
  return NULL;
}

int main(int count, char** words) {
  blocks = count > 1 ? atol(words[1]) : 10000;
  pthread_t threads[kThreads];
  for (uintptr_t i = 0; i < kThreads; i++)
    if (pthread_create(&threads[i], NULL, work, (void*)i)) return 1;
  for (int i = 0; i < kThreads; i++) pthread_join(threads[i], NULL);
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  const double micros = (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  printf("%.6f\n", (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + micros / 1e6);
  return 0;
}
