// `cross`: blocks that one thread allocates and another frees. Each thread has one inbox, a single-producer
// single-consumer queue that its neighbour fills (in `fan-in`, thread 0 reads the queues of all others).
//   share     a drawn share of a thread's frees goes to the next thread, the others are freed at home
//   batch     every block goes to the next thread, handed over 128 at a time
//   fan-in    thread 0 frees what all others allocate
//   pipeline  thread 0 allocates, the threads between verify and pass on, the last one frees
#include <sched.h>

#include <new>

#include "laws.h"
#include "queue.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

enum Pattern : unsigned { share, batch, fan_in, pipeline };

constexpr std::uint32_t kMost = Queue::kMost;

struct Course {
  Pattern pattern;
  std::uint64_t blocks;  // per producer
  std::uint32_t remote;  // percent
  std::uint32_t group;   // blocks handed over at a time
  Touch touch;
  OwnArray<Queue> queues;
};

struct Drawn {
  std::uint32_t bytes;
  std::uint32_t remote;
};

void produce(Course& course, const OwnArray<Drawn>& drawn, Queue& out, Queue* inbox, OwnArray<Block>& home,
             std::uint32_t number, Tally& tally) {
  Block group[kMost];
  std::uint32_t held = 0;
  const std::size_t mask = drawn.size() - 1;
  for (std::uint64_t i = 0; i < course.blocks; ++i) {
    const Drawn& draw = drawn[i & mask];
    Block made;
    take(made, draw.bytes, number++, course.touch, tally);
    if (made.at == nullptr) continue;
    if (draw.remote < course.remote) {
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
  Block received[kMost];
  while (true) {
    const bool last = in.closed();
    const std::uint32_t n = in.pop(received, kMost);
    for (std::uint32_t i = 0; i < n; ++i) inspect(received[i], touch, tally);
    push_all(out, received, n, nullptr, touch, tally);
    if (n != 0) continue;
    if (last) break;
    ::sched_yield();
  }
  out.close();
}

void collect(Course& course, Tally& tally) {
  bool more = true;
  while (more) {
    more = false;
    std::uint32_t got = 0;
    for (std::size_t q = 1; q < course.queues.size(); ++q) {
      const bool last = course.queues[q].closed();
      const std::uint32_t n = drain(course.queues[q], course.touch, tally);
      got += n;
      more |= n != 0 || !last;
    }
    if (more && got == 0) ::sched_yield();
  }
}

void run_cross(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const auto pattern = static_cast<Pattern>(args.pick("pattern"));
  if (threads < 2) usage_error("cross", "--threads=%u: expected at least 2", threads);
  const std::uint64_t low = args.number("low");
  const std::uint64_t high = args.number("high");
  if (low > high)
    usage_error("cross", "--low=%llu: expected at most --high=%llu", static_cast<unsigned long long>(low),
                static_cast<unsigned long long>(high));
  const std::uint64_t capacity = args.number("queue");
  if ((capacity & (capacity - 1)) != 0)
    usage_error("cross", "--queue=%llu: expected a power of two", static_cast<unsigned long long>(capacity));
  const std::uint64_t producers = pattern == fan_in ? threads - 1 : pattern == pipeline ? 1 : threads;
  Course course{pattern,
                args.number("blocks") / producers,
                pattern == share ? static_cast<std::uint32_t>(args.number("remote")) : 100,
                pattern == batch ? kMost : 1,
                static_cast<Touch>(args.pick("touch")),
                OwnArray<Queue>(threads)};
  for (auto& queue : course.queues) new (&queue) Queue(static_cast<std::uint32_t>(capacity));
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    const unsigned me = lane.index();
    Random random(args.number("seed"), me);
    OwnArray<Drawn> drawn(1u << 16);
    for (auto& draw : drawn) draw = {random.between(low, high), random.below(100)};
    OwnArray<Block> home(args.number("home"));
    lane.start();
    Tally tally;
    const std::uint32_t number = me << 26;
    Queue& mine = course.queues[me];
    if (pattern == share || pattern == batch) {
      Queue& next = course.queues[(me + 1) % threads];
      produce(course, drawn, next, &mine, home, number, tally);
      drain_to_end(mine, course.touch, tally);
    } else if (pattern == fan_in) {
      if (me == 0) collect(course, tally);
      else produce(course, drawn, mine, nullptr, home, number, tally);
    } else {
      if (me == 0) produce(course, drawn, course.queues[1], nullptr, home, number, tally);
      else if (me + 1 < threads) relay(mine, course.queues[me + 1], course.touch, tally);
      else drain_to_end(mine, course.touch, tally);
    }
    lane.tally.add(tally);
    lane.stop();
  });
  for (auto& queue : course.queues) queue.~Queue();
  report.add("blocks_per_second", static_cast<double>(timing.allocations) / timing.seconds, "1/s", Better::higher,
             timing.allocations);
  add_timing(report, timing, threads);
  report.caveat("a thread that waits for a full or an empty queue yields: the time contains the scheduler's");
}

constexpr Param kParams[] = {
    choice("pattern", "share", "share|batch|fan-in|pipeline",
           "share: a drawn share is freed by the next thread; batch: all of them, handed over 128 at a time; fan-in: "
           "thread 0 frees "
           "what the others allocate; pipeline: thread 0 allocates, those between verify and pass on, the last frees"),
    swept("threads", "2", 2, 1024, "", "threads"),
    integer("blocks", "2000000", 64, 10000000000, "", "blocks in all, shared by the producers"),
    integer("remote", "50", 0, 100, "%", "share: how many of the blocks are freed by the next thread"),
    integer("low", "16", 1, 16777216, "B", "the smallest block"),
    integer("high", "1024", 1, 16777216, "B", "the largest block"),
    integer("home", "400", 1, 1000000, "", "share: blocks that a thread keeps live for itself"),
    integer("queue", "1024", 128, 1 << 20, "", "capacity of a queue, a power of two"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kCross{"cross", "blocks freed by another thread: share, batch, fan-in, pipeline", kParams, run_cross};

}  // namespace workload
