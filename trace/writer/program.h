// writer/program.h: the recorded program: its start, the signals that it gets, its end. One per process.
//
// PROGRAM-1: a signal that a process sends to this one reaches all that was started, and what lives on after kGraceNs
// is killed: nothing stays. The terminal sends Ctrl-C to the program itself, which may go on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace freestone::trace {

class Program {
 public:
  // From here on this process gets the signals that end it, also when its parent dies, and is the parent of orphans.
  Program();

  // Starts the command with the recorder in front of its allocator. False, with errno, if this process cannot fork.
  bool start(char** command, const std::string& library, const std::string& shared_path);

  // Takes what has ended, passes signals on, kills what does not obey.
  void look_after();

  bool has_ended() const { return ended_ns_ != 0; }  // what it started may live on
  uint64_t ended_ns() const { return ended_ns_; }
  bool is_asked_to_end() const;
  bool is_told_to_end() const;            // and nothing more is to be waited for
  bool is_done() const;                   // has ended, and all that it started if that was told to
  int status() const { return status_; }  // as a shell reports it

 private:
  pid_t child_ = 0;
  uint64_t ended_ns_ = 0;
  uint64_t kill_ns_ = 0;  // when what lives on is killed; 0: no process has sent a signal
  bool is_alone_ = true;  // nothing of what was started lives
  int status_ = 0;
};

}  // namespace freestone::trace
