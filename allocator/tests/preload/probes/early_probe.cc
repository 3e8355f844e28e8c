// Allocates in .preinit_array (before any constructor of a library), in static constructors, after main and in static
// destructors.
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

namespace {

void* first_block = nullptr;

void before_constructors(int, char**, char**) {
  first_block = std::malloc(100000);
  std::free(std::calloc(10, 10));
}

__attribute__((section(".preinit_array"), used)) void (*const preinit)(int, char**, char**) = before_constructors;

struct Global {
  std::map<std::string, std::string> entries;
  Global() {
    for (int i = 0; i < 2000; ++i) entries[std::to_string(i)] = std::string(static_cast<size_t>(i % 300), 'x');
  }
  ~Global() {
    for (int i = 2000; i < 4000; ++i) entries[std::to_string(i)] = "late";
    if (entries.size() != 4000) _exit(97);
  }
};

Global global;

}  // namespace

int main() {
  if (first_block == nullptr) return 96;
  std::free(first_block);
  std::atexit([] { std::free(std::malloc(12345)); });
  return 0;
}
