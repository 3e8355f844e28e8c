// Room 4, platform: in the hardened build the sealed page (config/options.h) is read-only from the end of the start on.
//
// It is opened only to set an option or the program's callbacks. If a filter of system calls refuses to open it, the
// setting is refused; if it refuses to close it, the page stays open. The child of a thread that had it open closes it.
//
// SEAL-1  Before the page is closed only the start and constructors write there, afterwards only the thread that opened
//         it.
#pragma once

#include "config/options.h"
#include "platform/mutex.h"

namespace freestone {

extern Mutex seal_lock;

// Closes the page. Called when the start and the constructors are over.
void close_seal();

// Keeps the page open as long as it lives. One thread at a time.
class [[nodiscard]] OpenedSeal {
 public:
  OpenedSeal();
  ~OpenedSeal();
  OpenedSeal(const OpenedSeal&) = delete;
  OpenedSeal& operator=(const OpenedSeal&) = delete;
  // False: the kernel refuses, and nothing may be written.
  bool is_open() const { return is_open_; }

 private:
  bool is_open_;
};

// False: the kernel refuses.
template <typename Value>
bool set_sealed(Value& option, Value value) {
  const OpenedSeal seal;
  if (seal.is_open()) option = value;
  return seal.is_open();
}

// In the child of a fork, by the thread that settles it.
void repair_seal_in_child();

}  // namespace freestone
