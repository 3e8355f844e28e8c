/* Calls exit in the handler of a signal that strikes the allocator: exit_probe WORK.STEP. Each work begins with what is
   done before; then the processor stops after each instruction. At the step so numbered the process ends with status
   23, at the end of the work too, after a line with the number of steps. In C: a program that frees blocks during exit
   would break the rules for handlers itself. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { kLeft = 23, kTrapFlag = 0x100 };

static volatile long steps, last_step;

#if defined(__x86_64__)
static void on_step(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  steps = steps + 1;
  if (steps != last_step) return;
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)kTrapFlag;
  exit(kLeft);
}
#define BEGIN_STEPS() __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc")
#define END_STEPS() __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc")
#else
static void on_step(int number, siginfo_t* info, void* context) { (void)number, (void)info, (void)context; }
#define BEGIN_STEPS()
#define END_STEPS()
#endif

static void* blocks[40];

static void take(size_t bytes, int count) {
  for (int i = 0; i < count; ++i) blocks[i] = malloc(bytes);
}
static void give_back(int from, int to) {
  for (int i = from; i < to; ++i) free(blocks[i]);
}

/* Refills and flushes of slab blocks, class runs, runs, moves, own mappings. */
static void work(int number) {
  switch (number) {
    case 0: take(100, 1); BEGIN_STEPS(); take(700, 1); break;
    case 1: take(200000, 1); BEGIN_STEPS(); take(300000, 1); break;
    case 5: take(5000, 40); give_back(0, 28); BEGIN_STEPS(); give_back(28, 40); break;
    case 2: take(50000, 8); give_back(0, 5); BEGIN_STEPS(); give_back(5, 8); break;
    case 3: take(50000, 6); give_back(0, 6); BEGIN_STEPS(); take(50000, 4); break;
    case 4: take(200000, 3); give_back(0, 1); BEGIN_STEPS(); give_back(1, 3); break;
    case 6: take(2000000, 1); BEGIN_STEPS(); give_back(0, 1); break;
    case 7: take(50000, 1); BEGIN_STEPS(); blocks[0] = realloc(blocks[0], 70000); break;
    case 8: take(40 << 20, 1); BEGIN_STEPS(); free(realloc(blocks[0], 50 << 20)); break;
    default: exit(1);
  }
  END_STEPS();
}

int main(int count, char** arguments) {
  struct sigaction action;
  char* step = NULL;
  if (count < 2) return 1;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, NULL);
  const long number = strtol(arguments[1], &step, 10);
  last_step = *step == '.' ? strtol(step + 1, NULL, 10) : 0;
  work((int)number);
  fprintf(stderr, "%ld\n", steps);
  return kLeft;
}
