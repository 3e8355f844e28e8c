/* Preloaded before the allocator: every process appends to the file FREESTONE_WITNESS its program and the object that
   serves its malloc, so that a test knows that the program which mattered really ran on the library. A process that is
   linked with another malloc adds at its exit how many bytes that one has handed out. Allocates nothing itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void append(const char* owner, const char* more) {
  const char* path = getenv("FREESTONE_WITNESS");
  char program[512];
  char line[1200];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (path == NULL || length <= 0) return;
  program[length] = '\0';
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return;
  const int size = snprintf(line, sizeof line, "%s\t%s%s\n", program, owner, more);
  if (write(file, line, (size_t)size) != size) _exit(99);
  close(file);
}

__attribute__((constructor)) static void testify(void) {
  Dl_info info;
  const ElfW(Sym)* symbol = NULL;
  void* address = dlsym(RTLD_DEFAULT, "malloc");
  /* A program that is not position-independent holds malloc's address as its own undefined symbol: ask who comes next.
   */
  if (address != NULL && dladdr1(address, &info, (void**)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL &&
      symbol->st_shndx == SHN_UNDEF)
    address = dlsym(RTLD_NEXT, "malloc");
  if (address != NULL && dladdr(address, &info) != 0) append(info.dli_fname, "");
}

/* What jemalloc and tcmalloc say of themselves, asked by their own symbols, whoever serves the names. jemalloc counts
   what it keeps for itself, such as the cache of the thread that asks. */
__attribute__((destructor)) static void testify_of_the_linked(void) {
  static const char* const kLinked[] = {"libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4"};
  for (unsigned i = 0; i < sizeof kLinked / sizeof *kLinked; ++i) {
    void* library = dlopen(kLinked[i], RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) continue;
    int (*control)(const char*, void*, size_t*, void*, size_t);
    int (*property)(const char*, size_t*);
    *(void**)&control = dlsym(library, "mallctl");
    *(void**)&property = dlsym(library, "MallocExtension_GetNumericProperty");
    size_t bytes = 0;
    size_t own = 0;
    size_t size = sizeof bytes;
    unsigned long long epoch = 1;
    char more[40];
    if (control != NULL && control("epoch", NULL, NULL, &epoch, sizeof epoch) == 0 &&
        control("stats.allocated", &bytes, &size, NULL, 0) == 0 &&
        control("stats.arenas.4096.internal", &own, &size, NULL, 0) == 0)
      bytes -= own;
    else if (property == NULL || property("generic.current_allocated_bytes", &bytes) == 0)
      continue;
    snprintf(more, sizeof more, "\t%zu", bytes);
    append(kLinked[i], more);
  }
}
