// launch: runs one program as a clean child and says what it cost. A static binary, so a preload meant for the
// program never reaches it.
//
//   launch [--timeout-ms N] [--target-cpus LIST] [--own-cpus LIST] [--as-limit-kib N]
//          [--library PATH] [--linger-ms N] --report-fd N -- PROGRAM ARG...
//
// Prints one JSON object to the report descriptor when everything it started is gone. Why a separate program:
//  - a process inherits the peak RSS of the one that called exec (the kernel folds the old image's high-water mark
//    into the signal struct). The caller is a Python of 100 MB; the child forked here starts from this tiny image.
//  - it is the subreaper, so daemons and orphans stay in the measured tree and are killed at the end.
//  - it samples the tree from outside on its own CPU, at a cost of microseconds.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kIntervalMs = 10, kMaxProcesses = 1024, kMaxPoints = 4096 };

struct Point {
  long ms;
  long rss_kib;
};

struct Tree {
  long rss_kib, pss_kib;
  int processes, threads;
};

static struct Point points[kMaxPoints];
static int point_count;
static int point_stride = 1;  // every so many ticks one point is kept; doubles when the array is full
static volatile sig_atomic_t asked_to_stop;

static long long clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static long long now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static void on_stop(int signal_number) {
  (void)signal_number;
  asked_to_stop = 1;
}

static void die(const char* what) {
  dprintf(2, "launch: %s: %s\n", what, strerror(errno));
  _exit(125);
}

static long number(const char* text, const char* option) {
  char* end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno || *end || end == text || value < 0) {
    dprintf(2, "launch: %s: '%s' is not a whole number\n", option, text);
    _exit(125);
  }
  return value;
}

static void set_cpus(const char* list) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const char* p = list; *p;) {
    char* end;
    long cpu = strtol(p, &end, 10);
    if (end == p || cpu < 0 || cpu >= CPU_SETSIZE) break;
    CPU_SET(cpu, &set);
    p = *end == ',' ? end + 1 : end;
  }
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
}

// Reads a small /proc file whole; the result is NUL-terminated. Returns its length, or -1 when the process is gone.
static ssize_t read_proc(pid_t pid, const char* name, char* buffer, size_t size) {
  char path[96];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  size_t used = 0;
  ssize_t got;
  while (used + 1 < size && (got = read(fd, buffer + used, size - 1 - used)) > 0) used += (size_t)got;
  close(fd);
  buffer[used] = 0;
  return (ssize_t)used;
}

// Appends the children of every thread of `pid`; returns the new count.
static int add_children(pid_t pid, pid_t* list, int count) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR* tasks = opendir(path);
  if (!tasks) return count;
  struct dirent* entry;
  while ((entry = readdir(tasks))) {
    if (entry->d_name[0] == '.') continue;
    char name[320], text[8192];
    snprintf(name, sizeof name, "task/%s/children", entry->d_name);
    if (read_proc(pid, name, text, sizeof text) <= 0) continue;
    char* save = NULL;
    for (char* word = strtok_r(text, " \n", &save); word && count < kMaxProcesses; word = strtok_r(NULL, " \n", &save))
      list[count++] = (pid_t)atoi(word);
  }
  closedir(tasks);
  return count;
}

static int tree_of_self(pid_t* list) {
  int count = add_children(getpid(), list, 0);
  for (int i = 0; i < count; i++) count = add_children(list[i], list, count);
  return count;
}

static long pss_of(pid_t pid) {
  char text[4096];
  if (read_proc(pid, "smaps_rollup", text, sizeof text) <= 0) return 0;
  const char* at = strstr(text, "\nPss:");
  return at ? atol(at + 5) : 0;
}

