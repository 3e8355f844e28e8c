/* Preloaded before the allocator: every process appends to the file FREESTONE_WITNESS its program and the object that
   serves its malloc, so that a test knows that the program which mattered really ran on the library. Allocates nothing
   itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void testify(void) {
  const char* path = getenv("FREESTONE_WITNESS");
  char program[512];
  char line[1200];
  Dl_info info;
  const ElfW(Sym)* symbol = NULL;
  void* address = dlsym(RTLD_DEFAULT, "malloc");
  /* A program that is not position-independent holds malloc's address as its own undefined symbol: ask who comes next.
   */
  if (address != NULL && dladdr1(address, &info, (void**)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL &&
      symbol->st_shndx == SHN_UNDEF)
    address = dlsym(RTLD_NEXT, "malloc");
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (path == NULL || length <= 0 || address == NULL || dladdr(address, &info) == 0) return;
  program[length] = '\0';
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return;
  const int size = snprintf(line, sizeof line, "%s\t%s\n", program, info.dli_fname);
  if (write(file, line, (size_t)size) != size) _exit(99);
  close(file);
}
