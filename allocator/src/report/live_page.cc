// Room 18, report: see live_page.h.

#include "report/live_page.h"

#include <cstring>

#include "base/atomic.h"
#include "platform/file.h"
#include "platform/message.h"

namespace freestone {

namespace {

constexpr usize kPageBytes = 32 * kKiB;

struct Page {
  char magic[8];
  Atomic<u32> sequence;
  u32 length;
  u64 updated_ms;  // on the coarse monotonic clock
  char padding[40];
  char text[kPageBytes - 64];
};
static_assert(sizeof(Page) == kPageBytes);

Page* page FREESTONE_GUARDED_BY(report_lock) = nullptr;
bool refused FREESTONE_GUARDED_BY(report_lock) = false;

void path_of(Message& path) { path << os::process_id() << '\0'; }

FREESTONE_NO_ANALYSIS void append(void*, const char* text, usize length) {  // called by update_live_page
  const usize room = sizeof page->text - page->length;
  if (length > room) return;  // never happens: all classes and threads together need far less
  std::memcpy(page->text + page->length, text, length);
  page->length += static_cast<u32>(length);
}

bool make_page() FREESTONE_REQUIRES(report_lock) {
  if (refused) return false;
  Message path("/dev/shm/freestone-");
  path_of(path);
  page = static_cast<Page*>(os::map_shared_file(path.data(), kPageBytes));
  refused = page == nullptr;
  if (refused) {
    (Message() << "option live_page: " << path.data() << " cannot be made").write();
    return false;
  }
  std::memcpy(page->magic, "FREESTN1", 8);
  return true;
}

}  // namespace

void update_live_page(const Statistics& statistics) {
  if (page == nullptr && !make_page()) return;
  const u32 sequence = page->sequence.load_relaxed();
  page->sequence.store_seq(sequence + 1);
  __atomic_thread_fence(__ATOMIC_RELEASE);  // a reader that sees new text also sees the odd number
  page->length = 0;
  page->updated_ms = os::coarse_milliseconds();
  print_statistics_json(statistics, append, nullptr);
  page->sequence.store_release(sequence + 2);  // publishes the text
}

FREESTONE_AT_START void remove_live_page() {
  LockGuard guard(report_lock);
  if (page == nullptr) return;
  Message path("/dev/shm/freestone-");
  path_of(path);
  os::remove_file(path.data());
  os::unmap(page, kPageBytes);
  page = nullptr;
}

void forget_live_page() {
  if (page != nullptr) os::unmap(page, kPageBytes);
  page = nullptr;
  refused = false;
}

}  // namespace freestone
