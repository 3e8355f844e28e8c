// Room 18: what another process asks for. The test writes the request, as the looker would, and takes a slow path.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "cache/registry.h"
#include "front/heap.h"
#include "profile/profile.h"
#include "profile/profile_store.h"
#include "region/account.h"
#include "sampling/sampling.h"
#include "unit/support.h"
#include "upkeep/background.h"
#include "upkeep/request.h"

namespace freestone {
namespace {

Request& request() { return freestone_request_word; }

class upkeep_request : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ensure_started(), Mode::active);
    request().look.store_relaxed(7);
    request().look_until_ms.store_relaxed(~u64{0});
  }
  void TearDown() override {
    request().look.store_relaxed(0);
    end_forgotten_look(0);
    EXPECT_EQ(attention.load_relaxed() & (kAttentionLook | kAttentionAsked), 0U);
  }

  static void write(u64 word, u64 argument, u64 until_ms) {
    request().ticket += 1;
    request().argument = argument;
    request().until_ms = until_ms;
    request().word.store_relaxed(word);
    attention.or_seq(0x8000'0000);
  }
  static bool is_answered() { return request().answered.load_acquire() == request().ticket; }
  static i64 ask(Errand errand, u64 argument = 0) {
    write(kRequestMagic | static_cast<u64>(errand), argument, ~u64{0});
    attend();
    EXPECT_TRUE(is_answered());
    return request().result;
  }
  static std::string text() { return {reinterpret_cast<const char*>(request().text), request().text_bytes}; }
};

// REQUEST-1
TEST_F(upkeep_request, OnlyAWholeRequestInTimeIsAnswered) {
  const u64 errand = static_cast<u64>(Errand::write_profile);
  const u64 now = os::coarse_milliseconds();
  const struct {
    u64 word, until_ms;
  } cases[] = {{0, ~u64{0}},
               {errand, ~u64{0}},
               {kRequestMagic, ~u64{0}},
               {kRequestMagic | 4, ~u64{0}},
               {~u64{0}, ~u64{0}},
               {kRequestMagic ^ 0x100 ^ errand, ~u64{0}},
               {kRequestMagic | errand, now},
               {kRequestMagic | errand, 0}};
  for (const auto& [word, until_ms] : cases) {
    write(word, 0, until_ms);
    attend();
    EXPECT_FALSE(is_answered()) << word;
    EXPECT_EQ(attention.load_relaxed() & kAttentionAsked, 0U) << "it is looked at once";
  }
  write(kRequestMagic | errand, 0, now + 3'600'000);
  attend();
  EXPECT_TRUE(is_answered());
  EXPECT_EQ(request().word.load_relaxed(), 0U) << "taken, and answered once";
}

