#include "points.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace workload {
namespace {

constexpr std::size_t kMostMerged = 64;  // different figures of one workload
constexpr std::uint64_t kMagic = 0x66726565706f696e;

struct Head {
  std::uint64_t magic;
  Tally tally;
  std::uint64_t other_failures;
  std::uint64_t figures;
  std::uint64_t caveats;
};

bool read_all(int fd, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
bool write_all(int fd, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t wrote = ::write(fd, at, bytes);
    if (wrote <= 0) return false;
    at += wrote;
    bytes -= static_cast<std::size_t>(wrote);
  }
  return true;
}

bool receive(int fd, Report& report) {
  Head head{};
  if (!read_all(fd, &head, sizeof head) || head.magic != kMagic || head.figures > Report::kFigures ||
      head.caveats > Report::kCaveats)
    return false;
  report.tally = head.tally;
  report.other_failures = head.other_failures;
  report.figure_count = head.figures;
  report.caveat_count = head.caveats;
  return read_all(fd, report.figures, head.figures * sizeof(Figure)) &&
         read_all(fd, report.caveats, head.caveats * sizeof report.caveats[0]);
}

[[noreturn]] void point_failed(std::span<const char* const> words, int status) {
  char line[512];
  std::size_t used = 0;
  for (const char* word : words)
    used +=
        static_cast<std::size_t>(std::snprintf(line + used, sizeof line - used, " %s", word)) % (sizeof line - used);
  const bool killed = WIFSIGNALED(status);
  std::fprintf(stderr, "freestone-workload: the point%s ended by %s %d\n", line, killed ? "signal" : "exit status",
               killed ? WTERMSIG(status) : WEXITSTATUS(status));
  std::fflush(stderr);
  const int code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  ::_exit(code == 0 ? 1 : code);
}

}  // namespace

int hand_over(const Report& report, int fd) {
  Head head{kMagic, report.tally, report.other_failures, report.figure_count, report.caveat_count};
  const bool good = write_all(fd, &head, sizeof head) &&
                    write_all(fd, report.figures, report.figure_count * sizeof(Figure)) &&
                    write_all(fd, report.caveats, report.caveat_count * sizeof report.caveats[0]);
  if (!good) return 1;
  return report.failures() == 0 ? 0 : 3;
}

void run_point(std::span<const char* const> words, Report& report) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    std::perror("freestone-workload: pipe");
    ::_exit(1);
  }
  constexpr int kChildFd = 9;
  const char* argv[40] = {"freestone-workload", "--point-fd=9"};
  std::size_t count = 2;
  for (const char* word : words)
    if (count + 1 < std::size(argv)) argv[count++] = word;
  const pid_t child = ::vfork();  // no allocation between here and the exec: malloc may answer NULL
  if (child == 0) {
    if (::dup2(ends[1], kChildFd) != kChildFd) ::_exit(1);
    ::execve("/proc/self/exe", const_cast<char* const*>(argv), environ);
    ::_exit(1);
  }
  if (child < 0) {
    std::perror("freestone-workload: vfork");
    ::_exit(1);
  }
  ::close(ends[1]);
  const bool complete = receive(ends[0], report);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  if (!complete || !WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3))
    point_failed(words, status);
}

void absorb(Report& report, const Report& part) {
  report.tally.add(part.tally);
  report.other_failures += part.other_failures;
  for (std::size_t i = 0; i < part.caveat_count; ++i) {
    bool known = false;
    for (std::size_t k = 0; k < report.caveat_count; ++k) known |= std::strcmp(report.caveats[k], part.caveats[i]) == 0;
    if (!known) report.caveat("%s", part.caveats[i]);
  }
}

namespace {

// What one figure adds up to over all points.
struct Merge {
  char name[48];
  char unit[16];
  double log_sum, sum, largest;
  bool positive;
  std::uint64_t points, samples;
  Better better;

  void begin(const Figure& figure) {
    *this = {};
    std::memcpy(name, figure.name, sizeof name);
    std::memcpy(unit, figure.unit, sizeof unit);
    better = figure.better;
    positive = true;
  }
  void add(const Figure& figure) {
    positive = positive && figure.value > 0;
    log_sum += std::log(figure.value > 0 ? figure.value : 1);
    sum += figure.value;
    largest = figure.value > largest ? figure.value : largest;
    samples += figure.samples;
    ++points;
  }
  double value() const {
    if (std::strcmp(unit, "KiB") == 0) return largest;
    if (std::strcmp(unit, "count") == 0) return sum;
    return positive ? std::exp(log_sum / static_cast<double>(points)) : sum / static_cast<double>(points);
  }
};

}  // namespace

void run_sweep(const Args& args, std::size_t swept, Report& report) {
  const Value& values = args.value_at(swept);
  OwnArray<Report> place(1);
  OwnArray<Merge> merges(kMostMerged);
  std::size_t merged = 0;
  char texts[24][128];
  const char* words[25];
  for (std::size_t v = 0; v < values.count; ++v) {
    const auto point = static_cast<unsigned long long>(values.list[v]);
    std::size_t count = 0;
    words[count++] = args.workload().name;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const Param& param = args.param(i);
      const Value& value = args.value_at(i);
      auto number = static_cast<unsigned long long>(value.list[0]);
      if (i == swept) number = point;
      if (std::strcmp(param.name, "idle-ms") == 0) number = 0;
      if (param.kind == Param::Kind::choice)
        std::snprintf(texts[i], sizeof texts[i], "--%s=%s", param.name, value.text);
      else std::snprintf(texts[i], sizeof texts[i], "--%s=%llu", param.name, number);
      words[count++] = texts[i];
    }
    Report& part = *new (&place[0]) Report;
    run_point({words, count}, part);
    absorb(report, part);
    for (std::size_t f = 0; f < part.figure_count; ++f) {
      const Figure& figure = part.figures[f];
      std::size_t m = 0;
      while (m < merged && std::strcmp(merges[m].name, figure.name) != 0) ++m;
      if (m == kMostMerged) continue;
      if (m == merged) merges[merged++].begin(figure);
      merges[m].add(figure);
      if (figure.better == Better::neither) continue;
      char name[sizeof figure.name];
      std::snprintf(name, sizeof name, "%.24s_%s_%llu", figure.name, args.param(swept).name, point);
      report.add(name, figure.value, figure.unit, figure.better, figure.samples);
    }
  }
  for (std::size_t m = 0; m < merged; ++m)
    report.add(merges[m].name, merges[m].value(), merges[m].unit, merges[m].better, merges[m].samples);
  report.caveat(
      "%zu points of %s, each in a fresh process; the figures without a point's value are the geometric mean (times, "
      "rates), the "
      "largest (KiB) or the sum (counts); idle_rss is not read",
      values.count, args.param(swept).name);
}

}  // namespace workload
