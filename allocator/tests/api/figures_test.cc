// STAT-3. Every interface that says how much the heap holds agrees with the others and with the truth: what
// malloc_usable_size says of the blocks held, and what the kernel says is resident. No other thread runs meanwhile.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <climits>
#include <cstdio>
#include <mutex>
#include <utility>

#include "api/support.h"

extern "C" {
const char* freestone_conf = "live_page:true";
}

namespace freestone_test {
namespace {

constexpr size_t kSlack = 2 * kMiB;  // the C library's own, stacks

const char* text_of_file(int file, char* text, size_t capacity) {
  const ssize_t length = file >= 0 ? pread(file, text, capacity - 1, 0) : 0;
  text[length > 0 ? length : 0] = '\0';
  return text;
}
const char* text_of_path(const char* path) {
  static char text[64 * kKiB];
  const int file = open(path, O_RDONLY);
  text_of_file(file, text, sizeof text);
  if (file >= 0) close(file);
  return text;
}

// The number behind `key` where it stands last.
size_t last_number(const char* text, const char* key) {
  const char* found = nullptr;
  for (const char* at = text; (at = strstr(at, key)) != nullptr; at += strlen(key)) found = at + strlen(key);
  EXPECT_NE(found, nullptr) << key << " in " << text;
  return found != nullptr ? strtoul(found, nullptr, 10) : 0;
}

size_t attribute(const char* text, const char* element, const char* name) {
  const char* found = nullptr;
  for (const char* at = text; (at = strstr(at, element)) != nullptr; ++at) found = at;
  EXPECT_NE(found, nullptr) << element;
  return found != nullptr ? last_number(std::string(found, strcspn(found, ">")).c_str(), name) : 0;
}

// malloc_info by glibc's names, the totals of all heaps.
struct Info {
  explicit Info(const char* xml)
      : fast(attribute(xml, "<total type=\"fast\"", "size=\"")),
        rest(attribute(xml, "<total type=\"rest\"", "size=\"")),
        mapped(attribute(xml, "<total type=\"mmap\"", "size=\"")),
        current(attribute(xml, "<system type=\"current\"", "size=\"")),
        max(attribute(xml, "<system type=\"max\"", "size=\"")) {
    for (const char* at = xml; (at = strstr(at, " total=\"")) != nullptr; ++at) listed += strtoul(at + 8, nullptr, 10);
    const std::string heap(xml, static_cast<size_t>(strstr(xml, "</heap>") - xml));
    EXPECT_EQ(attribute(heap.c_str(), "<system type=\"current\"", "size=\""), current);
    EXPECT_EQ(heap.find("mmap"), std::string::npos) << "own mappings belong to no heap";
  }
  size_t used() const { return current + mapped - fast - rest; }

  size_t fast, rest, mapped, current, max, listed = 0;
};

// What every interface says at one moment. To ask allocates nothing.
struct Answers {
  static constexpr size_t kTextBytes = 64 * kKiB;
  char info[kTextBytes], lines[kTextBytes], json[kTextBytes], xml[kTextBytes], metrics[kTextBytes];
  struct mallinfo2 wide;
  struct mallinfo narrow;
  freestone_stats stats;
  size_t resident, allocated, active, mapped, kept;

  void ask() {
    static const int file = static_cast<int>(memfd_create("figures", 0));
    static FILE* const stream = fdopen(file, "w");
    static char buffer[4096];
    static const bool is_set = setvbuf(stream, buffer, _IOFBF, sizeof buffer) == 0;
    ASSERT_TRUE(is_set);
    const auto take = [](char* text, auto write) {
      rewind(stream);
      ASSERT_EQ(ftruncate(file, 0), 0);
      write();
      fflush(stream);
      text_of_file(file, text, kTextBytes);
    };
    take(info, [] {
      ASSERT_NE(malloc_info(1, stream), 0) << "there are no options";
      ASSERT_EQ(malloc_info(0, stream), 0);
    });
    take(lines, [] {
      const int error = dup(2);
      dup2(file, 2);
      malloc_stats();
      dup2(error, 2);
      close(error);
    });
    take(json, [] { freestone_stats_write(file, FREESTONE_JSON); });
    take(xml, [] { freestone_stats_write(file, FREESTONE_XML); });
    take(metrics, [] { freestone_stats_write(file, FREESTONE_OPENMETRICS); });
    wide = mallinfo2();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    narrow = mallinfo();
#pragma GCC diagnostic pop
    stats.version = FREESTONE_STATS_VERSION;
    freestone_get_stats(&stats);
    ASSERT_EQ(set<uint64_t>("epoch", 1), 0);
    allocated = get<size_t>("stats.allocated");
    active = get<size_t>("stats.active");
    kept = get<size_t>("stats.resident");
    mapped = get<size_t>("stats.mapped");
    resident = resident_bytes("\nRss:");
  }
};
Answers answers;

int clipped(size_t value) { return static_cast<int>(std::min<size_t>(value, INT_MAX)); }

class Figures : public testing::Test {
 protected:
  // Blocks whose bytes are all written, or none of them.
  void take(size_t number, size_t least, size_t most, bool touched = true) {
    for (; number > 0; --number) {
      const size_t bytes = least + random_.below(most - least + 1);
      void* block = malloc(bytes);
      ASSERT_NE(block, nullptr);
      if (touched) memset(block, 1, malloc_usable_size(block));
      const std::lock_guard<std::mutex> guard(lock_);
      (touched ? held_ : untouched_).push_back(block);
    }
  }
  // Frees all but one of `of`.
  void drop(size_t of) {
    std::vector<void*> kept;
    kept.reserve(held_.size());
    for (size_t k = 0; of != 0 && k < held_.size(); k += of) kept.push_back(std::exchange(held_[k], nullptr));
    held_.release();
    held_.swap(kept);
    if (of != 0) return;
    untouched_.release();
    untouched_.shrink_to_fit();
    held_.shrink_to_fit();
  }
  void SetUp() override {
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    answers.ask();
    answers.ask();
    base_live_ = answers.stats.live_bytes;
    base_resident_ = answers.resident;  // with the heap's first pages, which the slack allows for
  }

