// Room 6, span: what is closed and serves one class or length for ever, as a chain of Record::next_retired.
#pragma once

#include "region/region.h"

namespace freestone {

class RetiredChain {
 public:
  // One store changes the chain (FORK-3).
  void push(UnitIndex first) FREESTONE_REQUIRES(span_lock) {
    record_of(first).next_retired = latest_;
    order_stores();
    latest_ = first + 1;
  }
  // The latest that was pushed; kNoUnit: none.
  UnitIndex pop() FREESTONE_REQUIRES(span_lock) {
    if (latest_ == 0) return kNoUnit;
    const UnitIndex first = latest_ - 1;
    latest_ = record_of(first).next_retired;
    return first;
  }

 private:
  UnitIndex latest_ = 0;  // 1 + its first unit; 0: none
};

}  // namespace freestone