static struct Tree look(bool with_pss, long page_kib) {
  pid_t list[kMaxProcesses];
  struct Tree tree = {0};
  int count = tree_of_self(list);
  for (int i = 0; i < count; i++) {
    char text[4096];
    if (read_proc(list[i], "stat", text, sizeof text) <= 0) continue;
    const char* p = strrchr(text, ')');
    if (!p) continue;
    char state = 0;
    int threads = 0;
    long rss_pages = 0;
    // Fields after the name: state(3) ... num_threads(20) ... rss(24).
    if (sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %*u %*u %ld", &state,
               &threads, &rss_pages) != 3)
      continue;
    if (state == 'Z' || state == 'X') continue;
    tree.processes++;
    tree.threads += threads;
    tree.rss_kib += rss_pages * page_kib;
    if (with_pss) tree.pss_kib += pss_of(list[i]);
  }
  return tree;
}

// 1: some mapping of `pid` names `library`. 0: libc is mapped and `library` is not, which cannot change any more, for
// the linker maps preloaded objects before the program's own libraries. -1: too early to say, or the process is gone.
// One that ends while its maps are read shows their beginning only: the stack, which lies behind all libraries, tells.
static int maps_name(pid_t pid, const char* library) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/maps", pid);
  FILE* maps = fopen(path, "re");
  if (!maps) return -1;
  static char line[8192];
  bool found = false, libc = false, whole = false;
  while (!found && fgets(line, sizeof line, maps)) {
    whole = whole || strstr(line, "[stack]");
    char* name = strchr(line, '/');
    if (!name) continue;
    name[strcspn(name, "\n")] = 0;
    found = strcmp(name, library) == 0;
    libc = libc || strstr(name, "/libc.so.6") || strstr(name, "/libc-2.");
  }
  fclose(maps);
  return found ? 1 : libc && whole ? 0 : -1;
}

static void keep_point(long tick, long ms, long rss_kib) {
  if (tick % point_stride) return;
  if (point_count == kMaxPoints) {
    for (int i = 0; i < kMaxPoints / 2; i++) points[i] = points[2 * i];
    point_count = kMaxPoints / 2;
    point_stride *= 2;
    if (tick % point_stride) return;
  }
  points[point_count++] = (struct Point){ms, rss_kib};
}

static void kill_tree(int signal_number) {
  pid_t list[kMaxProcesses];
  int count = tree_of_self(list);
  for (int i = 0; i < count; i++) kill(list[i], signal_number);
}

struct Options {
  long timeout_ms, as_limit_kib, linger_ms, report_fd;
  const char *target_cpus, *own_cpus, *library;
  char** program;
};

// What is known of the program so far.
struct Watch {
  pid_t child;
  int pidfd;
  long long start, end, wall_end;  // `end`: when the lingering ends; 0 until the child has exited
  long long pss_due;               // when shared memory is looked at again
  long tick, early_ms, end_rss_kib;
  struct Tree shared;  // the last such look: what the processes hold together, and each by itself
  struct Tree peak;
  int status, mapped, left;
  bool timed_out, exited;
};

static struct Options parse(int argc, char** argv) {
  struct Options o = {.report_fd = -1};
  const struct {
    const char* name;
    long* number;
    const char** text;
  } known[] = {
      {"--timeout-ms", &o.timeout_ms, NULL},   {"--as-limit-kib", &o.as_limit_kib, NULL},
      {"--linger-ms", &o.linger_ms, NULL},     {"--report-fd", &o.report_fd, NULL},
      {"--target-cpus", NULL, &o.target_cpus}, {"--own-cpus", NULL, &o.own_cpus},
      {"--library", NULL, &o.library},
  };
  const size_t count = sizeof known / sizeof known[0];
  int i = 1;
  for (; i < argc && strcmp(argv[i], "--") != 0; i += 2) {
    size_t k = 0;
    while (k < count && strcmp(argv[i], known[k].name) != 0) k++;
    if (k == count) {
      dprintf(2, "launch: unknown option %s\n", argv[i]);
      _exit(125);
    }
    if (i + 1 >= argc) die("an option lacks its value");
    if (known[k].number)
      *known[k].number = number(argv[i + 1], argv[i]);
    else
      *known[k].text = argv[i + 1];
  }
  if (i + 1 >= argc) {
    dprintf(2, "launch: no program after --\n");
    _exit(125);
  }
  o.program = argv + i + 1;
  return o;
}

