// The laws by which request sizes are drawn.
#pragma once

#include <cstddef>
#include <ostream>

#include "support/random.h"

namespace freestone_test {

struct Law {
  const char* name;
  size_t (*draw)(Random&);
  size_t live_blocks;   // per thread, at most
  size_t kilo_ops;      // of one ordinary run, in thousands
  friend std::ostream& operator<<(std::ostream& out, const Law& law) { return out << law.name; }
};

inline size_t draw_small(Random& random) { return random.below(257); }
inline size_t draw_geometric(Random& random) { return static_cast<size_t>(-std::log(1.0 - random.unit()) * 120.0); }
inline size_t draw_log_uniform(Random& random) { return random.log_uniform(1, 512 * 1024); }

// Around every border that an allocator may have: powers of two and their eighths, pages, units, each a byte less and
// more.
inline size_t draw_edges(Random& random) {
  const size_t power = size_t{16} << random.below(17);
  return power + power / 8 * random.below(8) + random.below(3) - 1;
}

// What language runtimes do: nearly everything under 600 bytes, some buffers, a few tables that grow large.
inline size_t draw_program(Random& random) {
  const uint64_t dice = random.below(1000);
  if (dice < 930) return 16 + random.below(73) * 8;
  if (dice < 990) return random.log_uniform(600, 16384);
  if (dice < 999) return random.log_uniform(16384, 300000);
  return random.log_uniform(300000, 3000000);
}

// Large blocks: spans, the run cache, mappings of their own.
inline size_t draw_large(Random& random) {
  return random.below(400) == 0 ? random.log_uniform(32u << 20, 48u << 20) : random.log_uniform(32 * 1024, 4 << 20);
}

inline constexpr Law kLaws[] = {
    {"small", draw_small, 20000, 20000},          {"geometric", draw_geometric, 5000, 17000},
    {"log_uniform", draw_log_uniform, 400, 1000}, {"edges", draw_edges, 300, 300},
    {"program", draw_program, 8000, 12000},       {"large", draw_large, 24, 40},
};

}  // namespace freestone_test
