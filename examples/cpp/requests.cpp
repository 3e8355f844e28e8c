// A heap of its own for each request of a server: bounded, so that one request cannot take the memory of all, and freed
// at once.
#include <freestone/freestone.hpp>
#include <iostream>
#include <memory_resource>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

// Counts the words of a made-up text of so many words; all of it lives in the request's heap.
std::size_t distinct_words(freestone::Heap& heap, int words) {
  std::pmr::unordered_map<std::pmr::string, int> count(heap.resource());
  for (int i = 0; i < words; ++i)
    ++count[std::pmr::string("a word that is long enough, number ", heap.resource()) +
            std::to_string(i % 5000).c_str()];
  return count.size();
}

void serve(int words) {
  freestone::Heap heap(4 << 20);
  try {
    const std::size_t distinct = distinct_words(heap, words);
    std::cout << words << " words: " << distinct << " distinct, ";
  } catch (const std::bad_alloc&) {
    std::cout << words << " words: too large, ";
  }
  const auto stats = heap.stats();
  std::cout << "peak " << stats.peak_bytes / 1024 << " KiB of " << stats.limit_bytes / 1024 << ", blocks left "
            << stats.live_blocks << '\n';
}

// A request that keeps a table of so many numbers.
void hold(std::size_t numbers) {
  freestone::Heap heap(4 << 20);
  std::vector<double, freestone::heap_allocator<double>> table{freestone::heap_allocator<double>(heap)};
  try {
    table.resize(numbers);
    std::cout << numbers << " numbers: held\n";
  } catch (const std::bad_alloc&) {
    std::cout << numbers << " numbers: too large\n";
  }
}

}  // namespace

int main() {
  serve(1000);
  serve(100'000);
  hold(100'000);
  hold(10'000'000);
}