// SIGTERM and SIGINT end the measuring; what the program leaves behind becomes a child of this process.
static void become_watcher(const struct Options* o) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  struct sigaction stop = {.sa_handler = on_stop};
  sigaction(SIGTERM, &stop, NULL);
  sigaction(SIGINT, &stop, NULL);
  if (fcntl((int)o->report_fd, F_SETFD, FD_CLOEXEC) != 0) die("--report-fd");
}

// Starts the program; an exec that fails writes its errno into `exec_error`.
static struct Watch start(const struct Options* o, int exec_error[2]) {
  if (pipe2(exec_error, O_CLOEXEC) != 0) die("pipe2");
  struct Watch w = {.start = now_ns(), .early_ms = 1, .mapped = -1};
  w.child = fork();
  if (w.child < 0) die("fork");
  if (w.child == 0) {
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    if (o->target_cpus) set_cpus(o->target_cpus);
    if (o->as_limit_kib) {
      struct rlimit limit = {(rlim_t)o->as_limit_kib * 1024, (rlim_t)o->as_limit_kib * 1024};
      setrlimit(RLIMIT_AS, &limit);
    }
    execvp(o->program[0], o->program);
    int error = errno;
    if (write(exec_error[1], &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  close(exec_error[1]);
  if (o->own_cpus) set_cpus(o->own_cpus);
  w.pidfd = (int)syscall(SYS_pidfd_open, w.child, 0);
  if (w.pidfd < 0) die("pidfd_open");
  return w;
}

static void reap_child(struct Watch* w) {
  waitpid(w->child, &w->status, 0);
  w->wall_end = now_ns();
  w->exited = true;
  prctl(PR_SET_NAME, "lingering");  // who looks on learns that what still runs has forked away: measure/recognise.py
}

// Sleeps until the next look is due or the child ends. Looks come at 1, 2, 4 and 8 ms, so that a short program is seen
// too, then every interval.
static void sleep_until_due(struct Watch* w, const struct Options* o) {
  const bool early = w->early_ms < kIntervalMs;
  long long wait = w->start + (early ? w->early_ms : kIntervalMs * (w->tick + 1)) * 1000000LL - now_ns();
  if (wait < 0) wait = 0;
  struct timespec pause = {wait / 1000000000LL, wait % 1000000000LL};
  struct pollfd poll_child = {w->pidfd, POLLIN, 0};
  if (ppoll(&poll_child, w->exited ? 0 : 1, &pause, NULL) <= 0 || w->exited) return;
  reap_child(w);
  w->end = w->wall_end + o->linger_ms * 1000000LL;
  w->left = look(false, 0).processes;
}

// Takes the status of what has ended of the tree; whether anything of it still lives.
static bool reap_orphans(void) {
  pid_t pid;
  do pid = waitpid(-1, NULL, WNOHANG);
  while (pid > 0);
  return pid == 0;
}

// What the tree holds now: one process by itself, several by the share of the last look at what they have in common.
static long held(const struct Watch* w, const struct Tree* tree) {
  if (tree->processes < 2 || w->shared.rss_kib == 0) return tree->rss_kib;
  return (long)((double)tree->rss_kib * (double)w->shared.pss_kib / (double)w->shared.rss_kib);
}

static void note(struct Watch* w, const struct Options* o, long page_kib) {
  const long long t = now_ns();
  const bool early = w->early_ms < kIntervalMs;
  if (early)
    w->early_ms *= 2;
  else
    w->tick = (long)((t - w->start) / 1000000LL / kIntervalMs);
  const struct Tree tree = look(false, page_kib);
  // Processes of one tree share pages, so the memory that they hold together is their PSS. smaps_rollup walks page
  // tables: the next look comes after twenty times the CPU time of the last one, and of several processes with every
  // new peak.
  const bool several = tree.processes > 1, due = t >= w->pss_due;
  const bool grown = tree.rss_kib > w->shared.rss_kib + w->shared.rss_kib / 50;
  if ((several && (due || grown)) || (due && grown)) {
    const long long before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    w->shared = look(true, page_kib);
    w->pss_due = now_ns() + 20 * (clock_ns(CLOCK_THREAD_CPUTIME_ID) - before);
    if (w->shared.pss_kib > w->peak.pss_kib) w->peak.pss_kib = w->shared.pss_kib;
  }
  if (tree.threads > w->peak.threads) w->peak.threads = tree.threads;
  if (tree.processes > w->peak.processes) w->peak.processes = tree.processes;
  const long held_kib = held(w, &tree);
  w->end_rss_kib = held_kib;
  keep_point(w->tick, (long)((t - w->start) / 1000000LL), held_kib);
  if (o->library && w->mapped != 1 && !w->exited) {
    const int found = maps_name(w->child, o->library);
    if (found >= 0) w->mapped = found;
  }
  if (w->exited && !reap_orphans()) w->end = 0;  // nobody is left to linger for
}

// Watches until the child has ended and lingered, the time is up, or this process is told to stop.
static void watch(struct Watch* w, const struct Options* o) {
  const long page_kib = sysconf(_SC_PAGESIZE) / 1024;
  while (true) {
    sleep_until_due(w, o);
    if (w->exited && now_ns() >= w->end) return;
    const bool late = o->timeout_ms && !w->exited && now_ns() - w->start > o->timeout_ms * 1000000LL;
    if (asked_to_stop || late) {
      w->timed_out = !asked_to_stop;
      kill_tree(SIGKILL);
      if (!w->exited) reap_child(w);
      return;
    }
    note(w, o, page_kib);
  }
}

// Kills what is left of the tree and waits for all of it.
static void end_tree(void) {
  do kill_tree(SIGKILL);
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
}

static double seconds(const struct timeval* t) { return (double)t->tv_sec + (double)t->tv_usec / 1e6; }

static int report(const struct Watch* w, int exec_errno, int fd) {
  FILE* out = fdopen(fd, "w");
  if (!out) die("--report-fd");
  struct rusage used;  // of the whole tree: all of it has been waited for
  if (getrusage(RUSAGE_CHILDREN, &used) != 0) die("getrusage");
  fprintf(out,
          "{\"exec_error\":%d,\"exit_status\":%d,\"signal\":%d,\"timed_out\":%s,\"wall_s\":%.9f,\"user_s\":%.6f,"
          "\"sys_s\":%.6f,\"rss_kib\":%ld,\"pss_kib\":%ld,\"end_rss_kib\":%ld,\"minor_faults\":%ld,"
          "\"major_faults\":%ld,\"voluntary\":%ld,\"involuntary\":%ld,\"threads\":%d,\"processes\":%d,"
          "\"mapped\":%d,\"left\":%d,\"rss_series\":[",
          exec_errno, WIFEXITED(w->status) ? WEXITSTATUS(w->status) : -1,
          WIFSIGNALED(w->status) ? WTERMSIG(w->status) : 0, w->timed_out ? "true" : "false",
          (double)(w->wall_end - w->start) / 1e9, seconds(&used.ru_utime), seconds(&used.ru_stime), used.ru_maxrss,
          w->peak.pss_kib, w->end_rss_kib, used.ru_minflt, used.ru_majflt, used.ru_nvcsw, used.ru_nivcsw,
          w->peak.threads, w->peak.processes, w->mapped, w->left);
  for (int p = 0; p < point_count; p++) fprintf(out, "%s[%ld,%ld]", p ? "," : "", points[p].ms, points[p].rss_kib);
  fprintf(out, "]}\n");
  return fclose(out) == 0 ? 0 : 125;
}

int main(int argc, char** argv) {
  const struct Options options = parse(argc, argv);
  int exec_error[2];
  become_watcher(&options);
  struct Watch w = start(&options, exec_error);
  watch(&w, &options);
  end_tree();
  int exec_errno = 0;
  if (read(exec_error[0], &exec_errno, sizeof exec_errno) != sizeof exec_errno) exec_errno = 0;
  return report(&w, exec_errno, (int)options.report_fd);
}
