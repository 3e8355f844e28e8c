// Room 4, platform: a plug-in that contains the allocator stays loaded after dlclose. Only in the static forms; the
// shared library is linked with -z nodelete.
//
// libc calls this code after the plug-in's own last call: at the end of each thread that has a cache, in signal
// handlers, in the background thread; and blocks outlive the plug-in. So the object is marked against unloading, as
// OpenSSL does; loaded again, it goes on with its heap.

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "base/compiler.h"
#include "base/units.h"

extern "C" FREESTONE_HIDDEN __attribute__((weak)) const ElfW(Ehdr) __ehdr_start;  // of this object, by the linker

namespace freestone {

namespace {

int find_own_name(dl_phdr_info* object, usize, void* name) {
  if (object->dlpi_addr != address_of(&__ehdr_start)) return 0;
  *static_cast<const char**>(name) = object->dlpi_name;
  return 1;
}

// By dlsym: a reference to dlopen would make the linker warn of it in a static program. A program has no name, and is
// never unloaded.
__attribute__((constructor(101))) void stay_loaded() {
  const char* name = "";
  dl_iterate_phdr(find_own_name, &name);
  if (*name == '\0') return;
  using Open = void* (*)(const char*, int);
  const auto open = reinterpret_cast<Open>(dlsym(RTLD_DEFAULT, "dlopen"));
  if (open != nullptr) open(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace

}  // namespace freestone
