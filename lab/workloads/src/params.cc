#include "params.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <unistd.h>

namespace workload {
namespace {

constexpr Param kCommon[] = {
    integer("seed", "1", 1, std::uint64_t{1} << 62, "",
            "where the random numbers start; every thread has its own stream"),
    integer("idle-ms", "100", 0, 600000, "ms",
            "how long to sleep with everything freed before idle_rss is read; 0: not read"),
};

bool parse_number(std::string_view text, std::uint64_t& out) {
  std::uint64_t value = 0;
  std::size_t i = 0;
  if (text.starts_with("2^")) {
    text.remove_prefix(2);
    if (text.empty() || text.size() > 2) return false;
    for (; i < text.size(); ++i) {
      if (text[i] < '0' || text[i] > '9') return false;
      value = value * 10 + static_cast<std::uint64_t>(text[i] - '0');
    }
    if (value > 62) return false;
    out = std::uint64_t{1} << value;
    return true;
  }
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    if (value > (std::uint64_t{1} << 62) / 10) return false;
    value = value * 10 + static_cast<std::uint64_t>(text[i] - '0');
  }
  if (i == 0) return false;
  if (i < text.size()) {
    if (i + 1 != text.size()) return false;
    unsigned shift = 0;
    if (text[i] == 'K') shift = 10;
    else if (text[i] == 'M') shift = 20;
    else if (text[i] == 'G') shift = 30;
    else return false;
    if (value >> (63 - shift) != 0) return false;
    value <<= shift;
  }
  out = value;
  return true;
}

bool append(Value& value, std::uint64_t number) {
  if (value.count == kMaxValues) return false;
  value.list[value.count++] = number;
  return true;
}

// "16", "2^4", "64K", "8,16,24", "2^1..2^25" (doubling from the first to the last).
bool parse_list(std::string_view text, Value& value) {
  value.count = 0;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t dots = item.find("..");
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    if (dots == std::string_view::npos) {
      if (!parse_number(item, first) || !append(value, first)) return false;
    } else {
      if (!parse_number(item.substr(0, dots), first) || !parse_number(item.substr(dots + 2), last)) return false;
      if (first == 0 || first > last || last > std::uint64_t{1} << 61) return false;
      for (std::uint64_t at = first; at <= last; at *= 2)
        if (!append(value, at)) return false;
    }
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

bool parse_choice(std::string_view text, const Param& param, Value& value) {
  std::string_view rest = param.choices;
  for (unsigned i = 0;; ++i) {
    const std::size_t bar = rest.find('|');
    const std::string_view option = rest.substr(0, bar);
    if (option == text && text.size() < sizeof value.text) {
      std::memcpy(value.text, text.data(), text.size());
      value.text[text.size()] = 0;
      value.picked = i;
      return true;
    }
    if (bar == std::string_view::npos) return false;
    rest.remove_prefix(bar + 1);
  }
}

void set(const Workload& workload, const Param& param, std::string_view text, Value& value) {
  const int length = static_cast<int>(text.size());
  if (param.kind == Param::Kind::choice) {
    if (!parse_choice(text, param, value))
      usage_error(workload.name, "--%s=%.*s: expected one of %s", param.name, length, text.data(), param.choices);
    return;
  }
  const char* form = param.sweeps ? "a whole number, a list 16,32,64 or a doubling range 2^4..2^10" : "a whole number";
  bool good = parse_list(text, value) && (param.sweeps || value.count == 1);
  for (std::size_t i = 0; good && i < value.count; ++i)
    good = value.list[i] >= param.low && value.list[i] <= param.high;
  if (!good)
    usage_error(workload.name,
                "--%s=%.*s: expected %s from %llu to %llu%s%s (2^k and the endings K, M, G are understood)", param.name,
                length, text.data(), form, static_cast<unsigned long long>(param.low),
                static_cast<unsigned long long>(param.high), *param.unit ? " " : "", param.unit);
}

}  // namespace

std::span<const Param> common_params() { return kCommon; }

std::size_t Args::size() const { return workload_->params.size() + std::size(kCommon); }
const Param& Args::param(std::size_t i) const {
  const std::size_t own = workload_->params.size();
  return i < own ? workload_->params[i] : kCommon[i - own];
}

const Value& Args::value(const char* name) const {
  for (std::size_t i = 0; i < size(); ++i)
    if (std::strcmp(param(i).name, name) == 0) return values_[i];
  std::fprintf(stderr, "freestone-workload %s: reads a parameter that it does not declare: %s\n", workload_->name,
               name);
  std::abort();
}

std::size_t Args::swept_index() const {
  for (std::size_t i = 0; i < size(); ++i)
    if (values_[i].count > 1) return i;
  return size();
}

void Args::parse(const Workload& workload, int count, char** words, Args& args) {
  args.workload_ = &workload;
  for (std::size_t i = 0; i < args.size(); ++i) set(workload, args.param(i), args.param(i).fallback, args.values_[i]);
  for (int w = 0; w < count; ++w) {
    std::string_view word = words[w];
    if (!word.starts_with("--"))
      usage_error(workload.name, "'%s' is not a parameter: expected --name=value ('%s --help' names them)", words[w],
                  workload.name);
    word.remove_prefix(2);
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    std::size_t found = 0;
    while (found < args.size() && name != args.param(found).name) ++found;
    if (found == args.size())
      usage_error(workload.name, "unknown parameter --%.*s ('%s --help' names them)", static_cast<int>(name.size()),
                  name.data(), workload.name);
    std::string_view text;
    if (equals != std::string_view::npos) {
      text = word.substr(equals + 1);
    } else if (++w < count) {
      text = words[w];
    } else {
      usage_error(workload.name, "--%s: a value is missing", args.param(found).name);
    }
    set(workload, args.param(found), text, args.values_[found]);
  }
  std::size_t lists = 0;
  for (std::size_t i = 0; i < args.size(); ++i) lists += args.values_[i].count > 1 ? 1 : 0;
  if (lists > 1) usage_error(workload.name, "only one parameter may be a list, %zu are", lists);
}

void usage_error(const char* workload, const char* format, ...) {
  char line[600];
  std::va_list list;
  va_start(list, format);
  std::vsnprintf(line, sizeof line, format, list);
  va_end(list);
  std::fprintf(stderr, "freestone-workload%s%s: %s\n", *workload != 0 ? " " : "", workload, line);
  std::fflush(stderr);
  ::_exit(2);
}

}  // namespace workload