  void look_at_rest(const char* when) {
    SCOPED_TRACE(when);
    answers.ask();
    const Answers& a = answers;
    const freestone_stats& s = a.stats;
    const Info info(a.info);
    size_t untouched = 0;
    for (void* block : untouched_) untouched += malloc_usable_size(block);
    size_t truth = untouched + (held_.capacity() + untouched_.capacity()) * sizeof(void*);
    for (void* block : held_) truth += malloc_usable_size(block);

    // Against the truth.
    const size_t live = s.live_bytes - base_live_;
    EXPECT_GE(live + kSlack, truth);
    EXPECT_LE(live, truth + truth / (is_hardened() ? 12 : 100) + kSlack) << "classes are an eighth apart";
    const size_t held = info.current + info.mapped - untouched;
    EXPECT_LE(held, a.resident + a.resident / 50 + kSlack) << "memory that went back is not free in the heap";
    const size_t explained = held + s.metadata_resident_bytes + base_resident_;
    EXPECT_LE(a.resident, explained + explained / 50 + kSlack) << "what is resident is in some figure";

    // malloc_info, as glibc's readers compute.
    EXPECT_EQ(info.used(), s.live_bytes);
    EXPECT_EQ(info.mapped, s.mapped_bytes);
    EXPECT_LE(info.current, info.max);
    EXPECT_LE(info.listed, info.fast + info.rest) << "sizes are those of free blocks";
    EXPECT_GE(info.listed, info.fast);

    // The other calls of glibc's.
    EXPECT_EQ(a.wide.arena, a.wide.uordblks + a.wide.fordblks);
    EXPECT_EQ(a.wide.arena, info.current);
    EXPECT_EQ(a.wide.uordblks + a.wide.hblkhd, s.live_bytes);
    EXPECT_EQ(a.wide.hblkhd, info.mapped);
    EXPECT_EQ(a.wide.fsmblks, info.fast);
    EXPECT_LE(a.wide.keepcost, a.wide.fordblks);
    EXPECT_EQ(a.narrow.arena, clipped(a.wide.arena));
    EXPECT_EQ(a.narrow.uordblks, clipped(a.wide.uordblks));
    EXPECT_EQ(a.narrow.fordblks, clipped(a.wide.fordblks));
    EXPECT_EQ(a.narrow.hblkhd, clipped(a.wide.hblkhd));
    most_mapped_ = std::max(most_mapped_, s.mapped_bytes);
    const size_t regions = last_number(a.lines, "\nmax mmap regions = ");
    const size_t most = last_number(a.lines, "\nmax mmap bytes   = ");
    EXPECT_GE(regions, most_mapped_ > 0 ? 1 : 0);
    EXPECT_GE(most, most_mapped_) << "of blocks that were freed long before, too";
    char end[256];
    snprintf(end, sizeof end,
             "Total (incl. mmap):\nsystem bytes     = %10zu\nin use bytes     = %10zu\nmax mmap regions = %10zu\n"
             "max mmap bytes   = %10zu\n",
             a.wide.arena + a.wide.hblkhd, static_cast<size_t>(s.live_bytes), regions, most);
    const char* total = strstr(a.lines, "Total (incl. mmap):");
    EXPECT_STREQ(total != nullptr ? total : a.lines, end) << "the lines that scripts know from glibc";

    // jemalloc's.
    EXPECT_EQ(a.allocated, s.live_bytes);
    EXPECT_EQ(a.kept, info.current + info.mapped + s.metadata_bytes);
    EXPECT_EQ(a.mapped, s.charged_bytes);
    EXPECT_LE(a.allocated, a.active);
    EXPECT_LE(a.active, a.kept);
    EXPECT_LE(a.kept, a.mapped);

    // Ours.
    EXPECT_EQ(s.charged_bytes, s.committed_bytes + s.mapped_bytes + s.metadata_bytes - s.clean_bytes);
    expect_figures(a.json, "\"%s\":");
    expect_figures(a.xml, "\"%s\" value=\"");
    expect_figures(a.metrics, "\nfreestone_%s{");
    look_at_page(s.live_bytes);
  }

