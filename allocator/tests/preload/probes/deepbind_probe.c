/* usage: deepbind_probe FINDER PLUGIN_NAME exchange|look. Prints what a plug-in finds that is loaded with
 * RTLD_DEEPBIND, by each way of loading. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char* whoami(void) { return "program"; }

static void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == NULL) {
    printf("%s\n", dlerror());
    exit(2);
  }
  return found;
}

static void exchange_blocks(void* plugin) {
  void* (*take)(size_t) = symbol(plugin, "plugin_malloc");
  void (*give)(void*) = symbol(plugin, "plugin_free");
  char* (*copy)(const char*) = symbol(plugin, "plugin_copy");
  void* (*resize)(void*, size_t) = symbol(plugin, "plugin_realloc");
  for (size_t bytes = 1; bytes < ((size_t)64 << 20); bytes = bytes * 3 + 1) {
    free(take(bytes));
    give(malloc(bytes));
    free(resize(malloc(bytes), bytes * 2));
  }
  free(copy("text"));
  give(strdup("text"));
}

static void use(const char* way, void* plugin, int blocks) {
  if (plugin == NULL) {
    printf("%s: %s\n", way, dlerror());
    exit(1);
  }
  const char* (*who)(void) = symbol(plugin, "plugin_whoami");
  printf("%s: %s\n", way, who());
  fflush(stdout);
  if (blocks) exchange_blocks(plugin);
  dlclose(plugin);
}

int main(int count, char** words) {
  if (count != 4) return 3;
  const int blocks = strcmp(words[3], "exchange") == 0;
  const int mode = RTLD_NOW | RTLD_DEEPBIND;
  void* finder = dlopen(words[1], RTLD_NOW);
  if (finder == NULL) return 4;
  if (dlopen(words[2], RTLD_NOW) != NULL) return 5;  /* not on the program's own path: the test would prove nothing */
  void* (*open_from)(const char*, int) = symbol(finder, "finder_open");
  void* (*open_in_base_from)(const char*, int) = symbol(finder, "finder_open_in_base");
  use("dlopen", open_from(words[2], mode), blocks);
  use("dlmopen", open_in_base_from(words[2], mode), blocks);
  return 0;
}
