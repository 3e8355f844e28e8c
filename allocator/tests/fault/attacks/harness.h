// The attack suite's harness: a shadow of the heap that knows every live block, and the markers that tell the runner
// how far a case came. The program knows no allocator: one is preloaded into it. Nothing here allocates; the shadow is
// static memory. One process runs one case once, on its first thread unless the case says otherwise.
//
// Markers, one line each on standard output, always by write(2):
//   @@ OWNER path          the object that serves malloc, before anything else happens
//   @@ FAULT               the next statement is the misuse (in a twin: the same statement without the bug)
//   @@ PAST                the misuse returned
//   @@ ATTACK_SUCCEEDED w  an effect on another object was observed; w says which. At most once
//   @@ NEUTRALISED         the case ran to its end and no effect was seen
//   @@ TWIN_OK             the twin ran to its end and every block kept its content
//   @@ NOT_APPLICABLE w    the process lacks what the case needs, for example free_sized
#pragma once

#include <cstddef>
#include <cstdint>

namespace attack {

using Byte = unsigned char;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMebibyte = std::size_t{1} << 20;

// Which sizes a case runs with. kAny: the size makes no difference, so the case counts once.
constexpr unsigned kSmall = 1;
constexpr unsigned kMedium = 2;
constexpr unsigned kLarge = 4;
constexpr unsigned kAny = 8;
constexpr unsigned kAll = kSmall | kMedium | kLarge;
constexpr unsigned kSlab = kSmall | kMedium;

class Random {  // splitmix64
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t state_;
};

// Where a block comes from, and so how it goes back.
enum class Source { kMalloc, kCalloc, kAligned, kPageAligned, kRealloc, kNew, kNewArray };

class World {
 public:
  World(std::size_t size, std::uint64_t seed, bool twin);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  std::size_t size() const { return size_; }
  unsigned size_class() const;
  Random& random() { return random_; }
  bool misuse() const { return !twin_; }

  // Blocks. `take` registers and fills; a refusal ends a twin (no sane allocator refuses these sizes).
  Byte* take(std::size_t bytes, Source source = Source::kMalloc);
  Byte* take() { return take(size_); }
  Byte* adopt(void* block, std::size_t bytes);   // registers and fills a block that the case obtained itself
  void give(void* block, Source source = Source::kMalloc);  // checks the content, unregisters, frees
  void forget(void* block);                      // unregisters: the case frees it itself
  void disregard(void* block);                   // its content is the case's business: only its place is watched
  bool is_live(const void* address) const;       // whether a live block starts there
  bool meets_live(const Byte* from, std::size_t bytes) const;

  // A heap in use: blocks of the case's size, mostly live, with a few holes. Returns a random live one.
  Byte* populate();
  Byte* neighbour_above(const Byte* block) const;  // the live block with the next higher address, or nullptr
  Byte* highest() const;

  // Memory of the attacker's choice that no allocator may hand out or write to.
  Byte* target() const;
  void seal_target() { watch(target() - kTargetReach, 2 * kTargetReach); }
  void watch(const Byte* from, std::size_t bytes);  // from here on, any change of it is an effect

  // Raw sequences that the shadow does not see: they only move the allocator's state.
  void churn(std::size_t pairs, std::size_t limit_bytes);  // malloc/free pairs of the case's size
  void churn(std::size_t pairs, std::size_t limit_bytes, std::size_t bytes);
  std::size_t bulk(std::size_t wanted) const;              // as many blocks as 4 MiB allow, at least 8
  void flush_class();  // allocates and frees `bulk(4096)` blocks; the aftermath then takes at least as many

  // Markers.
  void fault();
  void past();
  void effect(const char* what);
  [[noreturn]] void not_applicable(const char* why);
  [[noreturn]] void refused(const char* what);

  // Effects.
  void touched(const Byte* from, std::size_t bytes, const char* what);  // an effect when the range meets a live block
  void verify();     // every live block and the target keep their content
  void aftermath();  // the program goes on: allocate, check, free, allocate other sizes, check, free all
  int finish();      // prints the final marker; the process's exit status

  // Secrets: a previous owner's data, recognisable wherever it turns up.
  void write_secret(Byte* block, std::size_t bytes) const;
  bool holds_secret(const Byte* block, std::size_t bytes) const;

 private:
  struct Block {
    Byte* address;
    std::size_t bytes;
    std::uint64_t tag;
  };
  struct Watched {
    const Byte* from;
    std::size_t bytes;
    std::uint64_t sum;
  };
  static constexpr std::size_t kMaxBlocks = 8192;
  static constexpr std::size_t kMaxWatched = 4;
  static constexpr std::size_t kTargetReach = 8192;

  Block* find(const void* address);
  bool intact(const Block& block) const;
  void check_new(const Byte* block, std::size_t bytes);
  void drain(std::size_t count);
  static std::uint64_t sum_of(const Byte* from, std::size_t bytes);

  std::size_t size_;
  Random random_;
  bool twin_;
  bool effect_seen_ = false;
  Watched watched_[kMaxWatched] = {};
  std::size_t watching_ = 0;
  std::size_t freed_unseen_ = 0;  // blocks of the case's size that flush_class freed: the aftermath digs below them
  std::uint64_t secret_;
  std::uint64_t next_tag_;
  std::size_t live_ = 0;
  static Block blocks_[kMaxBlocks];
};

// An offset near the middle of a block at which its pattern, or a secret, stands.
std::size_t marked_middle(std::size_t bytes);

// What a row of a case table hands to its function.
struct Params {
  long distance = 0;
  int how = 0;
  long count = 0;
};

struct Case {
  const char* id;
  unsigned sizes;
  const char* about;
  void (*run)(World&, const Params&);
  Params params = {};
  unsigned apart_sizes = 0;            // sizes at which no allocator can be asked to see it without hardware
  const char* apart_reason = nullptr;
};

struct Family {
  const char* name;
  const char* neutralised;  // what counts as neutralised
  const Case* cases;
  std::size_t count;
};

extern const Family kDoubleFree, kInvalidFree, kOverflow, kUnderflow, kUseAfterFree, kUninitialised, kMismatch,
    kZeroSize, kMetadata, kRealloc, kArithmetic, kPredictability;

// The compiler loses track of where a pointer came from, so that it keeps every access and every call.
template <class T>
T* opaque(T* pointer) {
  asm volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}
template <class T>
T* at(std::uintptr_t address) {
  return opaque(reinterpret_cast<T*>(address));
}
inline std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// Stores and loads that no compiler merges and no interposed memcpy sees.
void poke(void* address, std::uint64_t word);
std::uint64_t peek(const void* address);
void dress(Byte* from, std::size_t bytes, std::size_t block_bytes);  // every word a plausible header of such a block
void flip(Byte* from, std::size_t bytes, Random& random);  // changes every byte of the range
unsigned peruse(const Byte* from, std::size_t bytes);      // reads every byte of the range

void* allocate(std::size_t bytes, Source source);
void release(void* block, Source source);

// Runs `body` in a fresh thread and waits for its end.
void in_thread(void (*body)(void*), void* argument);

// A second thread that stays alive and runs what it is given, one body at a time.
class Partner {
 public:
  Partner();
  ~Partner();
  Partner(const Partner&) = delete;
  Partner& operator=(const Partner&) = delete;
  void run(void (*body)(void*), void* argument);

 private:
  struct State;
  State* state_;
};

}  // namespace attack
