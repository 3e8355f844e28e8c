// Blocks that one thread allocates and another frees or shares lines with. Each thread has one inbox, a queue with a
// single producer and a single consumer.
//   cross          the neighbour fills the inbox (in `fan-in`, thread 0 reads the queues of all others):
//     share          a drawn share of a thread's frees goes to the next thread, the others are freed at home
//     batch          every block goes to the next thread, handed over 128 at a time
//     fan-in         thread 0 frees what all others allocate
//     pipeline       thread 0 allocates, the threads between verify and pass on, the last one frees
//   server         threads that serve requests. A request takes some short blocks and frees them at its end, in another
//                  order; some requests replace an entry of the thread's store, which lives long; a share of the short
//                  blocks is freed by another thread.
//   false-sharing  each thread writes to a small block of its own; where the blocks of two threads share a cache line,
//                  the writing slows down:
//     active         every thread allocates its own blocks
//     passive        the main thread allocates one block per thread, next to each other, and hands them out; a thread
//                    frees its block first and allocates again, which tells whether an allocator spreads shared lines
//                    further
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>

#include "laws.h"
#include "process.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

// Zero bytes are an empty one.
class Queue {
 public:
  // Publishes as many of `blocks` as there is room for; answers how many.
  std::uint32_t push(const Block* blocks, std::uint32_t count) {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);  // relaxed: only this thread writes it
    const std::uint32_t n = std::min(count, kCapacity - (head - tail_.load(std::memory_order_acquire)));
    for (std::uint32_t i = 0; i < n; ++i) cells_[(head + i) & kMask] = blocks[i];
    head_.store(head + n, std::memory_order_release);  // publishes the cells, and the blocks' contents, to the consumer
    return n;
  }
  std::uint32_t pop(Block* blocks, std::uint32_t count) {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);  // relaxed: only this thread writes it
    const std::uint32_t n = std::min(count, head_.load(std::memory_order_acquire) - tail);
    for (std::uint32_t i = 0; i < n; ++i) blocks[i] = cells_[(tail + i) & kMask];
    tail_.store(tail + n, std::memory_order_release);  // hands the cells back to the producer
    return n;
  }
  void close() { closed_.store(true, std::memory_order_release); }  // after the last push
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  static constexpr std::uint32_t kMost = 128;  // blocks moved at a time

 private:
  static constexpr std::uint32_t kCapacity = 1024;  // a power of two
  static constexpr std::uint32_t kMask = kCapacity - 1;
  Block cells_[kCapacity];
  alignas(64) std::atomic<std::uint32_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> tail_{0};
  alignas(64) std::atomic<bool> closed_{false};
};

// How a thread waits for another. `rest` uses no CPU time that the allocator would be charged with.
using Wait = int (*)();

