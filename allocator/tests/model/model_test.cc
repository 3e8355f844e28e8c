// Random operations against a reference model. FREESTONE_TEST_SEED repeats a run, FREESTONE_TEST_OPS=10 is the long
// mode.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "model/player.h"

namespace freestone_test {
namespace {

class Model : public testing::TestWithParam<Law> {};

std::string law_name(const testing::TestParamInfo<Law>& info) { return info.param.name; }

// Operations of a law in all: about 107 million over the suite, both libraries together.
uint64_t run_length(const Law& law) { return scaled(law.kilo_ops * 1000); }

TEST_P(Model, KeepsEveryPromiseInOneThread) {
  const Law& law = GetParam();
  Player player(law, test_seed(law.name), 0, nullptr, false);
  EXPECT_TRUE(player.play(run_length(law) / 2) && player.finish()) << player.failure();
  RecordProperty("operations", std::to_string(player.operations()));
}

TEST_P(Model, NeverGivesOverlappingBlocks) {
  const Law& law = GetParam();
  Player player(law, test_seed(law.name), 0, nullptr, true);
  EXPECT_TRUE(player.play(run_length(law) / 16) && player.finish()) << player.failure();
}

TEST_P(Model, KeepsEveryPromiseWhenThreadsExchangeBlocks) {
  const Law& law = GetParam();
  constexpr int kThreads = 4;
  const uint64_t seed = test_seed(law.name);
  auto exchange = std::make_unique<Exchange>();
  std::vector<std::unique_ptr<Player>> players;
  for (uint64_t i = 0; i < kThreads; ++i)
    players.push_back(std::make_unique<Player>(law, seed + i, i << 48, exchange.get(), false));
  std::vector<char> kept(kThreads, 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { kept[i] = players[i]->play(run_length(law) / 2 / kThreads); });
  for (std::thread& thread : threads) thread.join();
  // What the threads left behind is freed by this one.
  for (size_t i = 0; i < kThreads; ++i) EXPECT_TRUE(kept[i] && players[i]->finish()) << players[i]->failure();
}

INSTANTIATE_TEST_SUITE_P(Laws, Model, testing::ValuesIn(kLaws), law_name);

}  // namespace
}  // namespace freestone_test
