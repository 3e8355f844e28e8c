/* peak FILE PROGRAM ARG...: runs the program, appends to FILE the peak memory in KiB of the largest among its process
   and those that this waited for, and ends as it did. SIGTERM is handed on. The kernel counts a process's memory before
   exec, too: what a large process starts itself seems as large. Static, so that a library preloaded for the program
   does not serve this one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;

static void hand_on(int number) { kill(child, number); }

int main(int argc, char** argv) {
  struct sigaction action = {.sa_handler = hand_on};
  struct rusage usage;
  sigset_t terminate;
  sigset_t before;
  char line[32];
  int status;
  if (argc < 3) return 125;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  sigprocmask(SIG_BLOCK, &terminate, &before);
  child = fork();
  if (child < 0) return 125;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    execv(argv[2], argv + 2);
    _exit(127);
  }
  sigaction(SIGTERM, &action, NULL);
  sigprocmask(SIG_SETMASK, &before, NULL);
  while (wait4(child, &status, 0, &usage) != child) {
  }
  const int file = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  const int size = snprintf(line, sizeof line, "%ld\n", usage.ru_maxrss);
  if (file < 0 || write(file, line, (size_t)size) != size) return 125;
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  prctl(PR_SET_DUMPABLE, 0);
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 125;
}