 private:
  static void expect_figures(const char* text, const char* form) {
    SCOPED_TRACE(form);
    const auto figure = [&](const char* name) {
      char key[64];
      snprintf(key, sizeof key, form, name);
      const char* line = strstr(text, key);
      EXPECT_NE(line, nullptr) << name;
      if (line == nullptr) return size_t{0};
      line += strlen(key);
      return strtoul(key[0] == '\n' ? strchr(line, '}') + 1 : line, nullptr, 10);  // behind the labels
    };
    const freestone_stats& s = answers.stats;
    const std::pair<const char*, uint64_t> figures[] = {
        {"live_bytes", s.live_bytes},           {"thread_cached_bytes", s.thread_cached_bytes},
        {"slab_free_bytes", s.slab_free_bytes}, {"clean_bytes", s.clean_bytes},
        {"mapped_bytes", s.mapped_bytes},       {"charged_bytes", s.charged_bytes}};
    for (const auto& [name, value] : figures) EXPECT_EQ(figure(name), value) << name;
    EXPECT_EQ(figure("charged_bytes") - figure("unbacked_bytes"), answers.kept);
  }

  // It is renewed by the clock, at a slow path.
  void look_at_page(size_t live_bytes) {
    static const std::string path = "/dev/shm/freestone-" + std::to_string(getpid());
    const auto moment = [] {
      uint64_t ms = 0;
      memcpy(&ms, text_of_path(path.c_str()) + 16, sizeof ms);
      return ms;
    };
    ASSERT_EQ(option("live_page"), "true") << "the program's freestone_conf";
    if (access("/dev/shm", W_OK) != 0) return;
    const uint64_t before = moment();
    for (int k = 0; k < 400 && moment() == before; ++k) {
      usleep(10'000);
      freestone_flush_thread();
      free(malloc(100));
    }
    ASSERT_NE(moment(), before);
    const size_t live = last_number(text_of_path(path.c_str()) + 64, "\"live_bytes\":");
    EXPECT_LE(live, live_bytes + 64 * kKiB);
    EXPECT_GE(live + 64 * kKiB, live_bytes);
  }

  Random random_{11};
  std::mutex lock_;
  Blocks held_, untouched_;
  size_t base_live_ = 0;
  size_t base_resident_ = 0;
  uint64_t most_mapped_ = 0;
};

TEST_F(Figures, OfSmallBlocksThatOtherThreadsFree) {
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([this] { take(30'000, 16, 3000); });
  }
  look_at_rest("made");
  std::thread([this] { drop(3); }).join();
  look_at_rest("holes");
  EXPECT_EQ(malloc_trim(0), 1) << "memory went back";
  look_at_rest("holes, trimmed");
  take(2000, 16, 3000);
  look_at_rest("refilled");
  drop(0);
  look_at_rest("freed");
  malloc_trim(0);
  look_at_rest("freed and trimmed");
}

TEST_F(Figures, OfRunsThatWereFreed) {
  take(600, 9 * kKiB, 40 * kKiB);
  take(300, 40 * kKiB, 900 * kKiB);
  look_at_rest("made");
  drop(4);
  look_at_rest("holes");
  take(40, 100 * kKiB, 6 * kMiB);
  look_at_rest("refilled");
  drop(0);
  look_at_rest("freed");
  malloc_trim(0);
  look_at_rest("freed and trimmed");
}

TEST_F(Figures, OfOwnMappingsTouchedOrNot) {
  take(2, 40 * kMiB, 60 * kMiB);
  take(50, 50 * kMiB, 50 * kMiB, false);
  look_at_rest("2,500 MiB untouched");
  drop(2);
  look_at_rest("one freed");
  drop(0);
  look_at_rest("freed");
}

TEST_F(Figures, AfterDecay) {
  const auto decay_ms = get<ssize_t>("arenas.dirty_decay_ms");
  take(20'000, 16, 3000);
  take(100, 30 * kKiB, 300 * kKiB);
  drop(5);
  ASSERT_EQ(set<ssize_t>("arenas.dirty_decay_ms", 20), 0);
  for (int k = 0; k < 60; ++k) {
    usleep(5000);
    ASSERT_EQ(call("arena.0.decay"), 0);
  }
  look_at_rest("decayed");
  ASSERT_EQ(set<ssize_t>("arenas.dirty_decay_ms", decay_ms), 0);
  drop(0);
}

}  // namespace
}  // namespace freestone_test
