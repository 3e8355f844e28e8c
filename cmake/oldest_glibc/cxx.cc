// What was renewed in libstdc++, and in libm for the programs in C++.
#include <condition_variable>
#include <mutex>
#include <new>

#if defined(__aarch64__)
#define OLDEST_GLIBC "GLIBC_2.17"
#else
#define OLDEST_GLIBC "GLIBC_2.2.5"
#endif

extern "C" {

// libstdc++ reads it inline; a program that says no uses atomics always.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

[[noreturn]] void __wrap__ZSt28__throw_bad_array_new_lengthv() { throw std::bad_array_new_length(); }

asm(".symver oldest_exp, exp@" OLDEST_GLIBC);
double oldest_exp(double exponent);
double __wrap_exp(double exponent) { return oldest_exp(exponent); }

asm(".symver oldest_log, log@" OLDEST_GLIBC);
double oldest_log(double value);
double __wrap_log(double value) { return oldest_log(value); }

asm(".symver oldest_wait, _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
void oldest_wait(std::condition_variable*, std::unique_lock<std::mutex>&);
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                      std::unique_lock<std::mutex>& lock) {
  oldest_wait(condition, lock);
}
}
