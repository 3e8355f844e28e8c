// freestone-replay: makes the calls of a trace under the allocator that serves this process, and prints their cost.
//
//   freestone-replay plan [--process N] [--threads N] TRACE PLAN
//   freestone-replay info [--partial] TRACE
//   freestone-replay rows [--partial] TRACE >ROWS
//   freestone-replay trace <ROWS >TRACE
//   freestone-replay run [--pace X] [--copies N] [--idle-ms N] [--own-kib N] [--null] PLAN
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "replayer/info.h"
#include "replayer/report.h"
#include "replayer/rows.h"
#include "replayer/run.h"

namespace __gnu_cxx {
__attribute__((weak)) void __freeres();  // libstdc++'s: returns what it keeps for exceptions that find no memory
}

namespace freestone::trace {
namespace {

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "freestone-replay: %s\n", text.c_str());
  std::exit(2);
}

struct Words {
  const char* plain[2];
  unsigned plain_count = 0;
  bool partial = false;
  PlanOptions plan;
  RunOptions run;
};

// Allocates nothing: the recorded calls find the heap as a program finds it.
Words parse(int count, char** words) {
  Words found{};
  for (int i = 2; i < count; i++) {
    const std::string_view word = words[i];
    if (word == "--null" || word == "--partial") {
      (word == "--null" ? found.run.null : found.partial) = true;
      continue;
    }
    if (!word.starts_with("--")) {
      if (found.plain_count == std::size(found.plain)) fail("'" + std::string(word) + "': one word too many");
      found.plain[found.plain_count++] = words[i];
      continue;
    }
    const auto described = [&] { return "'" + std::string(word) + " " + words[i] + "'"; };
    if (++i == count) fail("'" + std::string(word) + "' needs a value");
    char* end = nullptr;
    const double value = std::strtod(words[i], &end);
    if (*end || end == words[i] || value < 0 || value > 1e9) fail(described() + ": expected a number");
    if (word == "--process")
      found.plan.process = static_cast<uint32_t>(value);
    else if (word == "--threads")
      found.plan.threads = static_cast<uint32_t>(value);
    else if (word == "--pace")
      found.run.pace = value;
    else if (word == "--copies" && value >= 1 && value <= 1024)
      found.run.copies = static_cast<unsigned>(value);
    else if (word == "--own-kib")
      found.run.own_kib = value;
    else if (word == "--idle-ms")
      found.run.idle_ms = static_cast<unsigned>(value);
    else
      fail("unknown option " + described());
  }
  return found;
}

void make(const Words& words) {
  if (words.plain_count != 2) fail("expected: plan [--process N] [--threads N] TRACE PLAN");
  const Bytes plan = make_plan(read_trace(words.plain[0]), words.plan);
  FILE* file = std::fopen(words.plain[1], "wb");
  if (!file || std::fwrite(plan.data(), 1, plan.size(), file) != plan.size() || std::fclose(file) != 0)
    fail("'" + std::string(words.plain[1]) + "' cannot be written: " + std::strerror(errno));
}

void show(const Words& words) {
  if (words.plain_count != 1) fail("expected: info [--partial] TRACE");
  print_info(read_trace(words.plain[0], words.partial));
}

void show_rows(const Words& words) {
  if (words.plain_count != 1) fail("expected: rows [--partial] TRACE");
  TraceFile trace = read_trace(words.plain[0], words.partial);
  try {
    print_rows(std::move(trace), stdout);
  } catch (const Error& error) {
    throw Error(words.plain[0] + (": " + std::string(error.what())));
  }
}

// The bytes of rows come through standard input.
void make_trace() {
  Bytes rows;
  uint8_t part[1 << 16];
  while (const size_t count = std::fread(part, 1, sizeof part, stdin)) rows.insert(rows.end(), part, part + count);
  print_trace(rows, stdout);
}

// What was printed must have gone out.
int flushed() {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return 0;
  fail(std::string("standard output: ") + std::strerror(errno));
}

// Maps the file and makes it resident. As a file, it does not count as the allocator's memory.
std::span<const uint8_t> map(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
  struct stat about{};
  if (fd < 0 || fstat(fd, &about) != 0) fail("'" + std::string(path) + "' cannot be read: " + std::strerror(errno));
  void* memory = about.st_size && S_ISREG(about.st_mode)
                     ? mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0)
                     : MAP_FAILED;
  if (memory == MAP_FAILED) fail("'" + std::string(path) + "' cannot be mapped");
  close(fd);
  return {static_cast<const uint8_t*>(memory), static_cast<size_t>(about.st_size)};
}

int run(const Words& words) {
  if (words.plain_count != 1) fail("expected: run [--pace X] [--copies N] [--idle-ms N] [--own-kib N] [--null] PLAN");
  const Plan plan(map(words.plain[0]));
  const Outcome outcome = run_plan(plan, words.run);
  print_report(plan, words.run, outcome);
  std::fflush(stdout);
  return outcome.failures ? 3 : 0;
}

}  // namespace
}  // namespace freestone::trace

int main(int count, char** words) {
  using namespace freestone::trace;
  static char printed[BUFSIZ];  // keeps stdio from allocating among the recorded calls
  setvbuf(stdout, printed, _IOFBF, sizeof printed);
  const std::string_view verb = count > 1 ? words[1] : "";
  try {
    if (verb == "plan") return make(parse(count, words)), 0;
    if (verb == "info") return show(parse(count, words)), flushed();
    if (verb == "rows") return show_rows(parse(count, words)), flushed();
    if (verb == "trace") return make_trace(), flushed();
    if (__gnu_cxx::__freeres) __gnu_cxx::__freeres();
    if (verb == "run") return run(parse(count, words));
    fail("expected `plan`, `run`, `info`, `rows` or `trace`, found '" + std::string(verb) + "'");
  } catch (const std::exception& error) {
    fail(error.what());
  }
}