int rest() {
  constexpr timespec kPause{0, 20'000};
  return ::nanosleep(&kPause, nullptr);
}

// Frees what lies in the queue; answers how many blocks that were.
std::uint32_t drain(Queue& queue, Touch touch, Tally& tally) {
  Block received[Queue::kMost];
  const std::uint32_t n = queue.pop(received, Queue::kMost);
  for (std::uint32_t i = 0; i < n; ++i) give(received[i], touch, tally);
  return n;
}

// A full queue is waited for with the own inbox kept flowing: two neighbours can never block each other.
void push_all(Queue& out, const Block* blocks, std::uint32_t count, Queue* inbox, Touch touch, Tally& tally,
              Wait wait = ::sched_yield) {
  for (std::uint32_t done = out.push(blocks, count); done < count; done += out.push(blocks + done, count - done))
    if (inbox == nullptr || drain(*inbox, touch, tally) == 0) wait();
}

void drain_to_end(Queue& queue, Touch touch, Tally& tally, Wait wait = ::sched_yield) {
  while (true) {
    const bool last = queue.closed();  // read before the pop: what was pushed before closing is seen by it
    if (drain(queue, touch, tally) != 0) continue;
    if (last) return;
    wait();
  }
}

constexpr std::size_t kHome = 400;  // `share`: blocks that a thread keeps live for itself

enum Pattern : unsigned { share, batch, fan_in, pipeline };

struct Course {
  std::uint64_t blocks;  // per producer
  std::uint32_t remote;  // percent
  std::uint32_t group;   // blocks handed over at a time
  Touch touch;
};

struct Drawn {
  std::uint32_t bytes;
  std::uint32_t other;  // below 100: freed elsewhere when below the share
};

void produce(const Course& course, const OwnArray<Drawn>& all, Queue& out, Queue* inbox, OwnArray<Block>& home,
             std::uint32_t number, Tally& tally) {
  Block group[Queue::kMost];
  std::uint32_t held = 0;
  for (std::uint64_t i = 0; i < course.blocks; ++i) {
    const Drawn& draw = all[i & (all.size() - 1)];
    Block made;
    take(made, draw.bytes, number++, course.touch, tally);
    if (made.at == nullptr) continue;
    if (draw.other < course.remote) {
      group[held++] = made;
      if (held == course.group) {
        push_all(out, group, held, inbox, course.touch, tally);
        held = 0;
      }
    } else {
      Block& old = home[i % home.size()];
      give(old, course.touch, tally);
      old = made;
    }
    if (inbox != nullptr && (i & 15) == 15) drain(*inbox, course.touch, tally);
  }
  push_all(out, group, held, inbox, course.touch, tally);
  out.close();
  for (auto& block : home) give(block, course.touch, tally);
}

void relay(Queue& in, Queue& out, Touch touch, Tally& tally) {
  Block received[Queue::kMost];
  while (true) {
    const bool last = in.closed();
    const std::uint32_t n = in.pop(received, Queue::kMost);
    for (std::uint32_t i = 0; i < n; ++i) inspect(received[i], touch, tally);
    push_all(out, received, n, nullptr, touch, tally);
    if (n != 0) continue;
    if (last) break;
    ::sched_yield();
  }
  out.close();
}

void collect(OwnArray<Queue>& queues, Touch touch, Tally& tally) {
  bool more = true;
  while (more) {
    more = false;
    std::uint32_t got = 0;
    for (std::size_t q = 1; q < queues.size(); ++q) {
      const bool last = queues[q].closed();
      const std::uint32_t n = drain(queues[q], touch, tally);
      got += n;
      more |= n != 0 || !last;
    }
    if (more && got == 0) ::sched_yield();
  }
}

void run_cross(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const auto pattern = static_cast<Pattern>(args.pick("pattern"));
  const auto [low, high] = args.range();
  const std::uint64_t producers = pattern == fan_in ? threads - 1 : pattern == pipeline ? 1 : threads;
  const Course course{args.number("blocks") / producers, pattern == share ? args.number32("remote") : 100,
                      pattern == batch ? Queue::kMost : 1, args.touch()};
  OwnArray<Queue> queues(threads);
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    const unsigned me = lane.index();
    Random random(args.number("seed"), me);
    const auto all = drawn(1u << 16, [&] { return Drawn{random.between(low, high), random.below(100)}; });
    OwnArray<Block> home(kHome);
    Queue& mine = queues[me];
    Queue& next = queues[(me + 1) % threads];
    const bool mutual = pattern == share || pattern == batch;
    lane.timed([&](Tally& tally) {
      if (pattern == fan_in && me == 0)
        collect(queues, course.touch, tally);
      else if (pattern == pipeline && me != 0 && me + 1 < threads)
        relay(mine, next, course.touch, tally);
      else if (pattern != pipeline || me == 0)
        produce(course, all, pattern == fan_in ? mine : next, mutual ? &mine : nullptr, home, me << 26, tally);
      if (mutual || (pattern == pipeline && me + 1 == threads)) drain_to_end(mine, course.touch, tally);
    });
  });
  report.add("blocks_per_second", timing.per_second(timing.allocations), "1/s", Better::higher, timing.allocations);
  add_timing(report, timing, threads);
  report.caveat("a thread that waits for a full or an empty queue yields: the time contains the scheduler's");
}

