// launch: runs one program as a clean child and says what it cost. A static binary, so a preload meant for the
// program never reaches it.
//
//   launch [--interval-ms N] [--timeout-s S] [--target-cpus LIST] [--own-cpus LIST] [--as-limit-kib N]
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

enum { kMaxProcesses = 1024, kMaxPoints = 4096 };

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

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

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
        if (sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %*u %*u %ld",
                   &state, &threads, &rss_pages) != 3)
            continue;
        if (state == 'Z' || state == 'X') continue;
        tree.processes++;
        tree.threads += threads;
        tree.rss_kib += rss_pages * page_kib;
        if (with_pss) tree.pss_kib += pss_of(list[i]);
    }
    return tree;
}

// 1: some mapping of `pid` names `library`. 0: libc is mapped and `library` is not, which cannot change any more, for the
// linker maps preloaded objects before the program's own libraries. -1: too early to say, or the process is gone.
static int maps_name(pid_t pid, const char* library) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE* maps = fopen(path, "re");
    if (!maps) return -1;
    static char line[8192];
    bool found = false, libc = false;
    while (!found && fgets(line, sizeof line, maps)) {
        char* name = strchr(line, '/');
        if (!name) continue;
        name[strcspn(name, "\n")] = 0;
        found = strcmp(name, library) == 0;
        libc = libc || strstr(name, "/libc.so.6") || strstr(name, "/libc-2.");
    }
    fclose(maps);
    return found ? 1 : libc ? 0 : -1;
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

static void add_usage(struct rusage* total, const struct rusage* more) {
    total->ru_utime.tv_sec += more->ru_utime.tv_sec;
    total->ru_utime.tv_usec += more->ru_utime.tv_usec;
    total->ru_stime.tv_sec += more->ru_stime.tv_sec;
    total->ru_stime.tv_usec += more->ru_stime.tv_usec;
    total->ru_minflt += more->ru_minflt;
    total->ru_majflt += more->ru_majflt;
    total->ru_nvcsw += more->ru_nvcsw;
    total->ru_nivcsw += more->ru_nivcsw;
    if (more->ru_maxrss > total->ru_maxrss) total->ru_maxrss = more->ru_maxrss;
}

static void kill_tree(int signal_number) {
    pid_t list[kMaxProcesses];
    int count = tree_of_self(list);
    for (int i = 0; i < count; i++) kill(list[i], signal_number);
}

