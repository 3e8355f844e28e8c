// A short mixed use of the heap that expects failures: a null is counted, anything else that is wrong is named. It
// holds its own table outside the heap, so it goes on when nothing can be allocated.
#pragma once

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {

struct Exercise {
  unsigned nulls = 0;
  const char* broken = nullptr;

  bool sound() const { return broken == nullptr; }
};

class Exerciser {
 public:
  explicit Exerciser(uint64_t seed) : random_(seed) {}

  // Small, medium, large and aligned blocks, grown, shrunk, checked and freed; some hundred MiB at most, hardly
  // touched.
  Exercise run(int steps) {
    for (int i = 0; i < steps && result_.sound(); ++i) step();
    if (api().malloc_trim != nullptr) api().malloc_trim(0);
    for (Held& held : table_) release(held);
    return result_;
  }

 private:
  struct Held {
    unsigned char* start;
    size_t size;
    unsigned char mark;
  };
  static constexpr size_t kHeld = 128;

  size_t draw() {
    const uint64_t dice = random_.below(100);
    if (dice < 60) return 1 + random_.below(1024);
    if (dice < 85) return random_.log_uniform(1024, 65536);
    if (dice < 98) return random_.log_uniform(65536, 1 << 20);
    return random_.log_uniform(1 << 20, 64 << 20);
  }
  void break_with(const char* what) {
    if (result_.broken == nullptr) result_.broken = what;
  }
  void admit(Held& held, void* block, size_t size, bool zeroed) {
    held = Held{};
    if (block == nullptr) {
      ++result_.nulls;
      if (errno != ENOMEM) break_with("null without ENOMEM");
      return;
    }
    held = Held{static_cast<unsigned char*>(block), size, static_cast<unsigned char>(random_.below(256))};
    if (api().malloc_usable_size(block) < size) break_with("usable size below the request");
    if (zeroed && (held.start[0] != 0 || held.start[size - 1] != 0 || held.start[size / 2] != 0))
      break_with("calloc gave bytes that are not zero");
    mark(held);
  }
  // The first bytes, then one in every page or so, or in every 64 KiB of a large block.
  static size_t stride(size_t at) { return at < 64 ? 1 : at < (1 << 20) ? 1021 : 65537; }
  static void mark(const Held& held) {
    for (size_t i = 0; i < held.size; i += stride(i)) held.start[i] = held.mark;
    held.start[held.size - 1] = held.mark;
  }
  bool intact(const Held& held, size_t size) {
    for (size_t i = 0; i < size; i += stride(i))
      if (held.start[i] != held.mark) break_with("content changed");
    return result_.sound();
  }
  void release(Held& held) {
    if (held.start == nullptr) return;
    if (held.start[held.size - 1] != held.mark) break_with("content changed at the end");
    intact(held, held.size);
    errno = 77;
    api().free(held.start);
    if (errno != 77) break_with("free changed errno");
    held = Held{};
  }
  void step() {
    Held& held = table_[random_.below(kHeld)];
    const size_t size = draw();
    errno = 0;
    if (held.start == nullptr) {
      const uint64_t dice = random_.below(10);
      if (dice < 6) {
        admit(held, api().malloc(size), size, false);
      } else if (dice < 8) {
        admit(held, api().calloc(1, size), size, true);
      } else {
        void* block = nullptr;
        errno = api().posix_memalign(&block, size_t{16} << random_.below(17), size);
        admit(held, errno == 0 ? block : nullptr, size, false);
      }
    } else if (random_.below(3) == 0) {
      const size_t kept = held.size < size ? held.size : size;
      auto* moved = static_cast<unsigned char*>(api().realloc(held.start, size));
      if (moved == nullptr) {
        ++result_.nulls;
        if (errno != ENOMEM) break_with("null from realloc without ENOMEM");
        intact(held, held.size);
        return;
      }
      held.start = moved;
      intact(held, kept);
      held.size = size;
      mark(held);
    } else {
      release(held);
    }
  }

  Random random_;
  Held table_[kHeld] = {};
  Exercise result_;
};

// As the status of a process: 0 when nothing is wrong.
inline int exercise(uint64_t seed, int steps) { return Exerciser(seed).run(steps).sound() ? 0 : 1; }

// Threads that run `work(their number)` again and again until this ends.
class Background {
 public:
  template <typename Work>
  Background(size_t threads, Work work) {
    for (size_t i = 0; i < threads; ++i)
      threads_.emplace_back([this, work, i] {
        while (!stop_) work(i);
      });
  }
  ~Background() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace freestone_test
