/* A library with a RUNPATH of its own: what it opens by bare name is found there, if the loader sees that the call
 * comes from here. */
#define _GNU_SOURCE
#include <dlfcn.h>

void* finder_open(const char* name, int mode) { return dlopen(name, mode); }
void* finder_open_in_base(const char* name, int mode) { return dlmopen(LM_ID_BASE, name, mode); }