int main(int argc, char** argv) {
    long interval_ms = 10, timeout_s = 0, as_limit_kib = 0, linger_ms = 0, report_fd = -1;
    const char *target_cpus = NULL, *own_cpus = NULL, *library = NULL;
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i += 2) {
        if (i + 1 >= argc) die("an option lacks its value");
        if (!strcmp(argv[i], "--interval-ms")) interval_ms = number(argv[i + 1], argv[i]);
        else if (!strcmp(argv[i], "--timeout-s")) timeout_s = number(argv[i + 1], argv[i]);
        else if (!strcmp(argv[i], "--as-limit-kib")) as_limit_kib = number(argv[i + 1], argv[i]);
        else if (!strcmp(argv[i], "--linger-ms")) linger_ms = number(argv[i + 1], argv[i]);
        else if (!strcmp(argv[i], "--report-fd")) report_fd = number(argv[i + 1], argv[i]);
        else if (!strcmp(argv[i], "--target-cpus")) target_cpus = argv[i + 1];
        else if (!strcmp(argv[i], "--own-cpus")) own_cpus = argv[i + 1];
        else if (!strcmp(argv[i], "--library")) library = argv[i + 1];
        else {
            dprintf(2, "launch: unknown option %s\n", argv[i]);
            return 125;
        }
    }
    if (i + 1 >= argc) {
        dprintf(2, "launch: no program after --\n");
        return 125;
    }
    char** program = argv + i + 1;
    if (interval_ms < 1) interval_ms = 1;
    const long page_kib = sysconf(_SC_PAGESIZE) / 1024;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct sigaction stop = {.sa_handler = on_stop};
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    if (fcntl((int)report_fd, F_SETFD, FD_CLOEXEC) != 0) die("--report-fd");

    int exec_error[2];
    if (pipe2(exec_error, O_CLOEXEC) != 0) die("pipe2");
    const long long start = now_ns();
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        if (target_cpus) set_cpus(target_cpus);
        if (as_limit_kib) {
            struct rlimit limit = {(rlim_t)as_limit_kib * 1024, (rlim_t)as_limit_kib * 1024};
            setrlimit(RLIMIT_AS, &limit);
        }
        execvp(program[0], program);
        int error = errno;
        if (write(exec_error[1], &error, sizeof error) < 0) _exit(126);
        _exit(127);
    }
    close(exec_error[1]);
    if (own_cpus) set_cpus(own_cpus);

    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    if (pidfd < 0) die("pidfd_open");
    struct Tree peak = {0};
    long pss_at_rss = 0, tick = 0, end_rss_kib = 0, early_ms = 1;
    int mapped = -1;
    bool timed_out = false, stopped = false, exited = false;
    long long end = 0, wall_end = 0;
    int status = 0;
    struct rusage usage = {0};

    while (true) {
        // Looks come at 1, 2, 4 and 8 ms, so that a short program is seen too, then every interval.
        long long next = start + (early_ms < interval_ms ? early_ms : interval_ms * (tick + 1)) * 1000000LL;
        long long wait = next - now_ns();
        if (wait < 0) wait = 0;
        struct timespec pause = {wait / 1000000000LL, wait % 1000000000LL};
        struct pollfd poll_child = {pidfd, POLLIN, 0};
        int ready = ppoll(&poll_child, exited ? 0 : 1, &pause, NULL);
        if (ready > 0 && !exited) {
            struct rusage own;
            if (wait4(child, &status, 0, &own) == child) {
                wall_end = now_ns();
                add_usage(&usage, &own);
                exited = true;
                end = wall_end + linger_ms * 1000000LL;
            }
        }
        if (exited && now_ns() >= end) break;
        const long long t = now_ns();
        if (asked_to_stop || (timeout_s && !exited && t - start > timeout_s * 1000000000LL)) {
            timed_out = !asked_to_stop;
            stopped = asked_to_stop;
            kill_tree(SIGKILL);
            if (!exited) {
                struct rusage own;
                if (wait4(child, &status, 0, &own) == child) add_usage(&usage, &own);
                wall_end = now_ns();
            }
            break;
        }
        if (early_ms < interval_ms) {
            early_ms *= 2;
        } else {
            tick = (long)((t - start) / 1000000LL / interval_ms);
        }
        const bool pss_due = tick % 10 == 1 || early_ms < interval_ms;
        struct Tree tree = look(false, page_kib);
        if (tree.rss_kib > peak.rss_kib) peak.rss_kib = tree.rss_kib;
        if (tree.threads > peak.threads) peak.threads = tree.threads;
        if (tree.processes > peak.processes) peak.processes = tree.processes;
        // smaps_rollup walks page tables, so it is read only at a new peak and at most every tenth look.
        if (pss_due && tree.rss_kib > pss_at_rss + pss_at_rss / 50) {
            pss_at_rss = tree.rss_kib;
            long pss = look(true, page_kib).pss_kib;
            if (pss > peak.pss_kib) peak.pss_kib = pss;
        }
        end_rss_kib = tree.rss_kib;
        keep_point(tick, (long)((t - start) / 1000000LL), tree.rss_kib);
        if (library && mapped != 1 && !exited) {
            int found = maps_name(child, library);
            if (found >= 0) mapped = found;
        }
    }
    kill_tree(SIGKILL);
    int rest_status;
    struct rusage rest;
    while (true) {
        pid_t pid = wait4(-1, &rest_status, 0, &rest);
        if (pid > 0) add_usage(&usage, &rest);
        else if (errno != EINTR) break;
        kill_tree(SIGKILL);
    }

    int error = 0;
    if (read(exec_error[0], &error, sizeof error) != sizeof error) error = 0;
    FILE* report = fdopen((int)report_fd, "w");
    if (!report) die("--report-fd");
    fprintf(report,
            "{\"exec_errno\":%d,\"exit\":%d,\"signal\":%d,\"timed_out\":%s,\"stopped\":%s,\"wall_ns\":%lld,"
            "\"user_us\":%lld,\"sys_us\":%lld,\"maxrss_kib\":%ld,\"tree_rss_kib\":%ld,\"tree_pss_kib\":%ld,"
            "\"end_rss_kib\":%ld,\"minor_faults\":%ld,\"major_faults\":%ld,\"voluntary\":%ld,\"involuntary\":%ld,"
            "\"threads\":%d,\"processes\":%d,\"mapped\":%d,\"rss\":[",
            error, WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
            timed_out ? "true" : "false", stopped ? "true" : "false", wall_end - start,
            usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec,
            usage.ru_stime.tv_sec * 1000000LL + usage.ru_stime.tv_usec, usage.ru_maxrss, peak.rss_kib, peak.pss_kib,
            end_rss_kib, usage.ru_minflt, usage.ru_majflt, usage.ru_nvcsw, usage.ru_nivcsw, peak.threads,
            peak.processes, mapped);
    for (int p = 0; p < point_count; p++) fprintf(report, "%s[%ld,%ld]", p ? "," : "", points[p].ms, points[p].rss_kib);
    fprintf(report, "]}\n");
    return fclose(report) == 0 ? 0 : 125;
}
