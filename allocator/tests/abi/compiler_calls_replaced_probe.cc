// A program with an operator new of its own: what compilers call in its place arrives there.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <new>

namespace {
int calls = 0;
template <typename Function>
Function found(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}
struct SizedBlock {
  void* block;
  std::size_t bytes;
};
}  // namespace

void* operator new(std::size_t bytes) {
  ++calls;
  return static_cast<char*>(std::malloc(bytes + 16)) + 16;
}
void operator delete(void* block) noexcept { std::free(static_cast<char*>(block) - 16); }
void operator delete(void* block, std::size_t) noexcept { operator delete(block); }

int main() {
  const int before = calls;
  operator delete(found<void* (*)(std::size_t, unsigned char)>("_Znwm12__hot_cold_t")(50, 1));
  operator delete(found<void* (*)(std::size_t, std::size_t)>("__alloc_token__Znwm")(50, 77));
  const SizedBlock sized = found<SizedBlock (*)(std::size_t)>("__size_returning_new")(50);
  operator delete(sized.block);
  if (calls - before == 3 && sized.bytes == 50) return 0;
  std::fprintf(stderr, "%d of 3 calls arrived, %zu bytes of 50\n", calls - before, sized.bytes);
  return 1;
}
