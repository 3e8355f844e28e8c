// A plug-in with an allocator inside it.
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int plugin_works(void) {
  unsigned char* blocks[100];
  int whole = 1;
  for (size_t i = 0; i < 100; ++i) memset(blocks[i] = malloc(100 + i * 90), (int)i, 100 + i * 90);
  for (size_t i = 0; i < 100; ++i) {
    whole &= blocks[i][0] == i && blocks[i][99 + i * 90] == i;
    free(blocks[i]);
  }
  return whole;
}

EXPORTED char* plugin_keeps(const char* text) { return strcpy(malloc(strlen(text) + 1), text); }
EXPORTED void plugin_releases(char* block) { free(block); }
