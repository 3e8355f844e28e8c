/* Opens two plug-ins in turns, lets each allocate and closes it. With the argument `gone` their files are removed while
   they are open; with `twice` each is opened twice and closed once, so that it stays. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) void from_plugin(void) {
  char* volatile block = malloc(200);
  block[0] = 1;
}

static int use(const char* file, const char* function, int count, const char* how) {
  void* plugin = dlopen(file, RTLD_NOW);
  if (plugin == NULL) return fprintf(stderr, "%s\n", dlerror());
  if (strcmp(how, "twice") == 0) dlopen(file, RTLD_NOW);
  void (*work)(int, void (*)(void)) = (void (*)(int, void (*)(void)))dlsym(plugin, function);
  work(count, from_plugin);
  if (strcmp(how, "gone") == 0) unlink(file);
  return dlclose(plugin);
}

int main(int count, char** words) {
  const int rounds = strcmp(words[3], "gone") == 0 ? 1 : 3;
  for (int round = 0; round < rounds; ++round)
    if (count != 4 || use(words[1], "plugin_one", 100, words[3]) || use(words[2], "plugin_two", 50, words[3])) return 1;
  return 0;
}
