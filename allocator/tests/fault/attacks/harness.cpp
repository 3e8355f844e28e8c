// The shadow heap and the generic aftermath. See harness.h for the markers.
#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

namespace attack {
namespace {

// A larger block carries its pattern at both ends and in at most 16 places between.
constexpr std::size_t kFullyFilled = 2048;
constexpr std::size_t kEnd = 1024;
constexpr std::uint64_t kAnyContent = 0;  // the tag of a block that carries no pattern

alignas(kPage) Byte g_target[16 * 1024];
Byte* g_bulk[8192];
constexpr std::size_t kFlushed = 4096;

void mark(const char* word, const char* detail = "") {
  char line[256];
  std::size_t length = 0;
  auto append = [&](const char* text) {
    while (*text != '\0' && length + 2 < sizeof line) line[length++] = *text++;
  };
  append("@@ ");
  append(word);
  if (*detail != '\0') append(" ");
  append(detail);
  line[length++] = '\n';
  if (::write(STDOUT_FILENO, line, length) < 0) ::_exit(5);
}

std::size_t stride_of(std::size_t bytes) { return kEnd * (bytes / (16 * kEnd) + 1); }

// Calls body(offset, bytes) for the parts of a block that carry its pattern; offsets are multiples of 8.
template <class Body>
void for_parts(std::size_t bytes, Body body) {
  if (bytes <= kFullyFilled) {
    body(0, bytes);
    return;
  }
  body(0, kEnd);
  const std::size_t tail = (bytes - kEnd) & ~std::size_t{7};
  for (std::size_t offset = kEnd; offset + 16 <= tail; offset += stride_of(bytes)) body(offset, 16);
  body(tail, bytes - tail);
}

std::uint64_t word_at(std::uint64_t tag, std::size_t offset) {
  return (tag ^ offset) * 0x9e3779b97f4a7c15ULL;
}

// Calls body(place, word, bytes) for each word of a part; the last one may have fewer than 8 bytes.
template <class Body>
void for_words(Byte* block, std::size_t bytes, std::uint64_t tag, Body body) {
  for_parts(bytes, [&](std::size_t from, std::size_t length) {
    Byte* const start = opaque(block);
    std::size_t i = from;
    for (; i + 8 <= from + length; i += 8) body(start + i, word_at(tag, i), 8);
    if (i < from + length) body(start + i, word_at(tag, i), from + length - i);
  });
}

void fill(Byte* block, std::size_t bytes, std::uint64_t tag) {
  for_words(block, bytes, tag, [](Byte* place, std::uint64_t word, std::size_t count) {
    __builtin_memcpy(place, &word, 8 < count ? 8 : count);
  });
}

}  // namespace

World::Block World::blocks_[World::kMaxBlocks];

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

World::World(std::size_t size, std::uint64_t seed, bool twin)
    : size_(size), random_(seed * 2654435761U + 1), twin_(twin), secret_(random_.next() | 0x0101010101010101ULL),
      next_tag_(random_.next()) {}

unsigned World::size_class() const {
  return size_ <= 1000 ? kSmall : size_ <= 32768 ? kMedium : kLarge;
}

std::size_t marked_middle(std::size_t bytes) {
  if (bytes <= kFullyFilled) return bytes / 2 & ~std::size_t{7};
  return kEnd + (bytes / 2 - kEnd) / stride_of(bytes) * stride_of(bytes);
}

Byte* World::target() const { return g_target + kTargetReach; }

std::uint64_t World::sum_of(const Byte* from, std::size_t bytes) {
  std::uint64_t sum = 14695981039346656037ULL;
  const Byte* const start = opaque(from);
  for (std::size_t i = 0; i < bytes; i++) sum = (sum ^ start[i]) * 1099511628211ULL;
  return sum;
}

// Watching the same memory again takes its present content as right.
void World::watch(const Byte* from, std::size_t bytes) {
  std::size_t slot = 0;
  while (slot < watching_ && watched_[slot].from != from) slot++;
  if (slot == kMaxWatched) refused("a place for watched memory");
  watched_[slot] = {from, bytes, sum_of(from, bytes)};
  if (slot == watching_) watching_++;
}

// ---- blocks

World::Block* World::find(const void* address) {
  for (std::size_t i = live_; i-- > 0;)
    if (blocks_[i].address == address) return &blocks_[i];
  return nullptr;
}

bool World::is_live(const void* address) const {
  for (std::size_t i = 0; i < live_; i++)
    if (blocks_[i].address == address) return true;
  return false;
}

bool World::meets_live(const Byte* from, std::size_t bytes) const {
  for (std::size_t i = 0; i < live_; i++)
    if (address_of(from) < address_of(blocks_[i].address) + blocks_[i].bytes &&
        address_of(from) + bytes > address_of(blocks_[i].address))
      return true;
  return false;
}

bool World::intact(const Block& block) const {
  if (block.tag == kAnyContent) return true;
  bool same = true;
  for_words(block.address, block.bytes, block.tag, [&](Byte* place, std::uint64_t word, std::size_t count) {
    std::uint64_t found = word;
    __builtin_memcpy(&found, place, count);
    same = same && found == word;
  });
  return same;
}

// A block just handed out must be aligned and must meet neither a live block nor the attacker's target.
void World::check_new(const Byte* block, std::size_t bytes) {
  const std::uintptr_t from = address_of(block);
  const std::uintptr_t to = from + (bytes > 0 ? bytes : 1);
  if (from % (bytes >= 16 ? 16 : 8) != 0) effect("a misaligned block was handed out");
  for (std::size_t i = 0; i < watching_; i++)
    if (from < address_of(watched_[i].from) + watched_[i].bytes && to > address_of(watched_[i].from))
      effect("memory of the attacker's choice was handed out");
  if (meets_live(block, to - from)) effect("a block that overlaps a live block was handed out");
}

Byte* World::adopt(void* block, std::size_t bytes) {
  Byte* const address = static_cast<Byte*>(block);
  if (address == nullptr) {
    if (twin_) refused("an allocation");
    return nullptr;
  }
  check_new(address, bytes);
  if (live_ == kMaxBlocks) refused("a place in the shadow heap");
  blocks_[live_] = {address, bytes, next_tag_++};
  fill(address, bytes, blocks_[live_].tag);
  live_++;
  return address;
}

Byte* World::take(std::size_t bytes, Source source) { return adopt(allocate(bytes, source), bytes); }

void World::forget(void* block) {
  if (Block* const found = find(block)) *found = blocks_[--live_];
}

void World::give(void* block, Source source) {
  if (block == nullptr) return;
  Block* const found = find(block);
  if (found == nullptr) return;
  if (!intact(*found)) effect("a live block was changed");
  forget(block);
  release(block, source);
}

void World::disregard(void* block) {
  if (Block* const found = find(block)) found->tag = kAnyContent;
}

Byte* World::populate() {
  const unsigned kind = size_class();
  const std::size_t count = kind == kSmall    ? 96 + random_.below(64)
                            : kind == kMedium ? 32 + random_.below(16)
                                              : 6 + random_.below(3);
  const std::size_t first = live_;
  for (std::size_t i = 0; i < count; i++)
    if (take() == nullptr) refused("a block of the heap in use");
  const std::size_t holes = kind == kLarge ? 0 : random_.below(count / 8);
  for (std::size_t i = 0; i < holes; i++) give(blocks_[first + random_.below(live_ - first)].address);
  return blocks_[first + random_.below(live_ - first)].address;
}

Byte* World::neighbour_above(const Byte* block) const {
  Byte* best = nullptr;
  for (std::size_t i = 0; i < live_; i++) {
    Byte* const other = blocks_[i].address;
    if (address_of(other) > address_of(block) && (best == nullptr || address_of(other) < address_of(best)))
      best = other;
  }
  return best;
}

Byte* World::highest() const {
  Byte* best = nullptr;
  for (std::size_t i = 0; i < live_; i++)
    if (best == nullptr || address_of(blocks_[i].address) > address_of(best)) best = blocks_[i].address;
  return best;
}

// ---- raw sequences

void World::churn(std::size_t pairs, std::size_t limit_bytes, std::size_t bytes) {
  const std::size_t most = limit_bytes / bytes + 1;
  for (std::size_t i = 0; i < (pairs < most ? pairs : most); i++) {
    Byte* const block = static_cast<Byte*>(opaque(::malloc(bytes)));
    if (block != nullptr) *opaque(block) = static_cast<Byte>(i);
    ::free(block);
  }
}

void World::churn(std::size_t pairs, std::size_t limit_bytes) { churn(pairs, limit_bytes, size_); }

std::size_t World::bulk(std::size_t wanted) const {
  const std::size_t fitting = 4 * kMebibyte / size_ + 8;
  return wanted < fitting ? wanted : fitting;
}

void World::flush_class() {
  const std::size_t count = bulk(kFlushed);
  for (std::size_t i = 0; i < count; i++) g_bulk[i] = static_cast<Byte*>(::malloc(size_));
  for (std::size_t i = 0; i < count; i++) ::free(g_bulk[i]);
  freed_unseen_ = count;
}

// Takes `count` blocks, untouched, and looks for one that was handed out twice or that lies where it must not.
void World::drain(std::size_t count) {
  std::size_t got = 0;
  for (std::size_t i = 0; i < count; i++) {
    g_bulk[got] = static_cast<Byte*>(opaque(::malloc(size_)));
    if (g_bulk[got] == nullptr) break;
    got++;
  }
  std::sort(g_bulk, g_bulk + got);
  for (std::size_t i = 0; i < got; i++) {
    if (i > 0 && g_bulk[i - 1] + size_ > g_bulk[i]) effect("one block was handed out twice");
    check_new(g_bulk[i], size_);
    if (effect_seen_) return;  // what overlaps is not freed: the damage is shown
  }
  for (std::size_t i = 0; i < got; i++) ::free(g_bulk[i]);
}

// ---- markers

void World::fault() { mark("FAULT"); }
void World::past() { mark("PAST"); }

void World::effect(const char* what) {
  if (effect_seen_) return;
  effect_seen_ = true;
  mark("ATTACK_SUCCEEDED", what);
}

void World::not_applicable(const char* why) {
  mark("NOT_APPLICABLE", why);
  ::_exit(0);
}

void World::refused(const char* what) {
  mark("REFUSED", what);
  ::_exit(4);
}

// ---- effects

void World::touched(const Byte* from, std::size_t bytes, const char* what) {
  if (meets_live(from, bytes)) effect(what);
}

void World::verify() {
  for (std::size_t i = 0; i < live_; i++)
    if (!intact(blocks_[i])) effect("a live block was changed");
  for (std::size_t i = 0; i < watching_; i++)
    if (sum_of(watched_[i].from, watched_[i].bytes) != watched_[i].sum)
      effect("the allocator wrote to memory of the attacker's choice");
}

void World::aftermath() {
  const unsigned kind = size_class();
  const std::size_t same = kind == kSmall ? 256 : kind == kMedium ? 48 : 24;
  verify();
  if (freed_unseen_ > 0) drain(freed_unseen_ + 512);
  for (std::size_t i = 0; i < same; i++) {
    if (i % 4 == 3) {
      Byte* const zeroed = static_cast<Byte*>(opaque(::calloc(1, size_)));
      if (zeroed == nullptr) continue;
      bool zero = true;
      for_parts(size_, [&](std::size_t from, std::size_t length) {
        for (std::size_t k = from; k < from + length; k++) zero = zero && zeroed[k] == 0;
      });
      if (!zero) effect("calloc handed out a block that is not zero");
      adopt(zeroed, size_);
    } else {
      take();
    }
  }
  verify();
  // Half of what lives goes, so that a damaged header or bit of another block comes into play.
  for (std::size_t i = live_ / 2; i > 0; i--) give(blocks_[random_.below(live_)].address);
  static constexpr std::size_t kSteps[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256};
  const std::size_t each = kind == kLarge ? 1 : 3;
  for (const std::size_t step : kSteps) {
    if (kind == kLarge && step > 64) break;
    for (std::size_t i = 0; i < each; i++) {
      take(size_ + step);
      if (kind != kLarge && size_ > step + 8) take(size_ - step);
    }
  }
  take(size_ / 2 + 1);
  take(2 * size_);
  verify();
  while (live_ > 0) give(blocks_[random_.below(live_)].address);
  verify();
}

int World::finish() {
  if (!effect_seen_) mark(twin_ ? "TWIN_OK" : "NEUTRALISED");
  return effect_seen_ ? 10 : 0;
}

// ---- secrets

void World::write_secret(Byte* block, std::size_t bytes) const {
  for_parts(bytes, [&](std::size_t from, std::size_t length) {
    Byte* const start = opaque(block);
    for (std::size_t i = from; i < from + length; i++) start[i] = static_cast<Byte>(secret_ >> (8 * (i & 7)));
  });
}

// Blocks and the parts they are filled in start at multiples of eight, so the secret's phase is the address's. Four of
// its bytes at an address that is a multiple of four are no accident: one in 2^32 per place looked at.
bool World::holds_secret(const Byte* block, std::size_t bytes) const {
  bool found = false;
  for_parts(bytes, [&](std::size_t from, std::size_t length) {
    const Byte* const first = block + from;
    for (std::uintptr_t place = (address_of(first) + 3) & ~std::uintptr_t{3}; place + 4 <= address_of(first) + length;
         place += 4) {
      const std::uint32_t wanted = static_cast<std::uint32_t>(secret_ >> (8 * (place & 4)));
      found = found || *at<const std::uint32_t>(place) == wanted;
    }
  });
  return found;
}

}  // namespace attack
