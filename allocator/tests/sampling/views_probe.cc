// A history whose profile is known exactly: views_probe [api]. Blocks of 1000 bytes, so that the bytes of a place are
// its count times 1000.
//   short_lived   allocates 300, frees them after 30 ms       (the peak falls into this)
//   long_lived    allocates 200, keeps them
//   freed_at_once allocates 500, frees each at once
// With "api" the profile is off at the start, on for all this, off for another 100 of long_lived, and written to
// argv[2] by the API.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define PLACE __attribute__((noinline, visibility("default")))

extern "C" {
PLACE void* long_lived() {
  void* block = malloc(1000);
  asm volatile("" : "+r"(block));
  return block;
}
PLACE void* short_lived() {
  void* block = malloc(1000);
  asm volatile("" : "+r"(block));
  return block;
}
PLACE void freed_at_once() {
  void* block = malloc(1000);
  asm volatile("" : "+r"(block));
  free(block);
}
}

static void* kept[400];

int main(int count, char** arguments) {
  const bool api = count > 1 && strcmp(arguments[1], "api") == 0;
  const auto start = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "freestone_prof_start"));
  const auto stop = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "freestone_prof_stop"));
  const auto dump = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_DEFAULT, "freestone_prof_dump"));
  if (api) {
    for (int i = 0; i < 100; ++i) kept[300 + i] = long_lived();
    start();
  }
  for (int i = 0; i < 200; ++i) kept[i] = long_lived();
  static void* brief[300];
  for (void*& block : brief) block = short_lived();
  usleep(30000);
  for (void* block : brief) free(block);
  for (int i = 0; i < 500; ++i) freed_at_once();
  if (api) {
    stop();
    for (int i = 0; i < 100; ++i) kept[200 + i] = long_lived();
    const int result = dump(arguments[2]);
    printf("dump %d\n", result);
  }
  printf("%zu %zu %zu\n", reinterpret_cast<size_t>(&long_lived), reinterpret_cast<size_t>(&short_lived),
         reinterpret_cast<size_t>(&freed_at_once));
  fflush(stdout);
  return kept[0] == nullptr;
}
