#include "model/player.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "support/subject.h"

namespace freestone_test {
namespace {

unsigned char* bytes(void* block) { return static_cast<unsigned char*>(block); }

void* posix_memalign_or_null(size_t alignment, size_t size) {
  void* block = nullptr;
  return api().posix_memalign(&block, alignment, size) == 0 ? block : nullptr;
}

}  // namespace

Block Exchange::swap(Random& random, const Block& block) {
  Slot& slot = slots_[random.below(std::size(slots_))];
  while (slot.busy.test_and_set(std::memory_order_acquire)) {
  }
  const Block found = slot.block;
  slot.block = block;
  slot.busy.clear(std::memory_order_release);
  return found;
}

Player::Player(const Law& law, uint64_t seed, uint64_t id_base, Exchange* exchange, bool exact)
    : law_(law), random_(seed), next_id_(id_base), exchange_(exchange), exact_(exact), table_(law.live_blocks) {}

bool Player::fail(const char* promise, const Block& block) {
  char text[256];
  std::snprintf(text, sizeof text,
                "%s: block %p, size %zu, requested %zu, alignment %zu, origin %d, law %s, operation %llu", promise,
                static_cast<void*>(block.start), block.size, block.requested, block.alignment,
                static_cast<int>(block.origin), law_.name, static_cast<unsigned long long>(operations_));
  failure_ = text;
  return false;
}

void Player::note(const Block& block) {
  if (exact_)
    intervals_[reinterpret_cast<uintptr_t>(block.start)] =
        reinterpret_cast<uintptr_t>(block.start) + std::max<size_t>(block.size, 1);
}

void Player::forget(const Block& block) {
  if (exact_) intervals_.erase(reinterpret_cast<uintptr_t>(block.start));
}

// Takes a fresh block into the model: everything that must hold at birth.
bool Player::admit(Block& block, size_t alignment, bool zeroed) {
  block.alignment = alignment;
  if (block.start == nullptr) return fail("an allocation returned null", block);
  const auto address = reinterpret_cast<uintptr_t>(block.start);
  if (address % std::max<size_t>(alignment, block.requested >= 16 ? 16 : 8) != 0) return fail("misaligned", block);
  const size_t usable = api().malloc_usable_size(block.start);
  if (usable < block.requested) return fail("usable size below the request", block);
  if (zeroed && !all_zero(block.start, block.requested)) return fail("calloc gave a block that is not zero", block);
  // One block in eight is used to its usable size: that memory is the caller's as well.
  block.size = random_.below(8) == 0 ? usable : block.requested;
  block.id = next_id_++;
  if (exact_) {
    const auto above = intervals_.lower_bound(address);
    if (above != intervals_.end() && above->first < address + std::max<size_t>(usable, 1))
      return fail("overlaps the block above", block);
    if (above != intervals_.begin() && std::prev(above)->second > address)
      return fail("overlaps the block below", block);
  }
  note(block);
  fill(block);
  return true;
}

bool Player::allocate_into(Block& slot) {
  Block block;
  const size_t size = block.requested = law_.draw(random_);
  const uint64_t dice = random_.below(100);
  if (dice < 45) {
    block.start = bytes(api().malloc(size));
  } else if (dice < 60) {
    const size_t count = 1 + random_.below(7);
    block.requested = (size + count - 1) / count * count;
    block.start = bytes(api().calloc(count, block.requested / count));
    if (!admit(block, 1, true)) return false;
    slot = block;
    return true;
  } else if (dice < 64) {
    block.start = bytes(api().realloc(nullptr, size));
  } else if (dice < 66 && api().reallocarray != nullptr) {
    block.start = bytes(api().reallocarray(nullptr, size, 1));
  } else if (dice < 80 && subject().serves_operators) {
    const bool array = random_.below(2) == 0;
    block.origin = array ? Origin::kNewArray : Origin::kNew;
    block.start = bytes(array ? ::operator new[](size, std::nothrow) : ::operator new(size));
  } else {
    // Alignments up to 4 KiB; one block in sixteen up to 1 MiB.
    const size_t alignment = size_t{8} << random_.below(random_.below(16) == 0 ? 18 : 10);
    switch (random_.below(6)) {
      case 0:
        block.origin = Origin::kAlignedAlloc;
        block.start = bytes(api().aligned_alloc(alignment, size));
        break;
      case 1:
        if (!subject().serves_operators) {
          block.origin = Origin::kMemalign;
          block.start = bytes(api().memalign(alignment, size));
          break;
        }
        block.origin = Origin::kNewAligned;
        block.start = bytes(::operator new(size, std::align_val_t{alignment}));
        break;
      case 2:
        block.origin = Origin::kMemalign;
        if (api().valloc != nullptr && random_.below(4) == 0) {
          block.start =
              bytes(random_.below(2) == 0 || api().pvalloc == nullptr ? api().valloc(size) : api().pvalloc(size));
          if (!admit(block, 4096, false)) return false;
          slot = block;
          return true;
        }
        block.start = bytes(api().memalign(alignment, size));
        break;
      default:
        block.origin = Origin::kMemalign;
        block.start = bytes(posix_memalign_or_null(alignment, size));
    }
    if (!admit(block, alignment, false)) return false;
    slot = block;
    return true;
  }
  if (!admit(block, 1, false)) return false;
  slot = block;
  return true;
}

bool Player::resize(Block& block) {
  if (block.origin >= Origin::kNew) return release(block);
  // Mostly small steps, as a growing buffer makes them; else any size of the law. Never 0, which may free.
  const size_t size = std::max<size_t>(
      1, random_.below(3) == 0 ? law_.draw(random_)
                               : block.requested + random_.below(block.requested + 32) - block.requested / 4);
  Block grown;
  grown.requested = size;
  const Block old = block;
  forget(old);
  grown.start = bytes(api().reallocarray != nullptr && random_.below(4) == 0 ? api().reallocarray(block.start, size, 1)
                                                                             : api().realloc(block.start, size));
  block = Block{};
  if (grown.start == nullptr) return fail("realloc returned null", old);
  Block content = old;
  content.start = grown.start;
  if (!intact(content, std::min(old.size, size))) return fail("realloc lost content", content);
  if (!admit(grown, 1, false)) return false;
  block = grown;
  return true;
}

bool Player::release(Block& block) {
  if (!intact(block, block.size)) return fail("content changed while the block was live", block);
  forget(block);
  const size_t size = block.requested;
  errno = 1234;
  switch (block.origin) {
    case Origin::kMalloc:
      if (api().free_sized != nullptr && random_.below(4) == 0)
        api().free_sized(block.start, size);
      else if (api().cfree != nullptr && random_.below(16) == 0)
        api().cfree(block.start);
      else
        api().free(block.start);
      break;
    case Origin::kAlignedAlloc:
      if (api().free_aligned_sized != nullptr && random_.below(2) == 0)
        api().free_aligned_sized(block.start, block.alignment, size);
      else
        api().free(block.start);
      break;
    case Origin::kMemalign: api().free(block.start); break;
    case Origin::kNew:
      random_.below(2) == 0 ? ::operator delete(block.start) : ::operator delete(block.start, size);
      break;
    case Origin::kNewArray:
      random_.below(2) == 0 ? ::operator delete[](block.start) : ::operator delete[](block.start, size);
      break;
    case Origin::kNewAligned:
      random_.below(2) == 0 ? ::operator delete(block.start, std::align_val_t{block.alignment})
                            : ::operator delete(block.start, size, std::align_val_t{block.alignment});
      break;
  }
  if (errno != 1234) return fail("a free changed errno", block);
  block = Block{};
  return true;
}

bool Player::exchange_with_others(Block& block) {
  if (block.start != nullptr && !intact(block, block.size))
    return fail("content changed while the block was live", block);
  block = exchange_->swap(random_, block);
  if (block.start != nullptr && !intact(block, block.size))
    return fail("content changed on the way from another thread", block);
  return true;
}

// No two live blocks of this thread share a byte.
bool Player::check_disjoint() {
  std::vector<const Block*> live;
  for (const Block& block : table_)
    if (block.start != nullptr) live.push_back(&block);
  std::sort(live.begin(), live.end(), [](const Block* a, const Block* b) { return a->start < b->start; });
  for (size_t i = 1; i < live.size(); ++i)
    if (live[i - 1]->start + std::max<size_t>(live[i - 1]->size, 1) > live[i]->start)
      return fail("two live blocks overlap", *live[i]);
  return true;
}

bool Player::step() {
  ++operations_;
  Block& block = table_[random_.below(table_.size())];
  if (exchange_ != nullptr && random_.below(16) == 0) return exchange_with_others(block);
  if (block.start == nullptr) return allocate_into(block);
  const uint64_t dice = random_.below(100);
  if (dice < 18) return resize(block);
  if (dice < 21) return intact(block, block.size) || fail("content changed while the block was live", block);
  return release(block);
}

bool Player::play(uint64_t operations) {
  for (uint64_t i = 0; i < operations; ++i) {
    if (!step()) return false;
    // Now and then the program idles (everything goes) or trims.
    if (operations_ % 1000003 == 0) {
      if (!check_disjoint() || !finish()) return false;
      if (api().malloc_trim != nullptr) api().malloc_trim(0);
    }
  }
  return true;
}

bool Player::finish() {
  for (Block& block : table_)
    if (block.start != nullptr && !release(block)) return false;
  return true;
}

}  // namespace freestone_test
