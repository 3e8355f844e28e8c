// Compiled twice, never run: the compiler refuses to touch what a lock guards without it, and takes it with the lock.

#include "span/span_map.h"

namespace freestone {

usize touched() {
#ifdef TOUCHED_with_LOCK
  LockGuard guard(span_lock);
#endif
  return span_map.count_dirty(0, 1);
}

}  // namespace freestone
