// How often a guess at the next block is right, by size class: that it is the upper neighbour of the last one, or lies
// at whatever distance came most often. HARDENING.md says how often at most.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "support/hardened_test.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr unsigned kGuesses = 2048;
constexpr size_t kHeldBackBytes = 8;  // of each block, for its trailer

struct Rates {
  double neighbour;
  double best;
};

// Among the steps from each of the blocks to the next.
Rates rates_of(const std::vector<char*>& blocks, size_t block_bytes) {
  std::map<ptrdiff_t, unsigned> steps;
  for (size_t k = 1; k < blocks.size(); ++k) ++steps[blocks[k] - blocks[k - 1]];
  unsigned best = 0;
  for (const auto& [step, count] : steps) best = std::max(best, count);
  return {double(steps[ptrdiff_t(block_bytes)]) / kGuesses, double(best) / kGuesses};
}

// A true rate of `promised` exceeds this once in a billion times.
double bound_of(double promised) { return promised + 6 * std::sqrt(promised * (1 - promised) / kGuesses); }

class Guesses : public HardenedTest {};

// Four size classes in each doubling, two while they are 16 bytes apart.
std::vector<size_t> slab_classes() {
  std::vector<size_t> classes;
  for (size_t bytes = 32; bytes <= 32 * 1024;) {
    classes.push_back(bytes);
    size_t doubling = 32;
    while (2 * doubling <= bytes) doubling *= 2;
    bytes += std::max<size_t>(16, doubling / 4);
  }
  return classes;
}

// `kept` of every eight blocks stay when the others are freed: 0 for slabs that are fresh.
void expect_promised_rates(unsigned kept) {
  for (const size_t block_bytes : slab_classes()) {
    std::vector<char*> blocks(kGuesses + 1);
    for (char*& block : blocks) block = static_cast<char*>(api().malloc(block_bytes - kHeldBackBytes));
    for (unsigned k = 0; kept != 0 && k <= kGuesses; ++k) {
      if (k % 8 >= kept) api().free(std::exchange(blocks[k], nullptr));
    }
    for (char*& block : blocks) {
      if (block == nullptr) block = static_cast<char*>(api().malloc(block_bytes - kHeldBackBytes));
    }
    const Rates rates = rates_of(blocks, block_bytes);
    std::printf("%6zu bytes: neighbour %.3f, best guess %.3f\n", block_bytes, rates.neighbour, rates.best);
    const double bound = bound_of(block_bytes <= 32 ? 1.0 / 16 : 1.0 / 8);
    EXPECT_LE(rates.neighbour, bound) << block_bytes;
    EXPECT_LE(rates.best, bound) << block_bytes;
    for (char* block : blocks) api().free(block);
  }
}

TEST_F(Guesses, OfTheNextFreshBlockComeTrueAsSeldomAsPromised) { expect_promised_rates(0); }

TEST_F(Guesses, OfTheNextBlockAmongOthersComeTrueAsSeldomAsPromised) { expect_promised_rates(1); }

}  // namespace
}  // namespace freestone_test
