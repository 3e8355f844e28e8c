// Room 6, span: which units are free, and where the lowest stretch of a length lies.
//
// A bit per unit, 64 to a word. Above the words stands a tree of eight children a node. Each node says how many units
// are free at its start, in its longest stretch and at its end. So a stretch that crosses from child to child is seen
// where the children meet. A search walks one path down and an update one path up: both cost the tree's height, which
// grows by one while the heap grows eightfold.
//
// FREE-1  At rest a node is `joined` of its children, except the nodes above one word, `stale_`. A series of changes to
//         that word is joined once, by the next search that needs it. Slabs are taken and freed in such series.
// FREE-2  All units at and above `end` are not free.
// FREE-3  No free 2^k units lie at a multiple of 2^k below the word `lowest_`, for any k >= `lowest_log2_`.
//
// Go's page allocator has such summaries of start, longest and end. Ours also say which aligned power of two fits
// (`order`), because slabs lie at multiples of their length. So a search passes by a stretch that is long enough but
// wrongly placed.
//
// `Storage` says where words and nodes lie: with the heap's records, or in a test's arrays. No locks here.
#pragma once

#include "base/bits.h"
#include "base/check.h"
#include "base/units.h"
#include "region/region.h"

namespace freestone {

inline constexpr unsigned kWordUnits = kGroupUnits;
inline constexpr unsigned kWordShift = 6;
inline constexpr unsigned kFanShift = 3;
inline constexpr unsigned kFan = 1U << kFanShift;
static_assert(kWordUnits == 1U << kWordShift && kOctetGroups == kFan && kSuperGroups == kFan * kFan);

// The positions in a word that are multiples of 2^k.
inline constexpr u64 kMultiplesOf[kWordShift + 1] = {
    ~u64{0}, 0x5555555555555555, 0x1111111111111111, 0x0101010101010101, 0x0001000100010001, 0x0000000100000001, 1};

// The positions at which 2^log2 free units lie at a multiple of their number.
constexpr u64 aligned_starts(u64 word, unsigned log2) {
  for (unsigned k = 0; k < log2; ++k) word &= (word >> (1U << k)) & kMultiplesOf[k + 1];
  return word;
}

constexpr FreeSummary summary_of(u64 word) {
  if (word == 0) return {};
  if (word == ~u64{0}) return {kWordUnits, kWordUnits, kWordUnits, kWordShift + 1};
  FreeSummary s{lowest_bit(~word), longest_stretch(word), kWordUnits - 1 - highest_bit(~word), 0};
  for (u64 starts = word; starts != 0; ++s.order) starts &= (starts >> (1U << s.order)) & kMultiplesOf[s.order + 1];
  return s;
}
static_assert(summary_of(0b0111'0110) == FreeSummary{0, 3, 0, 2} && summary_of(~u64{1}).order == 6);

// Neighbours of one level, `step` bytes from one to the next.
class Children {
 public:
  Children(const FreeSummary& first, usize step) : at_(reinterpret_cast<const char*>(&first)), step_(step) {}
  const FreeSummary& operator*() const { return *reinterpret_cast<const FreeSummary*>(at_); }
  Children& operator++() {
    at_ += step_;
    return *this;
  }

 private:
  const char* at_;
  usize step_;
};

// The summary of `count` neighbours of `child_units` units each; around them nothing is free if they are fewer than
// eight.
inline FreeSummary joined(Children child, usize count, u32 child_units, bool from_start) {
  FreeSummary s;
  u32 stretch = 0;  // that reaches the border to the next child
  for (usize k = 0; k < count; ++k, ++child) {
    const FreeSummary c = *child;
    s.longest = max_of(s.longest, max_of(c.longest, stretch + c.first));
    s.order = max_of(s.order, c.order);
    if (from_start) s.first += c.first;
    from_start = from_start && c.first == child_units;
    stretch = c.last == child_units ? stretch + child_units : c.last;
  }
  s.last = stretch;
  return s;
}

// Whether a node stays as it is when one of its children changes from `before` to `now`. It does if the stretches at
// the child's borders stay, and the node has its longest stretch and its largest aligned one from other children.
constexpr bool is_indifferent(const FreeSummary& node, const FreeSummary& before, const FreeSummary& now) {
  return before.first == now.first && before.last == now.last && before.longest < node.longest &&
         now.longest <= node.longest && before.order < node.order && now.order <= node.order;
}

// Storage: `u64& free_word(usize word)` and `FreeSummary& node(unsigned level, usize index)`, all zero at first; the
// nodes below one lie at equal distances, `usize step(unsigned level)` in bytes. A node of level n covers 8^n words.
template <typename Storage>
class FreeTree {
 public:
  static constexpr usize kNone = ~usize{0};

  explicit constexpr FreeTree(Storage storage = {}) : storage_(storage) {}

  // The tree covers the words of the units from `start` to `end`, which may grow.
  void cover(usize start, usize end) {
    settle();
    start_ = start;
    end_ = end;
    while (root_ == 0 || (start_ >> shift_of(root_)) != ((end_ - 1) >> shift_of(root_))) {
      ++root_;
      join(root_, start_ >> shift_of(root_));
    }
  }

  // Words `from` to `to` (inclusive) changed.
  void note_changed(usize from, usize to) {
    FREESTONE_CHECK("FREE-2", from >= start_ >> kWordShift && to << kWordShift < end_);
    lowest_ = min_of(lowest_, from);
    if (from == to && from == stale_) return;
    settle();
    if (from == to) {
      stale_ = from;
    } else {
      join_above(from, to);
    }
  }

  // Every word may have changed.
  FREESTONE_SLOW void rebuild() {
    stale_ = kNone;
    lowest_ = 0;
    if (end_ == 0) return;
    for (usize word = start_ >> kWordShift; word <= (end_ - 1) >> kWordShift; ++word)
      storage_.node(0, word) = summary_of(storage_.free_word(word));
    for (unsigned level = 1; level <= root_; ++level) {
      for (usize index = start_ >> shift_of(level); index <= (end_ - 1) >> shift_of(level); ++index) join(level, index);
    }
    cover(start_, end_);
  }

  // The lowest `units` free units; kNone when no stretch is long enough.
  usize find(usize units) {
    settle();
    if (root_ == 0 || units > root().longest) return kNone;
    usize index = root_index();
    for (unsigned level = root_; level > 0; --level) {
      const u32 child_units = 1U << shift_of(level - 1);
      usize stretch = 0;
      usize child = first_child(level, index);
      for (Children at = children(level, child);; ++at, ++child) {
        const FreeSummary& s = *at;
        if (stretch + s.first >= units) return (child << shift_of(level - 1)) - stretch;
        if (s.longest >= units) break;
        stretch = s.last == child_units ? stretch + child_units : s.last;
      }
      index = child;
    }
    return (index << kWordShift) + lowest_bit(stretch_starts(storage_.free_word(index), static_cast<unsigned>(units)));
  }

  // The lowest 2^log2 free units at a multiple of 2^log2, at most a word; kNone when there are none.
  usize find_aligned(unsigned log2) {
    if (lowest_ != 0 && log2 >= lowest_log2_) {
      if (const u64 starts = aligned_starts(storage_.free_word(lowest_), log2); starts != 0) {
        const usize found = (lowest_ << kWordShift) + lowest_bit(starts);
        FREESTONE_CHECK("FREE-3", found == search_aligned(log2));
        return found;
      }
    }
    return search_aligned(log2);
  }

  // Debug: FREE-1.
  FREESTONE_SLOW bool is_valid() {
    settle();
    if (root_ == 0) return true;
    for (usize word = start_ >> kWordShift; word <= (end_ - 1) >> kWordShift; ++word) {
      if (storage_.node(0, word) != summary_of(storage_.free_word(word))) return false;
    }
    for (unsigned level = 1; level <= root_; ++level) {
      for (usize index = start_ >> shift_of(level); index <= (end_ - 1) >> shift_of(level); ++index) {
        if (storage_.node(level, index) != join_children(level, index)) return false;
      }
    }
    return true;
  }

 private:
  usize search_aligned(unsigned log2) {
    settle();
    if (root_ == 0 || root().order <= log2) return kNone;
    usize index = root_index();
    for (unsigned level = root_; level > 0; --level) {
      index = first_child(level, index);
      for (Children at = children(level, index); (*at).order <= log2; ++at) ++index;
    }
    lowest_ = index;
    lowest_log2_ = log2;
    return (index << kWordShift) + lowest_bit(aligned_starts(storage_.free_word(index), log2));
  }
  // FREE-1 holds for all words.
  void settle() {
    if (stale_ == kNone) return;
    const usize word = stale_;
    stale_ = kNone;
    settle_word(word);
    FREESTONE_CHECK("FREE-1", is_joined_above(word));
  }
  // Most changes of one word leave the nodes above as they are: then no neighbour is looked at.
  void settle_word(usize word) {
    FreeSummary before = storage_.node(0, word);
    FreeSummary now = storage_.node(0, word) = summary_of(storage_.free_word(word));
    if (before == now) return;
    for (unsigned level = 1; level <= root_; ++level) {
      FreeSummary& node = storage_.node(level, word >> (level * kFanShift));
      if (is_indifferent(node, before, now)) return;
      before = node;
      if (!join(level, word >> (level * kFanShift))) return;
      now = node;
    }
  }
  static constexpr unsigned shift_of(unsigned level) { return kWordShift + level * kFanShift; }
  usize root_index() const { return start_ >> shift_of(root_); }
  const FreeSummary& root() const { return storage_.node(root_, root_index()); }
  // What is not covered may have no storage: below, a search starts behind it; above, nothing is free.
  usize first_child(unsigned level, usize index) const {
    return max_of(index << kFanShift, start_ >> shift_of(level - 1));
  }
  Children children(unsigned level, usize first) const {
    return {storage_.node(level - 1, first), storage_.step(level - 1)};
  }
  FreeSummary join_children(unsigned level, usize index) const {
    const usize from = index << kFanShift;
    const usize first = first_child(level, index);
    const usize end = min_of(from + kFan, ((end_ - 1) >> shift_of(level - 1)) + 1);
    FreeSummary s = joined(children(level, first), end - first, 1U << shift_of(level - 1), first == from);
    if (end != from + kFan) s.last = 0;
    return s;
  }
  // Every node above the words `from` to `to`, as far up as anything changes.
  void join_above(usize from, usize to) {
    for (usize word = from; word <= to; ++word) storage_.node(0, word) = summary_of(storage_.free_word(word));
    for (unsigned level = 1; level <= root_; ++level) {
      from >>= kFanShift;
      to >>= kFanShift;
      bool changed = false;
      for (usize index = from; index <= to; ++index) changed = join(level, index) || changed;
      if (!changed) return;
    }
  }
  bool is_joined_above(usize word) const {
    if (storage_.node(0, word) != summary_of(storage_.free_word(word))) return false;
    for (unsigned level = 1; level <= root_; ++level) {
      if (const usize index = word >> (level * kFanShift); storage_.node(level, index) != join_children(level, index))
        return false;
    }
    return true;
  }
  // Returns whether the node is another now.
  bool join(unsigned level, usize index) {
    const FreeSummary fresh = join_children(level, index);
    FreeSummary& node = storage_.node(level, index);
    if (node == fresh) return false;
    node = fresh;
    return true;
  }

  Storage storage_;
  usize start_ = 0;
  usize end_ = 0;
  unsigned root_ = 0;  // the level of the node that covers all; 0 while nothing is covered
  usize stale_ = kNone;
  usize lowest_ = 0;  // 0: not known
  unsigned lowest_log2_ = 0;
};

}  // namespace freestone
