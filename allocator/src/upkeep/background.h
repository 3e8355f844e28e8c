// Room 19, upkeep: a thread that does what slow paths do while the program takes none: free memory decays, reports are
// written.
//
// Off unless asked for. It takes no cache, blocks every signal, and sleeps in the kernel between two looks. The child
// of a fork has none until its first slow path.
#pragma once

namespace freestone {

// Idempotent. start_background may allocate. False when the system has no thread for us.
bool start_background();
void stop_background();
bool background_runs();
// Whether the calling thread is that thread.
bool is_background_thread();
// In the child of a fork the thread does not exist.
void forget_background();

}  // namespace freestone
