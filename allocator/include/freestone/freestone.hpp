// Freestone for C++20: heap objects as values, memory resources and standard allocators. Header only, over freestone.h.
//
//   freestone::Heap heap(64 << 20);                       a heap with a limit, freed as a whole
//   std::pmr::vector<int> v(heap.resource());             containers in it
//   std::vector<int, freestone::allocator<int>> w;        containers in the process heap
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <new>
#include <type_traits>

#include "freestone/freestone.h"

namespace freestone {

// The process heap, or a heap object that outlives it, as a std::pmr::memory_resource. Those of the same heap are
// equal.
class memory_resource final : public std::pmr::memory_resource {
 public:
  explicit memory_resource(freestone_heap* heap = nullptr) noexcept : heap_(heap) {}

  // Of the process heap, for everybody, alive until the process ends.
  static memory_resource* instance() noexcept {
    static memory_resource only;
    return &only;
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* block = nullptr;
    if (heap_ != nullptr) {
      block = freestone_heap_allocate_aligned(heap_, bytes, alignment);
    } else if (alignment <= alignof(std::max_align_t)) {
      block = std::malloc(bytes);
    } else if (::posix_memalign(&block, alignment, bytes) != 0) {
      block = nullptr;
    }
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override {
    if (heap_ != nullptr) {
      freestone_heap_deallocate(heap_, block);
    } else {
      std::free(block);
    }
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* resource = dynamic_cast<const memory_resource*>(&other);
    return resource != nullptr && resource->heap_ == heap_;
  }

  freestone_heap* heap_;
};

// A bounded heap. Any thread may use it; whoever destroys it must be the last.
class Heap {
 public:
  // limit_bytes 0: none. Throws std::bad_alloc when there is no memory for the heap itself.
  explicit Heap(std::size_t limit_bytes = 0) : heap_(freestone_heap_create(limit_bytes)), resource_(heap_) {
    if (heap_ == nullptr) throw std::bad_alloc();
  }
  ~Heap() { freestone_heap_destroy(heap_); }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Null when the limit is reached.
  [[nodiscard]] void* allocate(std::size_t bytes) noexcept { return freestone_heap_allocate(heap_, bytes); }
  [[nodiscard]] void* allocate_aligned(std::size_t bytes, std::size_t alignment) noexcept {
    return freestone_heap_allocate_aligned(heap_, bytes, alignment);
  }
  [[nodiscard]] void* reallocate(void* block, std::size_t bytes) noexcept {
    return freestone_heap_reallocate(heap_, block, bytes);
  }
  void deallocate(void* block) noexcept { freestone_heap_deallocate(heap_, block); }
  [[nodiscard]] std::size_t usable_size(const void* block) const noexcept {
    return freestone_heap_usable_size(heap_, block);
  }

  [[nodiscard]] freestone_heap_stats stats() const noexcept {
    freestone_heap_stats result{};
    result.version = FREESTONE_HEAP_STATS_VERSION;
    freestone_heap_get_stats(heap_, &result);
    return result;
  }
  [[nodiscard]] bool is_valid() const noexcept { return freestone_heap_validate(heap_) == 0; }
  // Calls visit(void* block, std::size_t bytes) for each live block; returns how many there were. visit may not throw.
  template <typename Visit>
  std::size_t for_each(Visit&& visit) const {
    return freestone_heap_walk(
        heap_,
        [](void* context, void* block, std::size_t bytes) {
          (*static_cast<std::remove_reference_t<Visit>*>(context))(block, bytes);
          return 1;
        },
        &visit);
  }
  [[nodiscard]] std::size_t live_blocks() const noexcept { return static_cast<std::size_t>(stats().live_blocks); }

  // For std::pmr containers; throws std::bad_alloc at the limit. Lives as long as the heap.
  [[nodiscard]] std::pmr::memory_resource* resource() noexcept { return &resource_; }
  [[nodiscard]] freestone_heap* handle() const noexcept { return heap_; }

 private:
  freestone_heap* heap_;
  memory_resource resource_;
};

// A standard allocator over the process heap.
template <typename T>
class allocator {
 public:
  using value_type = T;
  using is_always_equal = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;

  constexpr allocator() noexcept = default;
  template <typename U>
  constexpr allocator(const allocator<U>&) noexcept {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(memory_resource::instance()->allocate(count * sizeof(T), alignof(T)));
  }
  void deallocate(T* block, std::size_t count) noexcept {
    memory_resource::instance()->deallocate(block, count * sizeof(T), alignof(T));
  }

  template <typename U>
  friend constexpr bool operator==(const allocator&, const allocator<U>&) noexcept {
    return true;
  }
};

// A standard allocator over a heap object, which must outlive it.
template <typename T>
class heap_allocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  explicit heap_allocator(Heap& heap) noexcept : heap_(heap.handle()) {}
  template <typename U>
  heap_allocator(const heap_allocator<U>& other) noexcept : heap_(other.heap_) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    void* block = freestone_heap_allocate_aligned(heap_, count * sizeof(T), alignof(T) > 16 ? alignof(T) : 16);
    if (block == nullptr) throw std::bad_alloc();
    return static_cast<T*>(block);
  }
  void deallocate(T* block, std::size_t) noexcept { freestone_heap_deallocate(heap_, block); }

  template <typename U>
  friend bool operator==(const heap_allocator& a, const heap_allocator<U>& b) noexcept {
    return a.heap_ == b.heap_;
  }

 private:
  template <typename U>
  friend class heap_allocator;
  freestone_heap* heap_;
};

}  // namespace freestone
