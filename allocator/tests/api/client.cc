// A client of both headers that has to compile with every warning.
#include <freestone/freestone.hpp>

#include <memory_resource>
#include <vector>

int main() {
  freestone::Heap heap(1 << 20);
  std::pmr::vector<int> in_heap(100, heap.resource());
  std::vector<int, freestone::allocator<int>> in_process(100);
  std::vector<int, freestone::heap_allocator<int>> bound(100, freestone::heap_allocator<int>(heap));
  return heap.live_blocks() == 2 && in_process.size() == 100 ? 0 : 20;
}
