// The attack suite: draws them, runs each in a child, counts kind by kind.
//
//   enumerated [--rounds N] [--seed S] [--kind TEXT] [--flush BLOCKS] [--holes] [--expect SHARE|promised] [--json]
//
// Half of the attacks of a kind are at fixed offsets and sizes, half are drawn anew from the seed, which is printed.
// The verdict names the worst kind first; with --json it is one object, kinds in the order of the table. Exit status 1:
// a twin failed, or a kind is below what is expected.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

namespace enumerated {

std::size_t flush_blocks = kFlushBlocksMax;

namespace {

volatile int* begun;  // shared with the child: the misuse was reached

enum class Outcome { seen, trapped, held, missed, not_applicable, failed_before };

constexpr unsigned kHolesShown = 12;
constexpr std::size_t kHoleBytes = 128;

// Nothing here allocates: a child begins with its parent's heap, and so every attack meets the same one, whatever came
// before it, however the program was called.
struct Verdict {
  const Kind* kind;
  unsigned seen, trapped, held, missed, twins_failed, failed_before;
  unsigned missed_as_documented;  // of `missed`
  unsigned holes;
  char hole[kHolesShown][kHoleBytes];
  unsigned all() const { return seen + trapped + held + missed; }
  double share_without(unsigned misses) const { return all() == 0 ? 1 : 1 - static_cast<double>(misses) / all(); }
  double share() const { return share_without(missed); }
  bool keeps_promise() const { return share_without(missed - missed_as_documented) >= kind->promised; }
};

const bool threads_are_counted = dlsym(RTLD_DEFAULT, "__nptl_nthreads") != nullptr;
// The two misses that are documented: the frees before spent what a process may at first (HARDENING.md, the allowance),
// and larger blocks are then reused as they are, but one in eight; or libc does not count its threads
// (COMPATIBILITY.md). The share counts every miss all the same.
bool may_be_missed(const Attack& attack) {
  if (!threads_are_counted && (attack.moment == Moment::at_trim || attack.moment == Moment::at_exit)) return true;
  constexpr std::size_t kWordBehind = 8;  // it lies in the same run
  if (attack.state != State::reused || attack.bytes + kWordBehind <= std::size_t{1} << 20) return false;
  const double mib = static_cast<double>(attack.bytes) / (1 << 20);
  return kReuses * std::min(8.0, 0.5 + 4 * mib) > 500;  // of 512 MiB; a block takes a little more than its bytes
}

Outcome run(const Kind& kind, const Attack& attack, int* status) {
  *begun = 0;
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 1);
    if (!std::getenv("ENUMERATED_LOUD")) dup2(null, 2);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(1200);  // none needs a hundredth of it
    kind.run(attack);
    _exit(kNothingSeen);
  }
  waitpid(child, status, 0);
  if (WIFSIGNALED(*status)) {
    if (*begun == 0 || attack.twin) return Outcome::failed_before;
    return WTERMSIG(*status) == SIGABRT ? Outcome::seen : Outcome::trapped;
  }
  const int said = WEXITSTATUS(*status);
  return said == kNothingSeen     ? Outcome::missed
         : said == kHeld          ? Outcome::held
         : said == kNotApplicable ? Outcome::not_applicable
                                  : Outcome::failed_before;
}

template <class T>
T drawn(Random& random, unsigned allowed, unsigned index, bool fixed) {
  unsigned values[16];
  unsigned count = 0;
  for (unsigned v = 0; v < static_cast<unsigned>(T::count); ++v)
    if ((allowed >> v & 1) != 0) values[count++] = v;
  if (count == 0) return T{};
  return static_cast<T>(values[fixed ? index % count : random.below(count)]);
}

// Borders of the usual size classes, one less and one more; now and then a larger block.
std::size_t size_of(Random& random, unsigned index, bool fixed) {
  static const std::size_t ends[] = {1,    8,    24,    32,    40,    48,    56,    64,     100,    120,    128,  200,
                                     248,  256,  504,   512,   1000,  1024,  1500,  2040,   2048,   3000,   4088, 4096,
                                     6000, 9000, 20000, 32760, 32768, 40000, 65536, 131072, 200000, 1 << 20};
  constexpr std::size_t kEnds = sizeof ends / sizeof ends[0];
  if (fixed) return ends[index % kEnds] + index / kEnds % 3 + (index % kEnds == 0 ? 1 : 0) - 1;
  if (random.below(10) == 0) return 32768 + random.below(300000);
  const std::size_t doubling = 3 + random.below(13);
  const std::size_t step = (std::size_t{1} << doubling) / 8;
  const std::size_t border = (std::size_t{1} << doubling) + (step < 16 ? 16 : step) * random.below(8);
  return border + 8 + random.below(3) - 8 * random.below(2) - 9 + (border < 17 ? 16 : 0);
}

