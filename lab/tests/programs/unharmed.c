// A program that looks at it must not harm. Threads with all signals blocked check their registers, their data, the
// signals' handlers and their masks without a pause; others wait in every kind of system call and report each return
// that they did not ask for. When its input ends, it prints what went wrong and ends; 0: nothing did.
//
// unharmed BLOCKING [killed]: 1 if the first thread blocks all signals, too. It handles SIGSEGV, and one thread faults
// all the time. It ignores SIGTRAP. `killed`: epoll_wait may return EINTR, as by the kernel's rule after every stop; a
// looker that is killed has no time to undo that.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int stop;
static int wrong, killed;
static __thread sigjmp_buf back;
extern char __executable_start, etext;
static void tell(const char *what, long value) {
  if (wrong < 20) fprintf(stderr, "%s: %ld\n", what, value);
  __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

// As a virtual machine's handler: it knows the instructions of the program that may fault, and where.
static void on_fault(int number, siginfo_t *info, void *context) {
  (void)number;
  const mcontext_t *machine = &((const ucontext_t *)context)->uc_mcontext;
#if defined(__x86_64__)
  const char *counter = (const char *)machine->gregs[REG_RIP];
#else
  const char *counter = (const char *)machine->pc;
#endif
  if (info->si_addr != (void *)16 || counter < &__executable_start || counter >= &etext) {
    tell("a fault elsewhere", (long)counter);
    _exit(7);
  }
  siglongjmp(back, 1);
}

static void fault(void) {
  if (sigsetjmp(back, 1)) return;
  *(volatile int *)16 = 1;
  tell("no fault", 0);
}
static void *faults(void *unused) {
  pthread_setname_np(pthread_self(), "faults");
  while (!stop) {
    for (int i = 0; i < 500; ++i) fault();
    usleep(100);
  }
  return unused;
}

static void handlers(struct sigaction *all) {
  for (int n = 1; n <= 64; ++n) {
    memset(&all[n], 0, sizeof all[n]);
    syscall(SYS_rt_sigaction, n, NULL, &all[n], 8);
  }
}

static struct sigaction before[65];
static void check_signals(const sigset_t *mask) {
  struct sigaction now[65];
  handlers(now);
  for (int n = 1; n <= 64; ++n)
    if (memcmp(&now[n], &before[n], sizeof now[n]) != 0) tell("handler changed", n);
  sigset_t own;
  sigprocmask(SIG_SETMASK, NULL, &own);
  if (memcmp(&own, mask, 8) != 0) tell("mask changed", 0);
}

// Registers hold values over thousands of instructions; afterwards they are compared.
static int registers_hold(unsigned long seed) {
  int same = 1;
#if defined(__x86_64__)
  unsigned long values[8];
  double wide[8];
  for (int i = 0; i < 8; ++i) values[i] = seed * (unsigned long)(i + 3), wide[i] = (double)values[i];
  unsigned long bad = 0;
  __asm__ volatile(
      "movq 0(%1), %%r8\n movq 8(%1), %%r9\n movq 16(%1), %%r10\n movq 24(%1), %%r11\n"
      "movq 32(%1), %%r12\n movq 40(%1), %%r13\n movq 48(%1), %%r14\n movq 56(%1), %%r15\n"
      "movsd 0(%2), %%xmm8\n movsd 8(%2), %%xmm9\n movsd 16(%2), %%xmm14\n movsd 24(%2), %%xmm15\n"
      "movq %%r8, -64(%%rsp)\n"  // in the red zone
      "movl $30000, %%ecx\n"
      "1: decl %%ecx\n jnz 1b\n"
      "cmpq 0(%1), %%r8\n setne %%cl\n orb %%cl, %b0\n cmpq 8(%1), %%r9\n setne %%cl\n orb %%cl, %b0\n"
      "cmpq 16(%1), %%r10\n setne %%cl\n orb %%cl, %b0\n cmpq 24(%1), %%r11\n setne %%cl\n orb %%cl, %b0\n"
      "cmpq 32(%1), %%r12\n setne %%cl\n orb %%cl, %b0\n cmpq 40(%1), %%r13\n setne %%cl\n orb %%cl, %b0\n"
      "cmpq 48(%1), %%r14\n setne %%cl\n orb %%cl, %b0\n cmpq 56(%1), %%r15\n setne %%cl\n orb %%cl, %b0\n"
      "cmpq -64(%%rsp), %%r8\n setne %%cl\n orb %%cl, %b0\n"
      "ucomisd 0(%2), %%xmm8\n setne %%cl\n orb %%cl, %b0\n ucomisd 8(%2), %%xmm9\n setne %%cl\n orb %%cl, %b0\n"
      "ucomisd 16(%2), %%xmm14\n setne %%cl\n orb %%cl, %b0\n ucomisd 24(%2), %%xmm15\n setne %%cl\n orb %%cl, %b0\n"
      : "+a"(bad)
      : "S"(values), "D"(wide)
      : "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm8", "xmm9", "xmm14", "xmm15", "memory", "cc");
  same = bad == 0;
  if (__builtin_cpu_supports("avx")) {
    unsigned char lanes[64], got[64];
    for (int i = 0; i < 64; ++i) lanes[i] = (unsigned char)(seed + (unsigned long)i * 5);
    __asm__ volatile(
        "vmovdqu 0(%0), %%ymm6\n vmovdqu 32(%0), %%ymm13\n movl $30000, %%ecx\n 1: decl %%ecx\n jnz 1b\n"
        "vmovdqu %%ymm6, 0(%1)\n vmovdqu %%ymm13, 32(%1)\n vzeroupper\n"
        :
        : "S"(lanes), "D"(got)
        : "rcx", "xmm6", "xmm13", "memory", "cc");
    same = same && memcmp(lanes, got, 64) == 0;
  }
#else
  double sum = 0, again = 0;
  for (int i = 1; i < 5000; ++i) sum += (double)(seed + (unsigned long)i) / i;
  for (int i = 1; i < 5000; ++i) again += (double)(seed + (unsigned long)i) / i;
  same = sum == again;
#endif
  return same;
}

static void *nothing(void *unused) { return unused; }
static void *checks(void *unused) {
  (void)unused;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  sigprocmask(SIG_SETMASK, NULL, &all);  // the kernel keeps some open
  unsigned char *kept[64] = {0};
  for (unsigned long seed = 1; !stop; ++seed) {
    if (!registers_hold(seed)) tell("registers", (long)seed);
    unsigned char **slot = &kept[seed % 64];
    if (*slot != NULL)
      for (int i = 0; i < 500; ++i)
        if ((*slot)[i] != (unsigned char)(seed % 64 + 1)) tell("data", i);
    free(*slot);
    *slot = malloc(500 + seed % 4000);
    memset(*slot, (int)(seed % 64 + 1), 500);
    if (seed % 16 == 0) check_signals(&all);
    if (seed % 64 == 0) usleep(500);  // the processor is shared with other tests
  }
  return NULL;
}

// Small stacks, as of coroutines: data lies around them.
static ucontext_t outside, fiber;
static void fiber_body(void) {
  while (!stop) {
    for (volatile int i = 0; i < 100000; ++i) {
    }
    usleep(500);
  }
  swapcontext(&fiber, &outside);
}
static void *small_stack(void *unused) {
  (void)unused;
  unsigned char *area = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(area, 0x5a, 1 << 20);
  getcontext(&fiber);
  fiber.uc_stack.ss_sp = area + (512 << 10);
  fiber.uc_stack.ss_size = 4096;
  fiber.uc_link = &outside;
  makecontext(&fiber, fiber_body, 0);
  swapcontext(&outside, &fiber);
  for (int i = (512 << 10) - 1; i >= 0; --i)
    if (area[i] != 0x5a) return tell("written below a small stack", (512 << 10) - i), NULL;
  return NULL;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// Each waits 0.2 s, or without end, and says when it came back early or with an error.
static int pipe_ends[2], epoll_file;
static unsigned futex_word;
static sem_t semaphore;
enum { kNanosleep, kPoll, kSelect, kFutex, kClock, kTimed, kEndless };
static const char *const names[] = {"nanosleep", "poll", "select", "futex", "clock_nanosleep", "sem_timedwait"};
static void *waits(void *which) {
  const long kind = (long)which;
  const struct timespec pause = {0, 200000000};
  while (!stop) {
    const double start = seconds();
    long result = 0;
    struct timespec until;
    struct pollfd one = {pipe_ends[0], POLLIN, 0};
    struct timeval tv = {0, 200000};
    fd_set set;
    errno = 0;
    switch (kind) {
      case kNanosleep: result = nanosleep(&pause, NULL); break;
      case kPoll: result = poll(&one, 1, 200); break;
      case kSelect:
        FD_ZERO(&set);
        FD_SET(pipe_ends[0], &set);
        result = select(pipe_ends[0] + 1, &set, NULL, NULL, &tv);
        break;
      case kFutex:
        result = syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, 0, &pause, NULL, 0);
        if (result == -1 && errno == ETIMEDOUT) result = 0;
        break;
      case kClock:
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += (until.tv_nsec + 200000000) / 1000000000;
        until.tv_nsec = (until.tv_nsec + 200000000) % 1000000000;
        result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        break;
      case kTimed:
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += (until.tv_nsec + 200000000) / 1000000000;
        until.tv_nsec = (until.tv_nsec + 200000000) % 1000000000;
        result = sem_timedwait(&semaphore, &until);
        if (result == -1 && errno == ETIMEDOUT) result = 0;
        break;
    }
    if (stop) break;
    if (result != 0) {
      fprintf(stderr, "%s: errno %d\n", names[kind], errno);
      tell("a call returned", result);
    } else if (seconds() - start < 0.199) {
      tell(names[kind], (long)((seconds() - start) * 1000));
    }
  }
  return NULL;
}
static int pipes_never[2];
static void *reads(void *unused) {
  (void)unused;
  char byte;
  const long got = read(pipes_never[0], &byte, 1);
  if (!stop) tell("read returned", got);
  return NULL;
}
static void *epolls(void *unused) {
  (void)unused;
  struct epoll_event event;
  int got;
  do {
    got = epoll_wait(epoll_file, &event, 1, -1);
  } while (got < 0 && errno == EINTR && killed);
  if (!stop) tell("epoll_wait without end returned", got < 0 ? -errno : got);
  return NULL;
}

int main(int count, char **words) {
  const int blocking = count > 1 && atoi(words[1]) != 0;
  killed = count > 2;
  struct sigaction action = {0};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, NULL);
  action.sa_flags = 0;
  action.sa_handler = SIG_IGN;
  sigaction(SIGTRAP, &action, NULL);
  sigaction(SIGUSR2, &action, NULL);
  free(malloc(100));
  sem_init(&semaphore, 0, 0);
  epoll_file = epoll_create1(0);
  struct epoll_event event = {EPOLLIN, {0}};
  if (pipe(pipe_ends) != 0 || pipe(pipes_never) != 0) return 9;
  epoll_ctl(epoll_file, EPOLL_CTL_ADD, pipe_ends[0], &event);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  pthread_t threads[16];
  int started = 0;
  pthread_create(&threads[0], NULL, nothing, NULL);  // libc takes signals of its own with the first
  pthread_join(threads[0], NULL);
  handlers(before);
  pthread_create(&threads[started++], NULL, checks, NULL);
  pthread_create(&threads[started++], NULL, checks, NULL);
  pthread_create(&threads[started++], NULL, small_stack, NULL);
  pthread_create(&threads[started++], NULL, faults, NULL);
  for (long kind = 0; kind < kEndless; ++kind) pthread_create(&threads[started++], NULL, waits, (void *)kind);
  pthread_create(&threads[started++], NULL, reads, NULL);
  pthread_create(&threads[started++], NULL, epolls, NULL);
  if (blocking) pthread_sigmask(SIG_SETMASK, &all, NULL);
  if (write(2, "up\n", 3) != 3) return 9;
  char line[8];
  const long got = read(0, line, sizeof line);
  if (got != 0) tell("read of the input returned", got);
  stop = 1;
  if (write(pipe_ends[1], "", 1) != 1 || write(pipes_never[1], "", 1) != 1) return 9;
  for (int i = 0; i < started; ++i) pthread_join(threads[i], NULL);
  pthread_sigmask(SIG_SETMASK, &none, NULL);
  struct sigaction now[65];
  handlers(now);
  for (int n = 1; n <= 64; ++n)
    if (memcmp(&now[n], &before[n], sizeof now[n]) != 0) tell("handler changed", n);
  fault();
  return wrong != 0;
}
