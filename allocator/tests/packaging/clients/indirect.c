// Allocates through the C library only: nothing here makes the linker look for malloc.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  Dl_info info;
  char *copy = strdup(argv[argc - 1]);
  void *address = dlsym(RTLD_DEFAULT, "malloc");
  printf("malloc=%s\n", copy != NULL && dladdr(address, &info) != 0 ? info.dli_fname : "nothing");
  return 0;
}
