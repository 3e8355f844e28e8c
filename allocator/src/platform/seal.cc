// Room 4, platform: see seal.h.

#include "platform/seal.h"

#include "platform/os.h"

namespace freestone {

constinit Mutex seal_lock{LockName::seal};

namespace {

Atomic<u32> was_closed;  // relaxed: written before the program can ask for an opening that needs it, or under the lock

bool set_access(bool opens) {
  if constexpr (!kSeals) return true;
  void* const page = &sealed_page;
  return !(opens ? os::commit(page, sizeof sealed_page) : os::protect_read_only(page, sizeof sealed_page));
}

}  // namespace

FREESTONE_AT_START FREESTONE_NO_ANALYSIS void close_seal() {
  if constexpr (!kSeals) return;
  if (os::page_bytes() > sizeof sealed_page) return;  // something else would lie on it
  LockGuard guard(seal_lock);
  if (set_access(false)) was_closed.store_relaxed(1);
}

FREESTONE_NO_ANALYSIS OpenedSeal::OpenedSeal() : is_open_(true) {
  if constexpr (!kSeals) return;
  seal_lock.lock();
  is_open_ = was_closed.load_relaxed() == 0 || set_access(true);
}
FREESTONE_NO_ANALYSIS OpenedSeal::~OpenedSeal() {
  if constexpr (!kSeals) return;
  if (was_closed.load_relaxed() != 0) set_access(false);
  seal_lock.unlock();
}

FREESTONE_SLOW FREESTONE_NO_ANALYSIS void repair_seal_in_child() {
  if (!seal_lock.seize_in_child()) return;
  if (was_closed.load_relaxed() != 0) set_access(false);
  seal_lock.unlock();
}

}  // namespace freestone
