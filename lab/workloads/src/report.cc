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
    if (c == '"' || c == '\\') put("\\%c", c);
    else if (c < 0x20) put("\\u%04x", c);
    else put("%c", c);
  }
  put("\"");
}

void Text::put_number(double value) {
  if (std::isfinite(value)) put("%.9g", value);
  else put("null");
}

void Text::write_to(int fd) const {
  for (std::size_t done = 0; done < used_;) {
    const ssize_t wrote = ::write(fd, data_.begin() + done, used_ - done);
    if (wrote <= 0) ::_exit(1);
    done += static_cast<std::size_t>(wrote);
  }
}

void Report::add(const char* name, double value, const char* unit, Better better, std::uint64_t samples) {
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
  text.put("{\"schema\":\"freestone-workload/1\",\"workload\":\"%s\",\"params\":{", args.workload().name);
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Value& value = args.value_at(i);
    text.put("%s\"%s\":", i ? "," : "", args.param(i).name);
    if (args.param(i).kind == Param::Kind::choice) {
      text.put_string(value.text);
      continue;
    }
    if (value.count > 1) text.put("[");
    for (std::size_t k = 0; k < value.count; ++k)
      text.put("%s%llu", k ? "," : "", static_cast<unsigned long long>(value.list[k]));
    if (value.count > 1) text.put("]");
  }
  text.put("},\"figures\":{");
  for (std::size_t i = 0; i < figure_count; ++i) {
    const Figure& f = figures[i];
    text.put("%s\"%s\":{\"value\":", i ? "," : "", f.name);
    text.put_number(f.value);
    text.put(",\"unit\":\"%s\",\"better\":\"%s\",\"samples\":%llu}", f.unit, kBetter[static_cast<unsigned>(f.better)],
             static_cast<unsigned long long>(f.samples));
  }
  text.put("},\"series\":{");
  for (std::size_t i = 0; i < series_count; ++i) {
    text.put("%s\"%s\":[", i ? "," : "", series[i].name);
    for (std::size_t k = 0; k < series[i].count; ++k) {
      text.put("%s[", k ? "," : "");
      text.put_number(series[i].points[k].x);
      text.put(",");
      text.put_number(series[i].points[k].y);
      text.put("]");
    }
    text.put("]");
  }
  text.put("},\"failures\":%llu,\"checksum\":\"%016llx\",\"malloc_owner\":",
           static_cast<unsigned long long>(failures()), static_cast<unsigned long long>(tally.checksum));
  text.put_string(malloc_owner());
  text.put(
      ",\"failure_kinds\":{\"null_answers\":%llu,\"corrupted\":%llu,\"misaligned\":%llu,\"other\":%llu},\"caveats\":[",
      static_cast<unsigned long long>(tally.null_answers), static_cast<unsigned long long>(tally.corrupted),
      static_cast<unsigned long long>(tally.misaligned), static_cast<unsigned long long>(other_failures));
  for (std::size_t i = 0; i < caveat_count; ++i) {
    if (i) text.put(",");
    text.put_string(caveats[i]);
  }
  text.put("]}\n");
  text.write_to(STDOUT_FILENO);
  return failures() == 0 ? 0 : 3;
}

}  // namespace workload
