#include "support/subject.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace freestone_test {
namespace {

std::string object_of(void* address) {
  Dl_info info{};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  char resolved[PATH_MAX];
  return realpath(info.dli_fname, resolved) != nullptr ? resolved : info.dli_fname;
}

// Sanitizer builds link the allocator's objects into the test; its functions are then called freestone_malloc and so
// on.
#ifdef FREESTONE_TEST_PREFIXED
constexpr const char* kPrefix = "freestone_";
#else
constexpr const char* kPrefix = "";
#endif

template <typename Function>
void find(Function& target, const char* name, const std::string& owner) {
  void* address = dlsym(RTLD_DEFAULT, (kPrefix + std::string(name)).c_str());
  if (address != nullptr && object_of(address) != owner) address = nullptr;
  target = reinterpret_cast<Function>(address);
}

Subject look_up() {
  Subject found{};
  found.owner = object_of(dlsym(RTLD_DEFAULT, (kPrefix + std::string("malloc")).c_str()));
  Api& api = found.api;
  const std::string& owner = found.owner;
  find(api.malloc, "malloc", owner);
  find(api.free, "free", owner);
  find(api.calloc, "calloc", owner);
  find(api.realloc, "realloc", owner);
  find(api.reallocarray, "reallocarray", owner);
  find(api.aligned_alloc, "aligned_alloc", owner);
  find(api.posix_memalign, "posix_memalign", owner);
  find(api.memalign, "memalign", owner);
  find(api.valloc, "valloc", owner);
  find(api.pvalloc, "pvalloc", owner);
  find(api.malloc_usable_size, "malloc_usable_size", owner);
  find(api.free_sized, "free_sized", owner);
  find(api.free_aligned_sized, "free_aligned_sized", owner);
  find(api.cfree, "cfree", owner);
  find(api.malloc_trim, "malloc_trim", owner);
  find(api.mallopt, "mallopt", owner);
  find(api.mallinfo, "mallinfo", owner);
  find(api.mallinfo2, "mallinfo2", owner);
  find(api.malloc_info, "malloc_info", owner);
  find(api.malloc_stats, "malloc_stats", owner);
  api.freestone_is_active = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "freestone_is_active"));
  found.is_freestone = api.freestone_is_active != nullptr;
  found.is_hardened = found.is_freestone && owner.find("hardened") != std::string::npos;
  found.serves_operators = *kPrefix == '\0';
  return found;
}

}  // namespace

const Subject& subject() {
  static const Subject found = look_up();
  return found;
}

void require_expected_subject() {
  std::fprintf(stderr, "malloc is served by %s\n", subject().owner.c_str());
  const char* expected = std::getenv("FREESTONE_EXPECT_LIBRARY");
  if (expected == nullptr || *expected == '\0') return;
  char resolved[PATH_MAX];
  if (realpath(expected, resolved) != nullptr && subject().owner == resolved) return;
  std::fprintf(stderr, "expected malloc from %s: the test would prove nothing\n", expected);
  _exit(2);
}

}  // namespace freestone_test
