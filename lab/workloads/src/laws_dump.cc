#include <unistd.h>

#include "laws.h"
#include "report.h"

namespace workload {
namespace {

constexpr std::uint32_t kDraws = 4'000'000;
constexpr std::uint64_t kSeed = 20240229;

// [value, count] of every value below `top` that was drawn.
template <class Draw>
void dump(Text& text, const char* name, const char* parameter, std::uint64_t value, std::uint32_t top, Draw draw) {
  OwnArray<std::uint32_t> counts(top);
  std::uint32_t outside = 0;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const std::uint32_t drawn = draw();
    if (drawn < top)
      ++counts[drawn];
    else
      ++outside;
  }
  text.put("%s{\"law\":\"%s\",\"%s\":%lu,\"draws\":%u,\"outside\":%u,\"counts\":[", text.comma(), name, parameter,
           value, kDraws, outside);
  for (std::uint32_t v = 0; v < top; ++v)
    if (counts[v] != 0) text.put("%s[%u,%u]", text.comma(), v, counts[v]);
  text.put("]}");
}

}  // namespace

void dump_laws() {
  Text text;
  text.put("{\"schema\":\"freestone-laws/1\",\"laws\":[");
  std::uint64_t stream = 0;
  for (const unsigned exponent : {10u, 16u}) {
    Random random(kSeed, ++stream);
    const ArticleSizes article(exponent);
    dump(text, "article", "exponent", exponent, (1u << exponent) + 1, [&] { return article.draw(random); });
    const ProgramSizes program(exponent);
    dump(text, "program", "exponent", exponent, (1u << exponent) + 1, [&] { return program.draw(random); });
  }
  for (const std::uint32_t slots : {std::uint32_t{1000}, std::uint32_t{1} << 14}) {
    Random random(kSeed, ++stream);
    const FoldedSlots folded(slots);
    dump(text, "folded-segments", "slots", slots, 7, [&] {
      const std::uint32_t slot = folded.draw(random);
      std::uint32_t segment = 0;
      while (slot >= folded.first_of(segment + 1)) ++segment;
      return segment;
    });
    dump(text, "folded-slots", "slots", slots, slots, [&] { return folded.draw(random); });
  }
  Random random(kSeed, ++stream);
  dump(text, "bands", "classes", 3, 32769, [&] { return draw_band_size(random); });
  dump(text, "log-uniform", "low", 16, 65537, [&] { return draw_log_uniform(random); });
  dump(text, "countdown", "low", 50, 2001, [&] { return random.between(50, 2000); });
  dump(text, "uniform", "below", 1000, 1000, [&] { return random.below(1000); });
  dump(text, "unit", "cells", 1000, 1000, [&] { return static_cast<std::uint32_t>(random.unit() * 1000); });
  // 256 x the kind of call + its bytes.
  dump(text, "cfrac", "calls", 4, 1024, [&] {
    const CfracStep step = draw_cfrac_step(random);
    return static_cast<std::uint32_t>(step.call) * 256 + step.bytes;
  });
  // Neighbouring streams of one seed, folded to 4 bits each: independent threads fill all 256 cells alike.
  Random one(kSeed, 0);
  Random two(kSeed, 1);
  dump(text, "two-streams", "cells", 256, 256, [&] { return one.below(16) * 16 + two.below(16); });
  text.put("]}\n");
  text.write_to(STDOUT_FILENO);
}

}  // namespace workload
