/* glibc's allocator with a fixed delay at each allocation and each free.
 *
 * FREESTONE_CONTROL_SLOW_NS is the delay in nanoseconds per call, as a decimal with an optional fraction (default 1).
 * The delay is a chain of additions through which the pointer itself passes, so that the CPU can neither skip it nor do
 * it beside other work. Its length is set once, from the clock, when the library is loaded. It touches no memory, so it
 * neither evicts caches nor sleeps. One step is about one cycle; 0 leaves only the cost of the call.
 */
#include <time.h>

static void* control_delayed(void* pointer);
#define CONTROL_AFTER_ALLOC(pointer, bytes) control_delayed(pointer)
#define CONTROL_BEFORE_FREE(pointer) control_delayed(pointer)
#include "forward.h"

enum { kCalibrationSteps = 1 << 14, kCalibrationRounds = 9, kMaximumSteps = 1 << 24 };

static uint64_t delay_steps;

/* The barrier keeps the compiler from folding the chain; each step waits for the one before it. */
static inline uintptr_t control_chain(uintptr_t x, uint64_t steps) {
  for (uint64_t i = 0; i < steps; ++i) {
    x += 1;
    __asm__ volatile("" : "+r"(x));
  }
  return x - steps;
}

static void* control_delayed(void* pointer) { return (void*)control_chain((uintptr_t)pointer, delay_steps); }

static double control_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double control_wanted_ns(void) {
  const char* text = getenv("FREESTONE_CONTROL_SLOW_NS");
  if (text == NULL || *text == '\0') return 1.0;
  double value = 0, unit = 1;
  int fraction = 0;
  for (; *text != '\0'; ++text) {
    if (*text == '.' && !fraction) {
      fraction = 1;
    } else if (*text >= '0' && *text <= '9') {
      value = value * 10 + (*text - '0');
      if (fraction) unit *= 10;
    } else {
      return 1.0;
    }
  }
  return value / unit;
}

/* The smallest of several measurements: an interrupted round only ever reads too long. */
__attribute__((constructor)) static void control_calibrate(void) {
  double best = 1e18;
  for (int round = 0; round < kCalibrationRounds; ++round) {
    const double start = control_now_ns();
    uintptr_t end = control_chain(0, kCalibrationSteps);
    __asm__ volatile("" : "+r"(end));
    const double spent = control_now_ns() - start;
    if (spent < best) best = spent;
  }
  const double steps = control_wanted_ns() * kCalibrationSteps / best + 0.5;
  delay_steps = steps > kMaximumSteps ? kMaximumSteps : (uint64_t)steps;
}
