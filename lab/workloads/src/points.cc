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
    used += static_cast<std::size_t>(std::snprintf(line + used, sizeof line - used, " %s", word)) % (sizeof line - used);
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
  const bool good = write_all(fd, &head, sizeof head) && write_all(fd, report.figures, report.figure_count * sizeof(Figure)) &&
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
  if (!complete || !WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3)) point_failed(words, status);
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

void run_sweep(const Args& args, std::size_t swept, Report& report) {
  const Value& values = args.value_at(swept);
  static OwnArray<Report> parts;
  parts = OwnArray<Report>(1);
  struct Merge {
    double log_sum = 0, sum = 0, largest = 0;
    bool positive = true;
    std::uint64_t points = 0, samples = 0;
    Better better = Better::neither;
    char unit[16] = "";
  };
  OwnArray<Merge> merges(Report::kFigures);
  std::size_t names = 0;
  char words_text[26][128];
  const char* words[28];
  for (std::size_t v = 0; v < values.count; ++v) {
    std::size_t count = 0;
    words[count++] = args.workload().name;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const Param& param = args.param(i);
      char* text = words_text[i];
      const Value& value = args.value_at(i);
      if (param.kind == Param::Kind::choice)
        std::snprintf(text, 128, "--%s=%s", param.name, value.text);
      else
        std::snprintf(text, 128, "--%s=%llu", param.name,
                      static_cast<unsigned long long>(i == swept                                ? values.list[v]
                                                      : std::strcmp(param.name, "idle-ms") == 0 ? 0
                                                                                                : value.list[0]));
      words[count++] = text;
    }
    Report& part = *new (&parts[0]) Report;
    run_point({words, count}, part);
    absorb(report, part);
    for (std::size_t f = 0; f < part.figure_count; ++f) {
      const Figure& figure = part.figures[f];
      std::size_t s = 0;
      while (s < names && std::strcmp(report.series[s].name, figure.name) != 0) ++s;
      if (s == Report::kSeries) continue;
      if (s == names) {
        report.curve(figure.name, values.count);
        ++names;
        new (&merges[s]) Merge;
        merges[s].better = figure.better;
        std::memcpy(merges[s].unit, figure.unit, sizeof figure.unit);
      }
      report.series[s].add(static_cast<double>(values.list[v]), figure.value);
      Merge& merge = merges[s];
      merge.positive = merge.positive && figure.value > 0;
      merge.log_sum += std::log(figure.value > 0 ? figure.value : 1);
      merge.sum += figure.value;
      merge.largest = figure.value > merge.largest ? figure.value : merge.largest;
      merge.samples += figure.samples;
      ++merge.points;
    }
  }
  for (std::size_t s = 0; s < names; ++s) {
    const Merge& merge = merges[s];
    const auto points = static_cast<double>(merge.points);
    double value = merge.positive ? std::exp(merge.log_sum / points) : merge.sum / points;
    if (std::strcmp(merge.unit, "KiB") == 0) value = merge.largest;
    if (std::strcmp(merge.unit, "count") == 0) value = merge.sum;
    report.add(report.series[s].name, value, merge.unit, merge.better, merge.samples);
  }
  report.caveat("%zu points of %s, each in a fresh process; over them times and rates are geometric means, KiB the largest, "
                "counts the sum; idle_rss is not read", values.count, args.param(swept).name);
}

}  // namespace workload