long offset_of(Random& random, Offsets offsets, std::size_t bytes, unsigned index, bool fixed) {
  if (offsets == Offsets::inside) {
    const std::size_t borders[] = {
        0, bytes / 2, bytes - 1, bytes / 4, 8, 16, bytes / 3, 24, 32, bytes - (bytes > 33 ? 33 : 1), bytes * 3 / 4};
    if (!fixed) return static_cast<long>(random.below(bytes));
    const std::size_t at = borders[index % (sizeof borders / sizeof borders[0])];
    return static_cast<long>(at < bytes ? at : bytes - 1);
  }
  struct Range {
    long first, step;
    unsigned count;
  };
  static constexpr Range kRanges[] = {{0, 0, 1},  {/* inside */}, {1, 1, 64},   {4096, 0, 1},
                                      {1, 1, 64}, {2, 1, 7},      {-1, -1, 32}, {-1, -1, 8}};  // as in Offsets
  const Range& range = kRanges[static_cast<unsigned>(offsets)];
  if (range.count == 1) return range.first;
  return range.first + range.step * static_cast<long>(fixed ? index % range.count : random.below(range.count));
}

void note_hole(Verdict& verdict, const char* what, const Attack& attack) {
  if (verdict.holes == kHolesShown) return;
  const Kind& kind = *verdict.kind;
  char offset[32] = "";
  if (kind.offsets != Offsets::none) std::snprintf(offset, sizeof offset, " at %ld", attack.offset);
  std::snprintf(verdict.hole[verdict.holes++], kHoleBytes, "%s%zu bytes%s%s%s, %s, %s (%llu)", what, attack.bytes,
                offset, kind.means != 0 ? " by " : "", kind.means != 0 ? name_of(attack.means) : "",
                name_of(attack.state), name_of(attack.moment), static_cast<unsigned long long>(attack.seed));
}

void judge(Verdict& verdict, unsigned rounds, std::uint64_t seed) {
  const Kind& kind = *verdict.kind;
  Random random{seed};
  const unsigned salt = static_cast<unsigned>(seed % 1000);
  for (unsigned i = 0; i < rounds; ++i) {
    const bool fixed = i % 2 == 0;
    Attack attack{};
    attack.bytes = size_of(random, i / 2 * 7 + salt, fixed);
    attack.offset = offset_of(random, kind.offsets, attack.bytes, i / 2 + salt, fixed);
    attack.means = drawn<Means>(random, kind.means, i / 2 * 5 + salt, fixed);
    attack.state = drawn<State>(random, kind.states, i / 2 * 3 + salt, fixed);
    attack.moment = drawn<Moment>(random, kind.moments, i / 2, fixed);
    attack.seed = random.next();
    int status = 0;
    attack.twin = true;
    const Outcome twin = run(kind, attack, &status);
    if (twin == Outcome::not_applicable) continue;
    if (status != 0 && twin != Outcome::held) {
      ++verdict.twins_failed;
      note_hole(verdict, "TWIN: ", attack);
      continue;
    }
    attack.twin = false;
    const Outcome outcome = run(kind, attack, &status);
    verdict.seen += outcome == Outcome::seen;
    verdict.trapped += outcome == Outcome::trapped;
    verdict.held += outcome == Outcome::held;
    verdict.failed_before += outcome == Outcome::failed_before;
    verdict.missed += outcome == Outcome::missed;
    verdict.missed_as_documented += outcome == Outcome::missed && may_be_missed(attack);
    if (outcome == Outcome::failed_before || outcome == Outcome::missed)
      note_hole(verdict, outcome == Outcome::missed ? "" : "BEFORE: ", attack);
  }
}

