/* A plug-in whose function, PLUGIN_FUNCTION, allocates and calls back. Two of them fit into one place. */
#include <stdlib.h>

__attribute__((noinline, visibility("default"))) void PLUGIN_FUNCTION(int count, void (*call_back)(void)) {
  for (int i = 0; i < count; ++i) {
    char* volatile block = malloc(1000);
    block[0] = 1;
    call_back();
  }
}