constexpr Param kCrossParams[] = {
    choice("pattern", "share", "share|batch|fan-in|pipeline",
           "share: a drawn share is freed by the next thread; batch: all of them, handed over 128 at a time; fan-in: "
           "thread 0 frees "
           "what the others allocate; pipeline: thread 0 allocates, those between verify and pass on, the last frees"),
    swept("threads", "2", 2, 1024, "", "threads"),
    integer("blocks", "2000000", 64, 10000000000, "", "blocks in all, shared by the producers"),
    integer("remote", "50", 0, 100, "%", "share: how many of the blocks are freed by the next thread"),
    integer("low", "16", 1, 16777216, "B", "the smallest block"),
    integer("high", "1024", 1, 16777216, "B", "the largest block"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

constexpr std::uint32_t kShort = 16;    // short blocks of a request
constexpr std::uint64_t kReplaces = 4;  // one request in so many replaces an entry

struct Entry {
  std::uint32_t slot;
  std::uint32_t bytes;
};

void run_server(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t requests = args.number("requests") / threads;
  const std::uint32_t remote = args.number32("remote");
  const std::size_t entries = args.number("entries");
  const Touch touch = args.touch();
  OwnArray<Queue> queues(threads);
  std::atomic<std::uint64_t> crossed{0};
  std::atomic<std::uint64_t> stored{0};
  double base = 0;
  double serving = 0;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    const unsigned me = lane.index();
    Random random(args.number("seed"), me);
    const ProgramSizes law(12);
    const auto all = drawn(1u << 14, [&] { return Drawn{law.draw(random), random.below(100)}; });
    const auto replacements = drawn(1u << 12, [&] { return Entry{random.below(entries), draw_band_size(random)}; });
    OwnArray<Block> store(entries);
    Queue& inbox = queues[me];
    Queue& next = queues[(me + 1) % threads];
    lane.alone([&] { base = resident_kib(); });
    lane.timed([&](Tally& tally) {
      Block blocks[kShort];
      Block away[kShort];
      std::uint64_t given = 0;
      std::uint32_t number = me << 26;
      for (std::uint64_t request = 0; request < requests; ++request) {
        const Drawn* draw = &all[request * kShort & (all.size() - 1)];
        std::uint32_t parting = 0;
        for (std::uint32_t i = 0; i < kShort; ++i) take(blocks[i], draw[i].bytes, number++, touch, tally);
        if (request % kReplaces == 0) {
          const Entry& e = replacements[request / kReplaces & (replacements.size() - 1)];
          give(store[e.slot], touch, tally);
          take(store[e.slot], e.bytes, number++, touch, tally);
        }
        for (std::uint32_t i = 0; i < kShort; ++i) {
          Block& block = blocks[i * 7 % kShort];  // 7 and 16 have no common divisor: every block once
          if (draw[i * 7 % kShort].other < remote && block.at != nullptr)
            away[parting++] = block;
          else
            give(block, touch, tally);
        }
        push_all(next, away, parting, &inbox, touch, tally, rest);
        given += parting;
        drain(inbox, touch, tally);
      }
      next.close();
      drain_to_end(inbox, touch, tally, rest);
      crossed += given;
    });
    for (const Block& block : store) stored += block.at != nullptr ? block.bytes : 0;
    lane.alone([&] { serving = resident_kib(); });
    for (auto& block : store) give(block, touch, lane.tally);
  });
  report.add("requests_per_second", timing.per_second(requests * threads), "1/s", Better::higher, requests * threads);
  report.add("crossed_frees", crossed.load(), "count", Better::neither);
  report.add("memory_over_live", (serving - base) * 1024 / static_cast<double>(stored + 1), "ratio", Better::lower);
  add_timing(report, timing, threads);
  report.caveat("memory_over_live is read when all requests are served: resident over what the stores hold");
}

constexpr Param kServerParams[] = {
    swept("threads", "4", 2, 1024, "", "threads that serve"),
    integer("requests", "200000", 64, 10000000000, "",
            "requests in all; each takes 16 short blocks, one in four replaces an entry"),
    integer("remote", "5", 0, 100, "%", "short blocks that the next thread frees"),
    integer("entries", "3000", 1, 10000000, "", "entries of each thread's store, 16 B to 32 KiB"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

void run_false_sharing(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  constexpr std::size_t kBytes = 8;
  const std::uint64_t rounds = args.number("rounds");
  const std::uint64_t writes = args.number("writes");
  const bool passive = args.pick("form") == 1;
  OwnArray<Block> handed(threads);
  if (passive)
    for (unsigned t = 0; t < threads; ++t) take(handed[t], kBytes, t, Touch::full, report.tally);
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    lane.timed([&](Tally& tally) {
      std::uint32_t number = (lane.index() + 1) << 24;
      if (passive) give(handed[lane.index()], Touch::full, tally);
      for (std::uint64_t round = 0; round < rounds; ++round) {
        Block block;
        take(block, kBytes, number++, Touch::full, tally);
        if (block.at == nullptr) continue;
        auto* cell = static_cast<volatile unsigned char*>(block.at);
        const auto first = *cell;
        for (std::uint64_t i = 0; i < writes; ++i) *cell = static_cast<unsigned char>(*cell + 1);
        *cell = first;  // give() verifies the block as take() made it
        give(block, Touch::full, tally);
      }
    });
  });
  report.add("write_ns", timing.ns_each(rounds * writes), "ns", Better::lower, rounds * writes);
  add_timing(report, timing, threads);
  if (threads == 1)
    report.caveat("one thread shares lines with nobody: this is the baseline to compare more threads with");
}

constexpr Param kFalseSharingParams[] = {
    choice("form", "active", "active|passive",
           "active: own blocks; passive: blocks handed out by the main thread are freed first"),
    swept("threads", "2", 1, 64, "", "threads that write at the same time"),
    integer("rounds", "2000", 1, 100000000, "", "blocks per thread, one after another"),
    integer("writes", "10000", 1, 100000000, "", "times that the first byte of a block is read and written"),
};

}  // namespace

const Workload kCross{"cross", "blocks freed by another thread: share, batch, fan-in, pipeline", kCrossParams,
                      run_cross};
const Workload kServer{"server", "requests with short and long blocks, some freed by another thread", kServerParams,
                       run_server};
const Workload kFalseSharing{"false-sharing", "threads writing to small blocks that may share a cache line",
                             kFalseSharingParams, run_false_sharing};

}  // namespace workload
