// What a run found: figures, curves, failures, checksum, caveats; printed as one JSON object of freestone-workload/1.
// Holds no memory from malloc.
#pragma once

#include <cstdint>

#include "block.h"
#include "own.h"
#include "params.h"

namespace workload {

// Which way a figure is better. What repeats another figure in other units, or describes the run, is `neither`: a
// summary over directed figures then counts every fact once.
enum class Better : std::uint8_t { lower, higher, neither };

struct Figure {
  char name[48];
  char unit[16];
  double value;
  std::uint64_t samples;  // observations behind the value
  Better better;
};

struct Series {
  struct Point {
    double x, y;
  };
  char name[48];
  OwnArray<Point> points;
  std::size_t count = 0;
  void add(double x, double y) {
    if (count < points.size()) points[count++] = {x, y};
  }
};

// Text in memory of its own.
class Text {
 public:
  Text() : data_(std::size_t{4} << 20) {}
  [[gnu::format(printf, 2, 3)]] void put(const char* format, ...);
  void put_string(const char* text);  // quoted and escaped
  void put_number(double value);
  // What stands before a further item of a JSON list or object: nothing before the first.
  const char* comma() const;
  void write_to(int fd) const;

 private:
  OwnArray<char> data_;
  std::size_t used_ = 0;
};

struct Report {
  static constexpr std::size_t kFigures = 1024;
  static constexpr std::size_t kSeries = 64;
  static constexpr std::size_t kCaveats = 24;

  Figure figures[kFigures];
  std::size_t figure_count = 0;
  Series series[kSeries];
  std::size_t series_count = 0;
  char caveats[kCaveats][320];
  std::size_t caveat_count = 0;
  Tally tally;
  std::uint64_t other_failures = 0;  // such as a thread that could not be made

  void add_figure(const char* name, double value, const char* unit, Better better, std::uint64_t samples);
  template <class Number>
  void add(const char* name, Number value, const char* unit, Better better, std::uint64_t samples = 1) {
    add_figure(name, static_cast<double>(value), unit, better, samples);
  }
  Series& curve(const char* name, std::size_t capacity);
  [[gnu::format(printf, 2, 3)]] void caveat(const char* format, ...);
  std::uint64_t failures() const { return tally.failures() + other_failures; }
  // Prints the object and returns the exit status, 0 or 3.
  int print(const Args& args) const;
};

}  // namespace workload
