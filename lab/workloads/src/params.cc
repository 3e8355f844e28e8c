#include "params.h"

#include <algorithm>
#include <bit>
#include <charconv>
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

// "16", "2^4", "64K".
bool parse_number(std::string_view text, std::uint64_t& out) {
  const bool is_power = text.starts_with("2^");
  if (is_power) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.begin(), text.end(), out);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
  if (is_power) {
    if (!text.empty() || out > 62) return false;
    out = std::uint64_t{1} << out;
    return true;
  }
  constexpr std::string_view kEndings = "KMG";
  const std::size_t ending = text.size() == 1 ? kEndings.find(text[0]) : std::string_view::npos;
  if (!text.empty() && ending == std::string_view::npos) return false;
  const std::size_t shift = text.empty() ? 0 : 10 * (ending + 1);
  if (out >> (63 - shift) != 0) return false;
  out <<= shift;
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
                "--%s=%.*s: expected %s from %lu to %lu%s%s (2^k and the endings K, M, G are understood)", param.name,
                length, text.data(), form, param.low, param.high, *param.unit ? " " : "", param.unit);
}

}  // namespace

std::size_t Workload::size() const { return params.size() + std::size(kCommon); }
const Param& Workload::param(std::size_t i) const { return i < params.size() ? params[i] : kCommon[i - params.size()]; }

const Value& Args::value(const char* name) const {
  for (std::size_t i = 0; i < workload_->size(); ++i)
    if (std::strcmp(workload_->param(i).name, name) == 0) return values_[i];
  std::fprintf(stderr, "freestone-workload %s: reads a parameter that it does not declare: %s\n", workload_->name,
               name);
  std::abort();
}

std::size_t Args::swept_index() const {
  std::size_t i = 0;
  while (i < workload_->size() && values_[i].count <= 1) ++i;
  return i;
}

std::pair<std::uint64_t, std::uint64_t> Args::range() const {
  const std::uint64_t low = number("low");
  const std::uint64_t high = number("high");
  if (low > high) usage_error(workload_->name, "--low=%lu: expected at most --high=%lu", low, high);
  return {low, high};
}

void Args::expect_power_of_two(const char* name) const {
  if (!std::has_single_bit(number(name)))
    usage_error(workload_->name, "--%s=%lu: expected a power of two", name, number(name));
}

void Args::parse(const Workload& workload, int count, char** words, Args& args) {
  args.workload_ = &workload;
  const std::size_t size = workload.size();
  for (std::size_t i = 0; i < size; ++i) set(workload, workload.param(i), workload.param(i).fallback, args.values_[i]);
  for (int w = 0; w < count; ++w) {
    std::string_view word = words[w];
    if (!word.starts_with("--"))
      usage_error(workload.name, "'%s' is not a parameter: expected --name=value ('%s --help' names them)", words[w],
                  workload.name);
    word.remove_prefix(2);
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    std::size_t found = 0;
    while (found < size && name != workload.param(found).name) ++found;
    if (found == size)
      usage_error(workload.name, "unknown parameter --%.*s ('%s --help' names them)", static_cast<int>(name.size()),
                  name.data(), workload.name);
    const bool has_value = equals != std::string_view::npos;
    if (!has_value && ++w == count) usage_error(workload.name, "--%s: a value is missing", workload.param(found).name);
    set(workload, workload.param(found), has_value ? word.substr(equals + 1) : words[w], args.values_[found]);
  }
  const auto lists = std::count_if(args.values_, args.values_ + size, [](const Value& v) { return v.count > 1; });
  if (lists > 1) usage_error(workload.name, "only one parameter may be a list, %td are", lists);
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
