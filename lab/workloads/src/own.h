// Memory of the workload itself: tables, drawn numbers, the report. It comes from the kernel and never from malloc, so
// that nothing but the measured calls reaches the allocator, and a program still reports when malloc answers NULL.
// Tables are populated when made: their page faults are not part of a timed section, and their size is known exactly.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace workload {

inline std::atomic<std::size_t> own_bytes_now{0};  // mapped by tables
inline std::atomic<std::size_t> own_bytes_peak{0};

template <class T>
class OwnArray {
 public:
  OwnArray() = default;
  explicit OwnArray(std::size_t count) : count_(count) {
    if (count == 0) return;
    void* p = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
      std::fprintf(stderr, "freestone-workload: no memory for the program's own tables (%zu bytes)\n", bytes());
      ::_exit(1);
    }
    // Small pages, and flags unlike the allocator's: the kernel never merges this range with one of the allocator's.
    ::madvise(p, bytes(), MADV_NOHUGEPAGE);
    data_ = static_cast<T*>(p);
    for (std::size_t at = 0; at < bytes(); at += 4096) reinterpret_cast<volatile char*>(p)[at] = 0;
    const std::size_t now = own_bytes_now.fetch_add(bytes(), std::memory_order_relaxed) + bytes();
    std::size_t peak = own_bytes_peak.load(std::memory_order_relaxed);  // relaxed: a statistic
    while (peak < now && !own_bytes_peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  OwnArray(OwnArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  OwnArray& operator=(OwnArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  OwnArray(const OwnArray&) = delete;
  OwnArray& operator=(const OwnArray&) = delete;
  ~OwnArray() {
    if (data_ == nullptr) return;
    own_bytes_now.fetch_sub(bytes(), std::memory_order_relaxed);
    ::munmap(data_, bytes());
  }

  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + count_; }
  T* data() { return data_; }
  std::size_t size() const { return count_; }

 private:
  std::size_t bytes() const { return (count_ * sizeof(T) + 4095) / 4096 * 4096; }
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace workload