void print_json(const Verdict* const* verdicts, std::size_t count, unsigned rounds, std::uint64_t seed) {
  std::printf("{\"seed\": %llu, \"rounds\": %u, \"kinds\": [", static_cast<unsigned long long>(seed), rounds);
  for (std::size_t i = 0; i < count; ++i) {
    const Verdict* const v = verdicts[i];
    std::printf(
        "%s\n  {\"kind\": \"%s\", \"seen\": %u, \"trapped\": %u, \"held\": %u, \"missed\": %u, "
        "\"twins_failed\": %u, \"failed_before\": %u}",
        i == 0 ? "" : ",", v->kind->name, v->seen, v->trapped, v->held, v->missed, v->twins_failed, v->failed_before);
  }
  std::printf("]}\n");
}

}  // namespace

void misuse_begins() { *begun = 1; }

int main(int count, char** arguments) {
  unsigned rounds = 40;
  std::uint64_t seed = static_cast<std::uint64_t>(time(nullptr)) * 1000003 + static_cast<std::uint64_t>(getpid());
  const char* only = "";
  const char* expected = "";
  bool show_holes = false, json = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    const char* const value = i + 1 < count ? arguments[i + 1] : "";
    if (argument == "--rounds")
      rounds = static_cast<unsigned>(std::atoi(value)), ++i;
    else if (argument == "--seed")
      seed = std::strtoull(value, nullptr, 10), ++i;
    else if (argument == "--kind")
      only = value, ++i;
    else if (argument == "--flush")
      flush_blocks = std::strtoul(value, nullptr, 10), ++i;
    else if (argument == "--expect")
      expected = value, ++i;
    else if (argument == "--holes")
      show_holes = true;
    else if (argument == "--json")
      json = true;
    else
      return std::fprintf(
                 stderr,
                 "enumerated: unknown argument %s; expected --rounds, --seed, --kind, --flush, --holes, --expect or "
                 "--json\n",
                 arguments[i]),
             2;
  }
  if (flush_blocks == 0 || flush_blocks > kFlushBlocksMax)
    return std::fprintf(stderr, "enumerated: --flush %zu; expected 1 to %zu\n", flush_blocks, kFlushBlocksMax), 2;
  static char output[1 << 12];
  setvbuf(stdout, output, _IOFBF, sizeof output);
  begun = static_cast<volatile int*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (!json) std::printf("seed %llu, %u rounds of each kind\n", static_cast<unsigned long long>(seed), rounds);
  std::fflush(stdout);
  static Verdict verdicts[kKindsMax];
  static const Verdict* judged[kKindsMax];
  std::size_t kinds = 0;
  for (std::size_t k = 0; k < kKindCount; ++k) {
    if (std::strstr(kKinds[k].name, only) == nullptr) continue;
    verdicts[k].kind = &kKinds[k];
    judge(verdicts[k], rounds, seed + k * 7919);
    judged[kinds++] = &verdicts[k];
  }
  if (json) return print_json(judged, kinds, rounds, seed), 0;
  std::stable_sort(judged, judged + kinds, [](const Verdict* a, const Verdict* b) { return a->share() < b->share(); });
  bool good = true;
  std::printf("%-44s %6s %6s %6s %6s %6s %6s\n", "kind", "share", "seen", "trap", "held", "missed", "of");
  for (std::size_t i = 0; i < kinds; ++i) {
    const Verdict& v = *judged[i];
    const bool enough = std::strcmp(expected, "promised") == 0 ? v.keeps_promise() : v.share() >= std::atof(expected);
    const bool bad = v.twins_failed != 0 || v.failed_before != 0 || !enough;
    good = good && !bad;
    std::printf("%-44s %5.1f%% %6u %6u %6u %6u %6u%s\n", v.kind->name, 100 * v.share(), v.seen, v.trapped, v.held,
                v.missed, v.all(), bad ? "  <-- bad" : "");
    if (v.twins_failed != 0) std::printf("    %u twins failed\n", v.twins_failed);
    if (v.failed_before != 0) std::printf("    %u died before the misuse\n", v.failed_before);
    if (v.missed_as_documented != 0) std::printf("    %u missed as the documents say\n", v.missed_as_documented);
    for (unsigned h = 0; h < v.holes; ++h)
      if (show_holes || bad) std::printf("    %s\n", v.hole[h]);
  }
  return good ? 0 : 1;
}

}  // namespace enumerated

int main(int count, char** arguments) { return enumerated::main(count, arguments); }
