// A library that comes and goes: it allocates, and throws and catches, so its tables and addresses are in stacks when
// it is unloaded.
#include <cstdlib>
#include <stdexcept>
#include <string>

extern "C" int storm_guest(int depth) {
  if (depth > 0) return storm_guest(depth - 1) + 1;
  void* block = malloc(100);
  int result = block == nullptr;
  free(block);
  try {
    throw std::runtime_error(std::string(200, 'x'));
  } catch (const std::exception& e) {
    result += e.what()[0] == 'x';
  }
  return result;
}
