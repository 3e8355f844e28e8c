/* A library that is loaded with RTLD_DEEPBIND: it allocates, frees what it is given, and says whose `whoami` it finds.
 */
#include <stdlib.h>
#include <string.h>

const char* whoami(void) { return "plugin"; }
const char* plugin_whoami(void) { return whoami(); }
void* plugin_malloc(size_t bytes) { return malloc(bytes); }
void plugin_free(void* block) { free(block); }
char* plugin_copy(const char* text) { return strdup(text); }
void* plugin_realloc(void* block, size_t bytes) { return realloc(block, bytes); }
