// Preloaded beside the library: does from inside, at a program's start, what `freestone profile --pid` does from
// outside. FREESTONE_ATTACHED=during: a profile is running; =ended: one has run and has ended; =never: none has.
#include <stdlib.h>
#include <string.h>

void freestone_prof_start(void);
void freestone_prof_stop(void);

__attribute__((constructor)) static void attach(void) {
  const char* word = getenv("FREESTONE_ATTACHED");
  if (!word || strcmp(word, "never") == 0) return;
  freestone_prof_start();
  if (strcmp(word, "ended") == 0) freestone_prof_stop();
}
