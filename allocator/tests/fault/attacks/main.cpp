// freestone-attack CASE --size small|medium|large|any|BYTES --seed S [--twin] : runs one case in this process.
// freestone-attack list --json                                                : describes every case.
// freestone-attack probe                                                      : shows that malloc works, and whose it
// is.
// freestone-attack place BYTES                                                : used by the cases on predictability.
// freestone-attack hang [closed|flood|child]                                  : never ends; for the tests of the
// runner.
// The last arguments may be --parent PID: the process started by PID is killed when PID ends, however that comes about.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "harness.h"

namespace attack {
namespace {

const Family* const kFamilies[] = {&kDoubleFree,   &kInvalidFree,   &kOverflow,   &kUnderflow,
                                   &kUseAfterFree, &kUninitialised, &kMismatch,   &kZeroSize,
                                   &kMetadata,     &kRealloc,       &kArithmetic, &kPredictability};

constexpr std::size_t kSmallSizes[] = {16,  24,  32,  40,  48,  56,  64,  72,  88,  96,
                                       104, 120, 128, 152, 200, 232, 248, 256, 320, 504};
constexpr std::size_t kMediumSizes[] = {1024, 1040, 1500, 2040, 2048,  3000,  4072,
                                        4096, 6000, 8184, 8192, 12000, 16384, 20000};
constexpr std::size_t kLargeSizes[] = {65536, 98304, 131072, 135000, 200000, 262144, 400000, 524288, 1048576};

template <std::size_t N>
std::size_t pick(const std::size_t (&sizes)[N], std::uint64_t seed) {
  return sizes[Random(seed).below(N)];
}

// A size class's name stands for one of its sizes, chosen by the seed and the case. 0: not a size.
std::size_t parse_size(const char* text, std::uint64_t seed) {
  if (strcmp(text, "small") == 0 || strcmp(text, "any") == 0) return pick(kSmallSizes, seed);
  if (strcmp(text, "medium") == 0) return pick(kMediumSizes, seed);
  if (strcmp(text, "large") == 0) return pick(kLargeSizes, seed);
  char* end = nullptr;
  const unsigned long bytes = strtoul(text, &end, 10);
  return *end == '\0' && bytes >= 16 && bytes <= 4 * kMebibyte ? bytes : 0;
}

void say_owner() {
  Dl_info info{};
  void* const symbol = ::dlsym(RTLD_DEFAULT, "malloc");
  const char* const path = symbol != nullptr && ::dladdr(symbol, &info) != 0 ? info.dli_fname : "unknown";
  char line[4096];
  const int length = snprintf(line, sizeof line, "@@ OWNER %s\n", path);
  if (::write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) != length) ::_exit(5);
}

void print_sizes(const char* key, unsigned mask) {
  static constexpr struct {
    unsigned bit;
    const char* name;
  } kNames[] = {{kSmall, "small"}, {kMedium, "medium"}, {kLarge, "large"}, {kAny, "any"}};
  printf("\"%s\": [", key);
  const char* separator = "";
  for (const auto& each : kNames)
    if (mask & each.bit) {
      printf("%s\"%s\"", separator, each.name);
      separator = ", ";
    }
  printf("]");
}

// The texts of the tables hold no character that JSON would escape.
int list() {
  printf("[\n");
  const char* separator = "";
  for (const Family* const family : kFamilies)
    for (std::size_t i = 0; i < family->count; i++) {
      const Case& each = family->cases[i];
      printf("%s{\"id\": \"%s\", \"family\": \"%s\", \"about\": \"%s\", \"neutralised\": \"%s\", ", separator, each.id,
             family->name, each.about, family->neutralised);
      print_sizes("sizes", each.sizes);
      printf(", ");
      print_sizes("apart_sizes", each.apart_sizes);
      printf(", \"apart_reason\": \"%s\"}", each.apart_reason != nullptr ? each.apart_reason : "");
      separator = ",\n";
    }
  printf("\n]\n");
  return 0;
}

int probe() {
  say_owner();
  for (std::size_t bytes = 16; bytes <= kMebibyte; bytes *= 4) {
    Byte* const block = static_cast<Byte*>(opaque(::malloc(bytes)));
    if (block == nullptr) return 4;
    block[0] = block[bytes - 1] = 1;
    ::free(opaque(block));
  }
  return 0;
}

int place(const char* text) {
  const std::uintptr_t places[2] = {address_of(opaque(::malloc(strtoul(text, nullptr, 10)))),
                                    address_of(::dlsym(RTLD_NEXT, "getpid"))};
  return ::write(STDOUT_FILENO, places, sizeof places) == sizeof places ? 0 : 5;
}

// The kernel kills this process when its parent ends. One that ended before this call is known by its number.
void end_with_parent(const char* parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (parent != nullptr && ::getppid() != static_cast<pid_t>(strtol(parent, nullptr, 10))) ::_exit(6);
}

int hang(const char* how) {
  say_owner();
  if (strcmp(how, "child") == 0 && ::fork() != 0) return 0;
  if (strcmp(how, "closed") == 0) {
    ::close(STDOUT_FILENO);
    ::close(STDERR_FILENO);
  }
  while (strcmp(how, "flood") == 0) {
    if (::write(STDOUT_FILENO, "hang\n", 5) != 5) return 5;
  }
  for (;;) ::pause();
}

int usage(const char* problem, const char* value) {
  fprintf(stderr,
          "freestone-attack: %s: %s; expected CASE --size small|medium|large|any|16..4194304 --seed NUMBER [--twin], "
          "list --json, or probe\n",
          problem, value);
  return 2;
}

const Case* find_case(const char* id) {
  for (const Family* const family : kFamilies)
    for (std::size_t i = 0; i < family->count; i++)
      if (strcmp(family->cases[i].id, id) == 0) return &family->cases[i];
  return nullptr;
}

}  // namespace
}  // namespace attack

int main(int argc, char** argv) {
  using namespace attack;
  const bool has_parent = argc >= 3 && strcmp(argv[argc - 2], "--parent") == 0;
  end_with_parent(has_parent ? argv[argc - 1] : nullptr);
  if (has_parent) argc -= 2;
  if (argc < 2) return usage("no case given", "nothing");
  if (strcmp(argv[1], "list") == 0) return list();
  if (strcmp(argv[1], "probe") == 0) return probe();
  if (strcmp(argv[1], "place") == 0 && argc == 3) return place(argv[2]);
  if (strcmp(argv[1], "hang") == 0) return hang(argc == 3 ? argv[2] : "");
  const Case* const chosen = find_case(argv[1]);
  if (chosen == nullptr) return usage("no such case", argv[1]);
  const char* size_text = "small";
  std::uint64_t seed = 1;
  bool twin = false;
  for (int i = 2; i < argc; i++) {
    if (strcmp(argv[i], "--twin") == 0) {
      twin = true;
    } else if (strcmp(argv[i], "--size") == 0 && i + 1 < argc) {
      size_text = argv[++i];
    } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = strtoull(argv[++i], nullptr, 10);
    } else {
      return usage("unknown argument", argv[i]);
    }
  }
  for (const char* letter = chosen->id; *letter != '\0'; letter++)  // so that one seed is not one size for all cases
    seed = (seed ^ static_cast<Byte>(*letter)) * 1099511628211ULL;
  const std::size_t size = parse_size(size_text, seed);
  if (size == 0) return usage("not a size", size_text);
  say_owner();
  World world(size, seed, twin);
  chosen->run(world, chosen->params);
  return world.finish();
}