// REQUEST-1
TEST_F(upkeep_request, AChildForgetsWhatItsParentWasAsked) {
  write(kRequestMagic | static_cast<u64>(Errand::start_profile), 1, ~u64{0});
  const int status = fork_and([] {
    attend();
    return !is_answered() && !profile_is_active() ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  attend();
  EXPECT_TRUE(is_answered() && profile_is_active());
}

// REQUEST-2
TEST_F(upkeep_request, AProfileEndsWhenItsLookerIsGone) {
  const u64 now = os::coarse_milliseconds();
  request().look_until_ms.store_relaxed(now + 10'000);
  ASSERT_EQ(ask(Errand::start_profile, 4096), 0);
  EXPECT_EQ(ask(Errand::start_profile, 4096), EALREADY);
  end_forgotten_look(now + 5'000);
  EXPECT_TRUE(profile_is_active()) << "too early";
  request().look_until_ms.store_relaxed(now + 3'610'000);
  end_forgotten_look(now + 3'600'000);
  EXPECT_TRUE(profile_is_active()) << "the looker has said so, though the program was idle since";
  end_forgotten_look(now + 3'610'000);
  EXPECT_FALSE(profile_is_active());
  EXPECT_EQ(request().sampled_for.load_relaxed(), 0U);
}

// REQUEST-2
TEST_F(upkeep_request, AnotherLookEndsTheProfileOfTheLast) {
  ASSERT_EQ(ask(Errand::start_profile, 4096), 0);
  request().look.store_relaxed(8);
  EXPECT_EQ(ask(Errand::start_profile, 4096), 0) << "its own profile";
  EXPECT_EQ(request().sampled_for.load_relaxed(), 8U);
}

// REQUEST-3
TEST_F(upkeep_request, TheTextOfAnAnswerIsWhole) {
  ASSERT_EQ(ask(Errand::start_profile, 1), 0);
  void* block = allocate(1000);
  // A search for leaks would read all of a sanitizer's shadow memory.
  const Errand search = FREESTONE_SANITIZED ? Errand::write_profile : Errand::write_leaks;
  const struct {
    Errand errand;
    u64 argument;
    const char *begin, *inside;
  } cases[] = {{Errand::write_profile, static_cast<u64>(ProfileFormat::pprof), "", "inuse_space"},
               {Errand::write_profile, static_cast<u64>(ProfileFormat::heap_v2), "heap_v2/1", ""},
               {Errand::write_profile, kConfigured, "", "inuse_space"},
               {search, 0, FREESTONE_SANITIZED ? "" : "{\"", ""}};
  for (const auto& [errand, argument, begin, inside] : cases) {
    EXPECT_EQ(ask(errand, argument), 0);
    EXPECT_EQ(text().rfind(begin, 0), 0U) << text().substr(0, 99);
    EXPECT_NE(text().find(inside), std::string::npos);
  }
  deallocate(block);
}

TEST_F(upkeep_request, TheBackgroundThreadSearchesForLeaksWhereItRuns) {
  if (FREESTONE_SANITIZED) GTEST_SKIP() << "a search would read all of the shadow memory";
  ASSERT_TRUE(start_background());
  write(kRequestMagic | static_cast<u64>(Errand::write_leaks), 0, ~u64{0});
  attend();
  while (!is_answered()) os::sleep_microseconds(1000);
  EXPECT_EQ(request().result, 0);
  stop_background();
}

// A thread that its cache always serves goes to a slow path when its cache is recalled from outside.
TEST_F(upkeep_request, ARecalledCacheLeadsToTheRequest) {
  for (int i = 0; i < 100; ++i) deallocate(allocate(100));
  write(kRequestMagic | static_cast<u64>(Errand::write_profile), 0, ~u64{0});
  for (int i = 0; i < 100; ++i) deallocate(allocate(100));
  EXPECT_FALSE(is_answered());
  const auto write_bytes = [](u64 at, u64 value, u64 count) {
    memset(reinterpret_cast<char*>(&thread_cache()) + at, static_cast<int>(value), count);
  };
  write_bytes(freestone_caches.table_at, freestone_caches.table_entry, freestone_caches.table_bytes);
  write_bytes(freestone_caches.recalled_at, 1, 1);
  deallocate(allocate(100));
  EXPECT_TRUE(is_answered());
  EXPECT_EQ(thread_cache().recalled.load_relaxed(), 0);
}

// The thread that a request meets may have the smallest stack that there is, of which the program uses some.
TEST_F(upkeep_request, AnAnswerNeedsLittleStack) {
  if (FREESTONE_SANITIZED) GTEST_SKIP() << "its frames are larger";
  ASSERT_EQ(ask(Errand::start_profile, 1), 0);
  void* block = allocate(1000);  // a stack to name
  alignas(4096) static char stack[256 * 1024];
  for (const Errand errand : {Errand::write_profile, Errand::write_leaks}) {
    std::memset(stack, 0x5a, sizeof stack);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, sizeof stack);
    write(kRequestMagic | static_cast<u64>(errand), 0, ~u64{0});
    const auto work = [](void*) -> void* {
      attend();
      return nullptr;
    };
    pthread_t thread;
    pthread_create(&thread, &attributes, work, nullptr);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    EXPECT_TRUE(is_answered());
    const auto untouched = std::find_if(std::begin(stack), std::end(stack), [](char c) { return c != 0x5a; });
    EXPECT_LT(std::end(stack) - untouched, 8 * 1024) << static_cast<unsigned>(errand);
  }
  deallocate(block);
}

u64 live_samples() {
  u64 count = 0;
  LockGuard guard(profile_store.lock);
  profile_store.for_each_live([&](const LiveSample&) { ++count; });
  return count;
}
Amount live_sums() {
  LockGuard guard(profile_store.lock);
  return profile_store.totals().live;
}

// STORE-1
TEST_F(upkeep_request, AProfileHoldsNoSampleOfAnEarlierOne) {
  for (const u64 mean : {u64{1}, u64{128 * 1024}}) {  // every block is tracked; or some are served apart
    std::vector<void*> kept;
    start_profile_of(mean);
    while (kept.size() < 5000 || live_samples() == 0) kept.push_back(allocate(4000));
    EXPECT_GT(live_samples(), 0U);
    end_profile();
    start_profile_of(mean);
    EXPECT_EQ(live_samples(), 0U);
    EXPECT_EQ(live_sums().bytes, 0);
    void* own = nullptr;
    while (live_samples() == 0) {
      deallocate(own);
      own = allocate(4000);
    }
    for (void* block : kept) deallocate(block);  // those that were sampled earlier take nothing from the sums
    EXPECT_EQ(live_samples(), 1U);
    EXPECT_GE(live_sums().bytes, 4000 - 1e-6);
    deallocate(own);
    EXPECT_NEAR(live_sums().bytes, 0, 1e-3);
    end_profile();
  }
}

}  // namespace
}  // namespace freestone
