// The shadow heap and the generic aftermath. See harness.h for the markers.
#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace attack {
namespace {

constexpr std::size_t kTargetBytes = 16 * 1024;
constexpr std::size_t kFullyFilled = 16 * 1024;  // larger blocks carry their pattern at both ends and in each page
constexpr std::size_t kEnd = 8 * 1024;
constexpr std::uint64_t kAnyContent = 0;  // the tag of a block that carries no pattern

alignas(kPage) Byte g_target[kTargetBytes];
void* g_bulk[4096];

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

// Calls body(offset, bytes) for the parts of a block that carry its pattern; offsets are multiples of 8.
template <class Body>
void for_parts(std::size_t bytes, Body body) {
  if (bytes <= kFullyFilled) {
    body(0, bytes);
    return;
  }
  body(0, kEnd);
  const std::size_t tail = (bytes - kEnd) & ~std::size_t{7};
  for (std::size_t offset = kEnd; offset + 16 <= tail; offset += kPage) body(offset, 16);
  body(tail, bytes - tail);
}

std::uint64_t word_at(std::uint64_t tag, std::size_t offset) {
  return (tag ^ offset) * 0x9e3779b97f4a7c15ULL;
}

Byte byte_at(std::uint64_t tag, std::size_t offset) {
  return static_cast<Byte>(word_at(tag, offset & ~std::size_t{7}) >> (8 * (offset & 7)));
}

void fill(Byte* block, std::size_t bytes, std::uint64_t tag) {
  for_parts(bytes, [&](std::size_t from, std::size_t length) {
    for (std::size_t i = from; i < from + length; i++) opaque(block)[i] = byte_at(tag, i);
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

Byte* World::target() const { return g_target + kTargetBytes / 2; }

std::uint64_t World::target_sum() const {
  std::uint64_t sum = 14695981039346656037ULL;
  for (const Byte byte : g_target) sum = (sum ^ byte) * 1099511628211ULL;
  return sum;
}

void World::seal_target() {
  target_sealed_ = true;
  target_sum_ = target_sum();
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

bool World::intact(const Block& block) const {
  if (block.tag == kAnyContent) return true;
  bool same = true;
  for_parts(block.bytes, [&](std::size_t from, std::size_t length) {
    for (std::size_t i = from; i < from + length; i++) same = same && opaque(block.address)[i] == byte_at(block.tag, i);
  });
  return same;
}

// A block just handed out must be aligned and must meet neither a live block nor the attacker's target.
void World::check_new(const Byte* block, std::size_t bytes) {
  const std::uintptr_t from = address_of(block);
  const std::uintptr_t to = from + (bytes > 0 ? bytes : 1);
  if (from % (bytes >= 16 ? 16 : 8) != 0) effect("a misaligned block was handed out");
  if (from < address_of(g_target) + kTargetBytes && to > address_of(g_target)) effect("the attacker's target was handed out");
  for (std::size_t i = 0; i < live_; i++) {
    const std::uintptr_t other = address_of(blocks_[i].address);
    if (from < other + blocks_[i].bytes && to > other) {
      effect("a block that overlaps a live block was handed out");
      return;
    }
  }
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
  const std::size_t count = kind == kSmall ? 96 + random_.below(64) : kind == kMedium ? 32 + random_.below(16) : 6 + random_.below(3);
  const std::size_t first = live_;
  for (std::size_t i = 0; i < count; i++)
    if (take() == nullptr) refused("a block of the heap in use");
  const std::size_t holes = kind == kLarge ? 0 : count / 16;
  for (std::size_t i = 0; i < holes; i++) give(blocks_[first + random_.below(live_ - first)].address);
  return blocks_[first + random_.below(live_ - first)].address;
}

Byte* World::neighbour_above(const Byte* block) const {
  Byte* best = nullptr;
  for (std::size_t i = 0; i < live_; i++) {
    Byte* const other = blocks_[i].address;
    if (address_of(other) > address_of(block) && (best == nullptr || address_of(other) < address_of(best))) best = other;
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
  const std::size_t count = bulk(sizeof g_bulk / sizeof g_bulk[0]);
  for (std::size_t i = 0; i < count; i++) g_bulk[i] = ::malloc(size_);
  for (std::size_t i = 0; i < count; i++) ::free(g_bulk[i]);
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
  for (std::size_t i = 0; i < live_; i++) {
    const std::uintptr_t other = address_of(blocks_[i].address);
    if (address_of(from) < other + blocks_[i].bytes && address_of(from) + bytes > other) {
      effect(what);
      return;
    }
  }
}

void World::verify() {
  for (std::size_t i = 0; i < live_; i++)
    if (!intact(blocks_[i])) effect("a live block was changed");
  if (target_sealed_ && target_sum() != target_sum_) effect("the allocator wrote to an address of the attacker's choice");
}

void World::aftermath() {
  const unsigned kind = size_class();
  const std::size_t same = kind == kSmall ? 256 : kind == kMedium ? 48 : 6;
  verify();
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
    for (std::size_t i = from; i < from + length; i++) opaque(block)[i] = static_cast<Byte>(secret_ >> (8 * (i & 7)));
  });
}

// Four bytes of the secret in a row, at any of its eight phases, are no accident: one in 2^29 per place looked at.
bool World::holds_secret(const Byte* block, std::size_t bytes) const {
  bool found = false;
  for_parts(bytes, [&](std::size_t from, std::size_t length) {
    for (std::size_t phase = 0; phase < 8; phase++) {
      std::size_t run = 0;
      for (std::size_t i = from; i < from + length && !found; i++) {
        run = opaque(block)[i] == static_cast<Byte>(secret_ >> (8 * ((i + phase) & 7))) ? run + 1 : 0;
        found = run >= 4;
      }
    }
  });
  return found;
}

}  // namespace attack
