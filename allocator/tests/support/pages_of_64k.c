// Preloaded in front of the library under test: the kernel's pages seem to be of 64 KiB. Memory then goes back only in
// such pages.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/auxv.h>

unsigned long getauxval(unsigned long type) {
  static unsigned long (*next)(unsigned long);
  if (type == AT_PAGESZ) return 65536;
  if (next == 0) *(void**)&next = dlsym(RTLD_NEXT, "getauxval");
  return next(type);
}
