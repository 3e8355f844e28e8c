/* A library with a RUNPATH of its own: what it opens by bare name is found there, if the loader sees that the call
 * comes from here. And one that is loaded with RTLD_DEEPBIND: it allocates, frees what it is given, and says whose
 * `whoami` it finds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void* finder_open(const char* name, int mode) { return dlopen(name, mode); }
void* finder_open_in_base(const char* name, int mode) { return dlmopen(LM_ID_BASE, name, mode); }

const char* whoami(void) { return "plugin"; }
const char* plugin_whoami(void) { return whoami(); }
void* plugin_malloc(size_t bytes) { return malloc(bytes); }
void plugin_free(void* block) { free(block); }
char* plugin_copy(const char* text) { return strdup(text); }
void* plugin_realloc(void* block, size_t bytes) { return realloc(block, bytes); }
