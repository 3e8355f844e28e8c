// A library that has a copy of platform/late_libc.cc: its dlsym is that file's, and `real` is libc's. With
// FREESTONE_GUEST one that has a function to be found.
#include <dlfcn.h>

#ifdef FREESTONE_GUEST
extern "C" __attribute__((visibility("default"))) int freestone_guest_function() { return 1; }
#else
using Lookup = void* (*)(void*, const char*);

extern "C" __attribute__((visibility("default"))) void probe_find(Lookup real, const char* name, void** found,
                                                                  void** expected) {
  *found = dlsym(RTLD_NEXT, name);
  *expected = real(RTLD_NEXT, name);  // libc sees this library as the caller
}
#endif
