/* A program with a malloc of its own that lacks reallocarray: libc's leads to the program's realloc. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char* malloc_conf = "narenas:2"; /* as for jemalloc */

static _Alignas(16) char memory[1 << 20];
static size_t used;

void* malloc(size_t bytes) {
  void* block = memory + used;
  used += (bytes + 31) / 16 * 16; /* the bytes asked for stand in front of the next block */
  memcpy((char*)block, &bytes, sizeof bytes);
  return (char*)block + 16;
}
void free(void* block) {
  if (block != NULL && ((char*)block < memory || (char*)block >= memory + sizeof memory)) abort();
}
void* calloc(size_t count, size_t each) { return memset(malloc(count * each), 0, count * each); }
void* realloc(void* block, size_t bytes) {
  void* moved = malloc(bytes);
  size_t before = 0;
  if (block == NULL) return moved;
  memcpy(&before, (char*)block - 16, sizeof before);
  return memcpy(moved, block, before < bytes ? before : bytes);
}

int main(void) {
  char* text = reallocarray(NULL, 3, 4);
  strcpy(text, "own malloc");
  text = reallocarray(text, 1000, 10);
  puts(text);
  free(text);
  return 0;
}
