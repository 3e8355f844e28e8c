// Holds one thread of a child process before and after each of its system calls (ptrace), while another thread of that
// process acts.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "support/child.h"

namespace freestone_test {

// What the child does, each in a thread of its own but for `act` and `judge`, which run in its first thread.
struct Held {
  std::function<void()> prepare;               // first
  std::function<void()> work;                  // in the thread that is held; its end is held, too
  std::function<bool(unsigned point)> act;     // at each point; false ends the child with status 1
  std::function<int()> judge;                  // at the end, when no thread is held: the child's exit status
  bool all = true;      // every call of a kind; else the first few and some of those behind, fewer the farther
  unsigned offset = 0;  // which of them
};

struct HeldEnd {
  ChildEnd child;
  std::string refused;             // why nothing was held; empty: something was
  unsigned points = 0;             // at which the thread was held
  unsigned answered = 0;           // of these, where the act was over before the thread went on
  std::map<long, unsigned> calls;  // by number
};

// An act that waits for the held thread is waited for only so long; then the thread goes on meanwhile.
HeldEnd run_held(const Held& held);
// Called by an act that will wait for the held thread no more: it is waited for until it is over.
void note_independent();

// In `work` and `act`: the thread that is held.
pthread_t held_thread();

}  // namespace freestone_test
