// Room 6, span: the bitmaps of the heap's units, and the search in them.
//
//   free    nobody uses it
//   dirty   free, and perhaps with memory behind it; what is free and not dirty is zero
//
// Dirty units are in one of three sets. What becomes free joins the younger; purging empties the older from the highest
// address down, then these two change their roles. So what nobody wants, holes too small for what the program asks for,
// goes before what was freed a moment ago. What cannot go, since the kernel refused it or since a page reaches into
// units in use, joins the refused. These serve like any other dirty units, but do not count as surplus, until
// retry_refused.
//
// SPAN-1  The three sets of dirty units are disjoint subsets of free.
// SPAN-2  A unit that is in use or being purged is in no bitmap: nobody can be given it while the kernel takes its
//         memory.
// SPAN-3  The free tree describes free_units (FREE-1); a set bit in dirty_groups and dirty_supers is a word, a group of
//         words, that is not zero, for each set.
// SPAN-4  A unit's dirty bit is set before its free bit, and cleared after it. So the child of a fork that finds a
//         change cut short never takes dirty memory for zero (FORK-3).
//
// Nothing in here makes a system call.
#pragma once

#include <utility>

#include "platform/mutex.h"
#include "region/account.h"
#include "region/region.h"
#include "span/free_tree.h"

namespace freestone {

// Where the words and nodes of the heap lie: with the records of their 64 MiB, the few nodes above in one table. Not
// analysed: its caller is the tree inside the map, and a tree knows no locks.
struct HeapStorage {
  FREESTONE_NO_ANALYSIS u64& free_word(usize word) const {
    return super_at(word / kSuperGroups).free_units[word % kSuperGroups];
  }
  FREESTONE_NO_ANALYSIS FreeSummary& node(unsigned level, usize index) const;
  usize step(unsigned level) const;
};

// All of it is guarded by span_lock.
class SpanMap {
 public:
  // The units below the frontier that `first` begins, fresh from the kernel, become free and clean.
  void add(UnitIndex first, usize units) FREESTONE_REQUIRES(span_lock);
  // Free units at a multiple of `alignment`, a power of two; the lowest ones if the alignment is 1 or `units`. kNoUnit
  // when there are none.
  UnitIndex find(usize units, usize alignment) FREESTONE_REQUIRES(span_lock);
  bool are_free(UnitIndex first, usize units) const FREESTONE_REQUIRES(span_lock);
  usize count_dirty(UnitIndex first, usize units) const FREESTONE_REQUIRES(span_lock);
  // Which of these are dirty, as bits; the highest bit stands for all units from the 63rd on.
  i64 dirty_bits(UnitIndex first, usize units) const FREESTONE_REQUIRES(span_lock);

  void set_free(UnitIndex first, usize units, bool dirty) FREESTONE_REQUIRES(span_lock) {
    set_free_in(first, units, dirty, younger_);
  }
  // Units that are in use become neither live nor free, and in use again after that (span/run_store.h,
  // span/dedicated.h).
  void begin_wait(usize units) FREESTONE_REQUIRES(span_lock) {
    waiting_ += units;
    note_out_of_force(units_to_bytes(units));
  }
  void end_wait(usize units) FREESTONE_REQUIRES(span_lock) {
    waiting_ -= units;
    note_in_force(units_to_bytes(units));
  }
  // Units that wait become free and clean.
  void free_waiting(UnitIndex first, usize units) FREESTONE_REQUIRES(span_lock) {
    end_wait(units);  // nobody uses them, and set_free takes them out of force once more
    set_free(first, units, false);
  }
  // Takes units that are free. Returns how many of them were dirty.
  usize set_taken(UnitIndex first, usize units) FREESTONE_REQUIRES(span_lock);

  struct DirtyStretch {
    UnitIndex first = kNoUnit;  // kNoUnit: nothing that can go is dirty
    usize units = 0;
    u64 dirty = 0;  // which of them, from the first on
  };
  // Takes the highest stretch of the older dirty units, at most `units` of one word, together with free guards that lie
  // between them and with clean units that share a page of `page_units` with them.
  DirtyStretch take_oldest_dirty(usize units, unsigned page_units) FREESTONE_REQUIRES(span_lock);
  // Puts it back as it was: to be taken next, or `refused`.
  void put_back(const DirtyStretch& stretch, bool refused) FREESTONE_REQUIRES(span_lock);
  // What was refused may go again, when the older are gone.
  void retry_refused() { retries_ = counts_[refused_] != 0; }

  usize older_units() const { return counts_[older_]; }
  // Whether the younger became the older for want of these, since this was last asked.
  bool take_age_changed() { return std::exchange(age_changed_, false); }
  void make_older() { std::swap(older_, younger_); }

  usize free_units() const { return free_count_; }
  usize dirty_units() const { return counts_[0] + counts_[1] + counts_[2]; }
  usize refused_units() const { return counts_[refused_]; }
  // Those that may go.
  usize purgeable_units() const { return dirty_units() - (retries_ ? 0 : refused_units()); }
  usize waiting_units() const { return waiting_; }
  // The next words hold waiting_units() and the parts of dirty_units().
  constexpr const usize* counts() const { return &free_count_; }
  usize live_units() const { return added_ - free_count_ - waiting_; }  // those that are being purged included
  usize charged_units() const { return live_units() + dirty_units(); }  // ACCOUNT-1

  // In the child of a fork that found a change cut short: everything else follows from the words of the bitmaps and
  // from the frontier.
  void count_anew() FREESTONE_REQUIRES(span_lock);
  // Before that, if an `add` of these units was cut short, or had not begun: none of them was taken yet.
  void free_anew(UnitIndex first, usize units) FREESTONE_REQUIRES(span_lock);

  // Debug: SPAN-1 and SPAN-3 for every word.
  bool is_valid() FREESTONE_REQUIRES(span_lock);

 private:
  u64 dirty_word(usize word) const FREESTONE_REQUIRES(span_lock);
  void set_dirty(usize word, u64 mask, unsigned set) FREESTONE_REQUIRES(span_lock);
  void clear_dirty(usize word, u64 mask) FREESTONE_REQUIRES(span_lock);

  void set_free_in(UnitIndex first, usize units, bool dirty, unsigned set) FREESTONE_REQUIRES(span_lock);
  // Makes sure that there are older units, if any may go.
  bool find_older() FREESTONE_REQUIRES(span_lock);

  FreeTree<HeapStorage> tree_;
  unsigned younger_ = 0;  // the numbers of the sets
  unsigned older_ = 1;
  bool age_changed_ = false;
  unsigned refused_ = 2;
  bool retries_ = false;
  usize added_ = 0;
  usize free_count_ = 0;
  usize waiting_ = 0;
  usize counts_[kDirtySets] = {};  // of the sets' units
};
extern SpanMap span_map FREESTONE_GUARDED_BY(span_lock);

}  // namespace freestone
