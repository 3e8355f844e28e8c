#include "points.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

// All of it: `move` is read or write.
template <class Move, class Place>
bool move_all(Move move, int fd, Place* place, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t moved = move(fd, place + done, bytes - done);
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}
bool read_all(int fd, void* to, std::size_t bytes) { return move_all(::read, fd, static_cast<char*>(to), bytes); }
bool write_all(int fd, const void* from, std::size_t bytes) {
  return move_all(::write, fd, static_cast<const char*>(from), bytes);
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

int start_again(const char* const* words, int own_fd, int child_fd) {
  const pid_t child = ::vfork();
  if (child != 0) return child;
  if (own_fd >= 0 && ::dup2(own_fd, child_fd) != child_fd) ::_exit(1);
  ::execve("/proc/self/exe", const_cast<char* const*>(words), environ);
  ::_exit(1);
}

std::span<const Figure> run_point(std::span<const char* const> words, Report& report) {
  static OwnArray<Report> place(1);
  Report& part = *new (&place[0]) Report;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    std::perror("freestone-workload: pipe");
    ::_exit(1);
  }
  const char* argv[40] = {"freestone-workload", "--point-fd=9"};
  std::copy_n(words.begin(), std::min(words.size(), std::size(argv) - 3), argv + 2);
  const pid_t child = start_again(argv, ends[1], 9);
  if (child < 0) {
    std::perror("freestone-workload: vfork");
    ::_exit(1);
  }
  ::close(ends[1]);
  const bool complete = receive(ends[0], part);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  if (!complete || !WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3))
    point_failed(words, status);
  report.tally.add(part.tally);
  report.other_failures += part.other_failures;
  for (const auto& caveat : std::span(part.caveats, part.caveat_count)) {
    const auto is_same = [&](const char* known) { return std::strcmp(known, caveat) == 0; };
    if (std::none_of(report.caveats, report.caveats + report.caveat_count, is_same)) report.caveat("%s", caveat);
  }
  return {part.figures, part.figure_count};
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
  const Workload& workload = args.workload();
  const Value& values = args.value_at(swept);
  OwnArray<Merge> merges(kMostMerged);
  std::size_t merged = 0;
  char texts[24][128];
  const char* words[25] = {workload.name};
  for (const std::uint64_t point : std::span(values.list, values.count)) {
    for (std::size_t i = 0; i < workload.size(); ++i) {
      const Param& param = workload.param(i);
      const Value& value = args.value_at(i);
      const bool idles = std::strcmp(param.name, "idle-ms") == 0;
      if (param.kind == Param::Kind::choice)
        std::snprintf(texts[i], sizeof texts[i], "--%s=%s", param.name, value.text);
      else
        std::snprintf(texts[i], sizeof texts[i], "--%s=%lu", param.name,
                      idles        ? 0
                      : i == swept ? point
                                   : value.list[0]);
      words[i + 1] = texts[i];
    }
    for (const Figure& figure : run_point({words, workload.size() + 1}, report)) {
      std::size_t m = 0;
      while (m < merged && std::strcmp(merges[m].name, figure.name) != 0) ++m;
      if (m == kMostMerged) continue;
      if (m == merged) merges[merged++].begin(figure);
      merges[m].add(figure);
      if (figure.better == Better::neither) continue;
      char name[sizeof figure.name];
      std::snprintf(name, sizeof name, "%.24s_%s_%lu", figure.name, workload.param(swept).name, point);
      report.add(name, figure.value, figure.unit, figure.better, figure.samples);
    }
  }
  for (const Merge& all : std::span(merges.begin(), merged))
    report.add(all.name, all.value(), all.unit, all.better, all.samples);
  report.caveat(
      "%zu points of %s, each in a fresh process; the figures without a point's value are the geometric mean (times, "
      "rates), the largest (KiB) or the sum (counts); idle_rss is not read",
      values.count, workload.param(swept).name);
}

}  // namespace workload
