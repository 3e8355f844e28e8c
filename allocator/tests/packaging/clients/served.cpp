#include <memory>
#include <vector>

#include "served.h"

int main() {
  prove_c_calls();
  const uint64_t before = live_bytes();
  std::vector<std::unique_ptr<char[]>> blocks(1000);
  for (auto& block : blocks) block.reset(new char[100]);
  require_growth(before, 100000 + 1000 * sizeof(void*), "operator new");
  print_owner("_Znwm");
}
