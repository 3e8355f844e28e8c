// See fork_handler_library.cc.
#pragma once

enum class ForkHandlerAction { nothing, allocate, free_only, reallocate, large, aligned, thread, wait_for_lock };
inline constexpr const char* kForkHandlerActions[] = {"nothing", "allocate", "free",   "reallocate",
                                                      "large",   "aligned",  "thread", "wait for a lock"};
inline constexpr int kForkHandlerMoments = 3;
inline constexpr const char* kForkHandlerMomentNames[] = {"before the fork", "in the parent", "in the child"};

extern "C" {
// What the handlers do from now on: one action at one moment.
void set_fork_handler(int moment, ForkHandlerAction action);
// For other threads: allocates while it holds the lock that `wait_for_lock` wants.
void work_beside_fork_handler();
int fork_handler_runs();
}
