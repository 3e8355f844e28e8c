// Replaces some of the operators new and delete (REPLACED says which), as a program may, and calls every form. Prints
// how many calls reached a replaced one. The C++ standard says which form calls which; libstdc++ is the reference. With
// the path of a library as argument it loads that one late, and uses the operators that it has by name.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <utility>

namespace {

constexpr std::size_t kRefused = 1 << 20;
int reached = 0;

// A block behind a header as long as the alignment. Whoever frees it without knowing so frees an inner address.
[[maybe_unused]] void* make(std::size_t bytes, std::size_t alignment) {
  ++reached;
  if (bytes == kRefused) throw std::bad_alloc();
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return static_cast<char*>(std::aligned_alloc(alignment, rounded + alignment)) + alignment;
}
[[maybe_unused]] void release(void* block, std::size_t alignment) {
  ++reached;
  if (block != nullptr) std::free(static_cast<char*>(block) - alignment);
}

}  // namespace

#if defined(REPLACED_OBJECTS)
void* operator new(std::size_t bytes) { return make(bytes, 16); }
void operator delete(void* block) noexcept { release(block, 16); }
#elif defined(REPLACED_ARRAYS)
void* operator new[](std::size_t bytes) { return make(bytes, 16); }
void operator delete[](void* block) noexcept { release(block, 16); }
#elif defined(REPLACED_ALIGNED)
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return make(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* block, std::align_val_t alignment) noexcept {
  release(block, static_cast<std::size_t>(alignment));
}
#elif defined(REPLACED_ALIGNED_ARRAYS)
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return make(bytes, static_cast<std::size_t>(alignment));
}
void operator delete[](void* block, std::align_val_t alignment) noexcept {
  release(block, static_cast<std::size_t>(alignment));
}
#elif defined(REPLACED_NEW)
void* operator new(std::size_t bytes) {
  ++reached;
  if (bytes == kRefused) throw std::bad_alloc();
  return std::malloc(bytes);
}
#elif defined(REPLACED_DELETE)
void operator delete(void* block) noexcept {
  ++reached;
  std::free(block);
}
#endif

namespace {

using Size = std::size_t;
constexpr std::align_val_t kWide{64};
const std::nothrow_t& kNothrow = std::nothrow;

struct Family {
  const char* name;
  void* (*make[2])(Size);  // throwing, nothrow
  void (*release[3])(void*, Size);
};
const Family kFamilies[] = {
    {"object",
     {[](Size n) { return ::operator new(n); }, [](Size n) { return ::operator new(n, kNothrow); }},
     {[](void* p, Size) { ::operator delete(p); }, [](void* p, Size n) { ::operator delete(p, n); },
      [](void* p, Size) { ::operator delete(p, kNothrow); }}},
    {"array",
     {[](Size n) { return ::operator new[](n); }, [](Size n) { return ::operator new[](n, kNothrow); }},
     {[](void* p, Size) { ::operator delete[](p); }, [](void* p, Size n) { ::operator delete[](p, n); },
      [](void* p, Size) { ::operator delete[](p, kNothrow); }}},
    {"aligned object",
     {[](Size n) { return ::operator new(n, kWide); }, [](Size n) { return ::operator new(n, kWide, kNothrow); }},
     {[](void* p, Size) { ::operator delete(p, kWide); }, [](void* p, Size n) { ::operator delete(p, n, kWide); },
      [](void* p, Size) { ::operator delete(p, kWide, kNothrow); }}},
    {"aligned array",
     {[](Size n) { return ::operator new[](n, kWide); }, [](Size n) { return ::operator new[](n, kWide, kNothrow); }},
     {[](void* p, Size) { ::operator delete[](p, kWide); }, [](void* p, Size n) { ::operator delete[](p, n, kWide); },
      [](void* p, Size) { ::operator delete[](p, kWide, kNothrow); }}},
};

int use_late(const char* path) {
  void* const library = dlopen(path, RTLD_NOW);
  using Create = void* (*)(Size);
  using Destroy = void (*)(void*, Size);
  for (int i = 0; i < 100; ++i) {
    for (const auto& [create, destroy] : {std::pair{"_Znwm", "_ZdlPvm"}, std::pair{"_Znam", "_ZdaPvm"}}) {
      void* const block = reinterpret_cast<Create>(dlsym(library, create))(100);
      reinterpret_cast<Destroy>(dlsym(library, destroy))(block, 100);
    }
  }
  return std::puts("done") < 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) return use_late(arguments[1]);
  for (const Family& family : kFamilies) {
    for (const auto& create : family.make)
      for (const auto& destroy : family.release) {
        reached = 0;
        for (const Size bytes : {Size{1}, Size{100}, Size{5000}, Size{200000}, Size{3000000}}) {
          void* const block = create(bytes);
          std::memset(block, 1, bytes);
          destroy(block, bytes);
        }
        destroy(nullptr, 1);
        std::printf("%s: %d\n", family.name, reached);
      }
    void* const refused = family.make[1](kRefused);
    std::printf("%s: %s\n", family.name, refused == nullptr ? "refused" : "served");
    family.release[0](refused, kRefused);
  }
}
