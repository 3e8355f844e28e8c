// A library that has a copy of platform/late_libc.cc: its dlsym is that file's, and `real` is libc's.
#include <dlfcn.h>

using Lookup = void* (*)(void*, const char*);

extern "C" __attribute__((visibility("default"))) void probe_find(Lookup real, const char* name, void** found,
                                                                  void** expected) {
  *found = dlsym(RTLD_NEXT, name);
  *expected = real(RTLD_NEXT, name);  // libc sees this library as the caller
}
