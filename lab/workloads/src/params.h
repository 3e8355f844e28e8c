// Parameters of a workload: declared in one table, checked before anything runs. A bad one ends the program with one
// line on stderr and exit status 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "block.h"

namespace workload {

struct Param {
  enum class Kind : std::uint8_t { integer, choice };
  const char* name;
  Kind kind;
  const char* fallback;
  std::uint64_t low;
  std::uint64_t high;
  const char* unit;     // of an integer
  const char* choices;  // "a|b|c" of a choice
  const char* help;
  bool sweeps;  // may be a list: one fresh process per value, figures per point
};

constexpr Param integer(const char* name, const char* fallback, std::uint64_t low, std::uint64_t high, const char* unit,
                        const char* help) {
  return {name, Param::Kind::integer, fallback, low, high, unit, "", help, false};
}
constexpr Param swept(const char* name, const char* fallback, std::uint64_t low, std::uint64_t high, const char* unit,
                      const char* help) {
  return {name, Param::Kind::integer, fallback, low, high, unit, "", help, true};
}
constexpr Param choice(const char* name, const char* fallback, const char* choices, const char* help) {
  return {name, Param::Kind::choice, fallback, 0, 0, "", choices, help, false};
}

inline constexpr std::size_t kMaxValues = 64;

struct Value {
  std::uint64_t list[kMaxValues];
  std::size_t count = 0;
  unsigned picked = 0;  // index among the choices
  char text[64] = "";   // of a choice
};

struct Report;
class Args;

struct Workload {
  const char* name;
  const char* summary;
  std::span<const Param> params;
  void (*run)(const Args&, Report&);
  bool hidden = false;  // a part of another workload

  // Its own parameters, then those that every workload has.
  std::size_t size() const;
  const Param& param(std::size_t i) const;
};

class Args {
 public:
  // Reads `--name=value` and `--name value`; exits with status 2 when something is wrong.
  static void parse(const Workload& workload, int count, char** words, Args& args);

  std::uint64_t number(const char* name) const { return value(name).list[0]; }
  std::uint32_t number32(const char* name) const { return static_cast<std::uint32_t>(number(name)); }
  unsigned threads() const { return number32("threads"); }
  unsigned pick(const char* name) const { return value(name).picked; }
  Touch touch() const { return static_cast<Touch>(pick("touch")); }
  bool yes(const char* name) const { return value(name).text[0] == 'y'; }
  const Value& value(const char* name) const;

  // These exit with status 2 as well.
  std::pair<std::uint64_t, std::uint64_t> range() const;  // of --low and --high, which must be in order
  void expect_power_of_two(const char* name) const;

  const Workload& workload() const { return *workload_; }
  const Value& value_at(std::size_t i) const { return values_[i]; }
  // The parameter given as a list, or the workload's size() when there is none.
  std::size_t swept_index() const;

 private:
  const Workload* workload_ = nullptr;
  Value values_[24];
};

// One line on stderr, prefixed with the program's and the workload's name; exit status 2.
[[noreturn, gnu::format(printf, 2, 3)]] void usage_error(const char* workload, const char* format, ...);

}  // namespace workload
