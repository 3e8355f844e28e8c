// Blocks on their way from one thread to another: a queue with a single producer and a single consumer.
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdint>

#include "block.h"
#include "own.h"

namespace workload {

class Queue {
 public:
  explicit Queue(std::uint32_t capacity) : cells_(capacity), mask_(capacity - 1) {}  // a power of two
  // Publishes as many of `blocks` as there is room for; answers how many.
  std::uint32_t push(const Block* blocks, std::uint32_t count) {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);  // relaxed: only this thread writes it
    const std::uint32_t room = mask_ + 1 - (head - tail_.load(std::memory_order_acquire));
    const std::uint32_t n = count < room ? count : room;
    for (std::uint32_t i = 0; i < n; ++i) cells_[(head + i) & mask_] = blocks[i];
    head_.store(head + n, std::memory_order_release);  // publishes the cells, and the blocks' contents, to the consumer
    return n;
  }
  std::uint32_t pop(Block* blocks, std::uint32_t count) {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);  // relaxed: only this thread writes it
    const std::uint32_t full = head_.load(std::memory_order_acquire) - tail;
    const std::uint32_t n = count < full ? count : full;
    for (std::uint32_t i = 0; i < n; ++i) blocks[i] = cells_[(tail + i) & mask_];
    tail_.store(tail + n, std::memory_order_release);  // hands the cells back to the producer
    return n;
  }
  void close() { closed_.store(true, std::memory_order_release); }  // after the last push
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  static constexpr std::uint32_t kMost = 128;  // blocks moved at a time

 private:
  OwnArray<Block> cells_;
  std::uint32_t mask_;
  alignas(64) std::atomic<std::uint32_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> tail_{0};
  alignas(64) std::atomic<bool> closed_{false};
};

// Frees what lies in the queue; answers how many blocks that were.
inline std::uint32_t drain(Queue& queue, Touch touch, Tally& tally) {
  Block received[Queue::kMost];
  const std::uint32_t n = queue.pop(received, Queue::kMost);
  for (std::uint32_t i = 0; i < n; ++i) give(received[i], touch, tally);
  return n;
}

// How a thread waits for another. `rest` uses no CPU time that the allocator would be charged with.
using Wait = int (*)();

inline int rest() {
  constexpr timespec kPause{0, 20'000};
  return ::nanosleep(&kPause, nullptr);
}

// A full queue is waited for with the own inbox kept flowing: two neighbours can never block each other.
inline void push_all(Queue& out, const Block* blocks, std::uint32_t count, Queue* inbox, Touch touch, Tally& tally,
                     Wait wait = ::sched_yield) {
  for (std::uint32_t done = out.push(blocks, count); done < count; done += out.push(blocks + done, count - done))
    if (inbox == nullptr || drain(*inbox, touch, tally) == 0) wait();
}

inline void drain_to_end(Queue& queue, Touch touch, Tally& tally, Wait wait = ::sched_yield) {
  while (true) {
    const bool last = queue.closed();  // read before the pop: what was pushed before closing is seen by it
    if (drain(queue, touch, tally) != 0) continue;
    if (last) return;
    wait();
  }
}

}  // namespace workload
