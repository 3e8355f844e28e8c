// Loads the library into a C++ program that has its operators from libstdc++, and asks it for its own by name.
#include <dlfcn.h>

#include <cstddef>
#include <iostream>

int main(int, char** arguments) {
  void* const library = dlopen(arguments[1], RTLD_NOW);
  using Create = void* (*)(std::size_t);
  using Destroy = void (*)(void*, std::size_t);
  const auto create = reinterpret_cast<Create>(dlsym(library, "_Znwm"));
  const auto create_array = reinterpret_cast<Create>(dlsym(library, "_Znam"));
  const auto destroy = reinterpret_cast<Destroy>(dlsym(library, "_ZdlPvm"));
  const auto destroy_array = reinterpret_cast<Destroy>(dlsym(library, "_ZdaPvm"));
  for (int i = 0; i < 100; ++i) {
    destroy(create(100), 100);
    destroy_array(create_array(100), 100);
  }
  std::cout << "done" << std::endl;
}
