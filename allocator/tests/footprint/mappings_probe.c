/* Prints how many mappings the process has, allocating nothing for it: at start; with as many gibibytes as each
 * argument from the second on says, in blocks of as many mebibytes as the first one says; with every other block freed;
 * and with all of them freed. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../support/mapping_count.h"

static void* blocks[1 << 16];

int main(int argc, char** argv) {
  const size_t bytes = (size_t)atol(argv[1]) << 20;
  static char out[4096];
  size_t count = 0;
  int length = snprintf(out, sizeof out, "%zu", mapping_count());
  for (int k = 2; k < argc; ++k) {
    for (; count * bytes < (size_t)atol(argv[k]) << 30; ++count)
      if ((blocks[count] = malloc(bytes - 4096)) == NULL) return 3;
    length += snprintf(out + length, sizeof out - (size_t)length, " %zu", mapping_count());
  }
  for (size_t k = 0; k < count; k += 2) free(blocks[k]);
  length += snprintf(out + length, sizeof out - (size_t)length, " %zu", mapping_count());
  for (size_t k = 1; k < count; k += 2) free(blocks[k]);
  length += snprintf(out + length, sizeof out - (size_t)length, " %zu\n", mapping_count());
  return write(1, out, (size_t)length) == length ? 0 : 1;
}
