// What the torture program does to the heap: a worker is one thread's blocks and the calls on them.
//
// Every call is made with an errno that no call sets. What a worker checks is promised whatever the kernel refuses: a
// block holds what was written, zeroed memory is zero, a refusal is null with the errno of the manual, and leaves all
// as it was; success and free keep errno.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>

#include "freestone/freestone.h"
#include "support/random.h"

extern "C" {
void free_sized(void*, size_t);
void free_aligned_sized(void*, size_t, size_t);
void* mallocx(size_t, int);
void* rallocx(void*, size_t, int);
size_t xallocx(void*, size_t, size_t, int);
size_t sallocx(const void*, int);
void dallocx(void*, int);
void sdallocx(void*, size_t, int);
size_t nallocx(size_t, int);
int mallctl(const char*, void*, size_t*, void*, size_t);
int mallctlnametomib(const char*, size_t*, size_t*);
int mallctlbymib(const size_t*, size_t, void*, size_t*, void*, size_t);
void stand_in_lift();
}

// The program is linked to nothing of ours: the loader finds these in the library that is preloaded.
#define WEAK(name) _Pragma(WEAK_TEXT(weak name))
#define WEAK_TEXT(text) #text
// clang-format off
WEAK(freestone_flush_thread) WEAK(freestone_get_limits) WEAK(freestone_get_stats) WEAK(freestone_good_size)
WEAK(freestone_heap_allocate) WEAK(freestone_heap_allocate_aligned) WEAK(freestone_heap_allocate_zeroed)
WEAK(freestone_heap_create) WEAK(freestone_heap_deallocate) WEAK(freestone_heap_destroy)
WEAK(freestone_heap_get_stats) WEAK(freestone_heap_reallocate) WEAK(freestone_heap_usable_size)
WEAK(freestone_heap_validate) WEAK(freestone_heap_walk) WEAK(freestone_is_active) WEAK(freestone_leak_check)
WEAK(freestone_option_get) WEAK(freestone_option_set) WEAK(freestone_prof_dump) WEAK(freestone_prof_start)
WEAK(freestone_prof_stop) WEAK(freestone_set_callbacks) WEAK(freestone_set_limits) WEAK(freestone_stats_report)
WEAK(freestone_stats_write) WEAK(freestone_trim) WEAK(freestone_validate) WEAK(freestone_walk) WEAK(free_sized)
WEAK(free_aligned_sized) WEAK(mallocx) WEAK(rallocx) WEAK(xallocx) WEAK(sallocx) WEAK(dallocx) WEAK(sdallocx)
WEAK(nallocx) WEAK(mallctl) WEAK(mallctlnametomib) WEAK(mallctlbymib) WEAK(stand_in_lift)
    // clang-format on

    namespace torture {
  // Says where and what, and ends the process: nothing is known any more.
  [[noreturn]] void broken(const char* file, int line, const char* what, long number);
#define HOLDS(condition, what, number) \
  ((condition) ? void() : ::torture::broken(__FILE__, __LINE__, what, static_cast<long>(number)))

  inline constexpr int kUntouched = 77;

  // Whether the thread is in a call that a handler may interrupt and fork in.
  extern thread_local volatile sig_atomic_t inside;
  // Whether this is the child of a fork, where no other thread is: what threads share is not touched.
  extern volatile sig_atomic_t alone;
  // Whether to call what asks the kernel for more than glibc's malloc does: reports, limits, profiles.
  extern bool asks;

  template <typename Call>
  auto call(Call made) {
    struct Inside {
      Inside() { inside = 1; }
      ~Inside() { inside = 0; }
    } const now;
    errno = kUntouched;
    return made();
  }

  class Worker {
   public:
    explicit Worker(uint64_t seed) : random_(seed) {}
    ~Worker() { release_all(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void step();
    void release_all();

   private:
    enum class Kind : uint8_t { plain, aligned, paged, made, made_array, made_aligned, flagged };
    struct Block {
      unsigned char* start = nullptr;
      size_t size = 0;
      size_t alignment = 1;
      Kind kind = Kind::plain;
      unsigned char mark = 0;
    };
    struct Ask;
    struct Way;
    static const Way kWays[];
    static constexpr size_t kBlocks = 48;
    static Block exchange_[kBlocks];  // of all threads

    size_t draw_size();
    bool draw(unsigned one_in) { return random_.below(one_in) == 0; }
    void fill(Block& block);
    static void check(const Block& block, size_t bytes);
    void admit(Block& block, void* start, size_t size, size_t alignment, Kind kind, bool zeroed);
    void allocate(Block& block);
    static void* make_flagged(const Ask& ask, int flags);
    void resize(Block& block, size_t size);
    void release(Block& block);
    void ask_wrongly(Block& block);
    void pass(Block& block);
    void use_mapping();
    void use_heap_object();
    void use_arena();
    void look();
    void ask();

    freestone_test::Random random_;
    Block blocks_[kBlocks];
  };

}  // namespace torture
