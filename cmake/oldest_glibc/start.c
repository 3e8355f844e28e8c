/* How a program starts. Before glibc 2.34 it runs its own constructors; the start files of today leave that to libc. */
#if defined(__aarch64__)
#define OLDEST_GLIBC "GLIBC_2.17"
#else
#define OLDEST_GLIBC "GLIBC_2.2.5"
#endif

typedef void (*function)(int, char**, char**);
typedef int (*program)(int, char**, char**);
extern const function __init_array_start[] __attribute__((visibility("hidden")));
extern const function __init_array_end[] __attribute__((visibility("hidden")));
void _init(void);
__asm__(".symver oldest_start, __libc_start_main@" OLDEST_GLIBC);
int oldest_start(program, int, char**, function, void (*)(void), void (*)(void), void*);
int __wrap___libc_start_main(program, int, char**, function, void (*)(void), void (*)(void), void*);

static void construct(int argc, char** argv, char** environment) {
  _init();
  for (const function* next = __init_array_start; next != __init_array_end; ++next) (*next)(argc, argv, environment);
}

int __wrap___libc_start_main(program body, int argc, char** argv, function init, void (*fini)(void),
                             void (*at_exit)(void), void* stack_end) {
  (void)init;
  (void)fini;
  return oldest_start(body, argc, argv, construct, 0, at_exit, stack_end);
}
