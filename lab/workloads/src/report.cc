#include "report.h"

#include <unistd.h>

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "process.h"

namespace workload {

void Text::put(const char* format, ...) {
  std::va_list list;
  va_start(list, format);
  const std::size_t room = data_.size() - used_;
  const int length = std::vsnprintf(data_.data() + used_, room, format, list);
  va_end(list);
  if (length < 0 || static_cast<std::size_t>(length) >= room) {
    std::fputs("freestone-workload: the report is larger than its buffer\n", stderr);
    ::_exit(1);
  }
  used_ += static_cast<std::size_t>(length);
}

void Text::put_string(const char* text) {
  put("\"");
  for (; *text != 0; ++text) {
    const auto c = static_cast<unsigned char>(*text);
    if (c == '"' || c == '\\')
      put("\\%c", c);
    else if (c < 0x20)
      put("\\u%04x", c);
    else
      put("%c", c);
  }
  put("\"");
}

void Text::put_number(double value) {
  if (std::isfinite(value))
    put("%.9g", value);
  else
    put("null");
}

const char* Text::comma() const {
  const char last = used_ == 0 ? '[' : data_[used_ - 1];
  return last == '[' || last == '{' ? "" : ",";
}

void Text::write_to(int fd) const {
  for (std::size_t done = 0; done < used_;) {
    const ssize_t wrote = ::write(fd, data_.begin() + done, used_ - done);
    if (wrote <= 0) ::_exit(1);
    done += static_cast<std::size_t>(wrote);
  }
}

void Report::add_figure(const char* name, double value, const char* unit, Better better, std::uint64_t samples) {
  if (!std::isfinite(value)) return;  // not measured: absent, never zero
  if (figure_count == kFigures) std::abort();
  Figure& figure = figures[figure_count++];
  std::snprintf(figure.name, sizeof figure.name, "%s", name);
  std::snprintf(figure.unit, sizeof figure.unit, "%s", unit);
  figure.value = value;
  figure.samples = samples;
  figure.better = better;
}

Series& Report::curve(const char* name, std::size_t capacity) {
  if (series_count == kSeries) std::abort();
  Series& made = series[series_count++];
  std::snprintf(made.name, sizeof made.name, "%s", name);
  made.points = OwnArray<Series::Point>(capacity);
  return made;
}

void Report::caveat(const char* format, ...) {
  if (caveat_count == kCaveats) return;
  std::va_list list;
  va_start(list, format);
  std::vsnprintf(caveats[caveat_count++], sizeof caveats[0], format, list);
  va_end(list);
}

int Report::print(const Args& args) const {
  static constexpr const char* kBetter[] = {"lower", "higher", "neither"};
  Text text;
  const Workload& workload = args.workload();
  text.put("{\"schema\":\"freestone-workload/1\",\"workload\":\"%s\",\"params\":{", workload.name);
  for (std::size_t i = 0; i < workload.size(); ++i) {
    const Value& value = args.value_at(i);
    text.put("%s\"%s\":", text.comma(), workload.param(i).name);
    if (workload.param(i).kind == Param::Kind::choice) {
      text.put_string(value.text);
    } else if (value.count == 1) {
      text.put("%lu", value.list[0]);
    } else {
      text.put("[");
      for (std::size_t k = 0; k < value.count; ++k) text.put("%s%lu", text.comma(), value.list[k]);
      text.put("]");
    }
  }
  text.put("},\"figures\":{");
  for (const Figure& f : std::span(figures, figure_count)) {
    text.put("%s\"%s\":{\"value\":", text.comma(), f.name);
    text.put_number(f.value);
    text.put(",\"unit\":\"%s\",\"better\":\"%s\",\"samples\":%lu}", f.unit, kBetter[static_cast<unsigned>(f.better)],
             f.samples);
  }
  text.put("},\"series\":{");
  for (const Series& curve : std::span(series, series_count)) {
    text.put("%s\"%s\":[", text.comma(), curve.name);
    for (const Series::Point& point : std::span(curve.points.begin(), curve.count)) {
      text.put("%s[", text.comma());
      text.put_number(point.x);
      text.put(",");
      text.put_number(point.y);
      text.put("]");
    }
    text.put("]");
  }
  text.put("},\"failures\":%lu,\"checksum\":\"%016lx\",\"malloc_owner\":", failures(), tally.checksum);
  text.put_string(malloc_owner());
  text.put(",\"failure_kinds\":{\"null_answers\":%lu,\"corrupted\":%lu,\"misaligned\":%lu,\"other\":%lu},\"caveats\":[",
           tally.null_answers, tally.corrupted, tally.misaligned, other_failures);
  for (const auto& caveat : std::span(caveats, caveat_count)) {
    text.put("%s", text.comma());
    text.put_string(caveat);
  }
  text.put("]}\n");
  text.write_to(STDOUT_FILENO);
  return failures() == 0 ? 0 : 3;
}

}  // namespace workload
