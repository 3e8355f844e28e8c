// Room 5, region: what it may cost to give memory back, give_back_percent of the time that the process works.
//
// Work earns. A call to the kernel is paid when it is made. A page that went back and is used again is a mistake, and
// its fault is paid then. The kernel's work on a page that stays away is not paid: it is done once, at the latest when
// the process ends. While the budget is overdrawn nothing goes back, except in a great fall of use: a program that ends
// a burst and then makes no call would keep all of it. The next great fall must wait until work has paid for the last.
//
// Work is what the process's own slow paths see pass. A longer gap between two looks at the clock counts as kGapMs,
// because a process that gets little of a CPU does not work meanwhile. A gap of the decay time is idleness: what went
// back before was right, even if it comes again, and the budget is full.
//
// Any thread, no lock. Relaxed: two threads at once may lose a change.
#pragma once

#include "base/atomic.h"
#include "base/units.h"
#include "config/heuristics.h"

namespace freestone {

inline constexpr u64 kPercentAll = 100;  // everything goes at once

class PurgeBudget {
 public:
  // How much of `gap_ms` since the last look counts. Earns for it.
  u64 pass(u64 gap_ms, u64 idle_ms, u64 percent) {
    if (gap_ms < idle_ms) {
      gap_ms = min_of(gap_ms, kGapMs);
      const auto earned = static_cast<i64>(gap_ms * percent) * 10'000;
      add(earned);
      fall_debt_ns_.store_relaxed(max_of<i64>(fall_debt_ns_.load_relaxed() - earned, 0));
    } else {
      out_bytes_.store_relaxed(0);
      balance_ns_.store_relaxed(kBudgetMostNs);
      fall_debt_ns_.store_relaxed(0);
    }
    return gap_ms;
  }
  void went_back(usize bytes) {
    out_bytes_.add_relaxed(bytes);
    pay(kPurgeCallNs);
  }
  // What went back otherwise counts too, but never more than went back at this cost.
  void came_again(usize bytes) {
    const usize out = out_bytes_.load_relaxed(), mistaken = min_of(bytes, out);
    if (mistaken == 0) return;
    out_bytes_.store_relaxed(out - mistaken);
    pay(static_cast<i64>(mistaken / (4 * kKiB)) * kMistakeNs);
  }
  // What goes back in a great fall may all come again.
  void fell(usize bytes) { fall_debt_ns_.add_relaxed(static_cast<i64>(bytes / (4 * kKiB)) * kMistakeNs); }
  bool may_fall(u64 percent) const { return percent > 0 && fall_debt_ns_.load_relaxed() == 0; }
  bool allows(u64 percent) const { return percent >= kPercentAll || (percent > 0 && balance_ns_.load_relaxed() > 0); }
  usize cost_ns() const { return cost_ns_.load_relaxed(); }

 private:
  void pay(i64 ns) {
    cost_ns_.add_relaxed(static_cast<usize>(ns));
    add(-ns);
  }
  void add(i64 ns) {
    balance_ns_.store_relaxed(max_of(min_of(balance_ns_.load_relaxed() + ns, kBudgetMostNs), -kBudgetMostNs));
  }

  Atomic<i64> balance_ns_;
  Atomic<i64> fall_debt_ns_;  // work pays it as it pays the balance
  Atomic<usize> cost_ns_;     // in all
  Atomic<usize> out_bytes_;   // went back and did not come again
};
extern FREESTONE_HIDDEN PurgeBudget purge_budget;

}  // namespace freestone
