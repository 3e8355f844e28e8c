// Room 18, report: writes statistics in the OpenMetrics text format (version 1.0.0) and in Prometheus' text format
// (version 0.0.4), which the text collector of its node exporter reads.
//
// Every sample carries the labels pid and program, so one folder can hold the files of several processes. The name of a
// counter's sample ends in _total. In OpenMetrics the name of its family does not, and a figure in bytes has its unit.

#include <cstring>

#include "base/utf8.h"
#include "platform/message.h"
#include "report/statistics.h"

namespace freestone {

namespace {

class Metrics {
 public:
  Metrics(Format format, TextSink sink, void* context)
      : is_openmetrics_(format == Format::openmetrics), sink_(sink), context_(context) {
    char name[32];
    const usize length = os::program_name(name, sizeof name);
    labels_ << "pid=\"" << os::process_id() << "\",program=\"";
    // The kernel cuts a name after 15 bytes, which may be in the middle of a letter.
    put_as_utf8(name, length, [this](const char* part, usize bytes) {
      for (usize i = 0; i < bytes; ++i)
        labels_ << (part[i] == '"' || part[i] == '\\' || part[i] == '\n' ? '_' : part[i]);
    });
    labels_ << '"';
  }

  void family(const char* name, Figure::Kind kind, const char* help) {
    const usize length = std::strlen(name);
    const bool is_bytes = length > 6 && std::strcmp(name + length - 6, "_bytes") == 0;
    const bool is_counter = kind == Figure::Kind::counter;
    const char* end = is_counter && !is_openmetrics_ ? "_total " : " ";
    put(Message("# TYPE freestone_") << name << end << (is_counter ? "counter\n" : "gauge\n"));
    if (is_bytes && is_openmetrics_) put(Message("# UNIT freestone_") << name << " bytes\n");
    put(Message("# HELP freestone_") << name << end << help << '\n');
  }
  void sample(const char* name, Figure::Kind kind, u64 value) { put(start(name, kind) << "} " << value << '\n'); }
  void sample_permille(const char* name, u64 permille) {
    put(start(name, Figure::Kind::gauge) << "} " << permille / 1000 << '.' << permille / 100 % 10 << permille / 10 % 10
                                         << permille % 10 << '\n');
  }
  template <typename Value>
  void labelled(const char* name, Figure::Kind kind, const char* key, Value label, u64 value) {
    put(start(name, kind) << ',' << key << "=\"" << label << "\"} " << value << '\n');
  }
  void text(const char* string) { sink_(context_, string, std::strlen(string)); }

 private:
  void put(const Message& message) { sink_(context_, message.data(), message.length()); }
  Message start(const char* name, Figure::Kind kind) {
    Message line("freestone_");
    line << name << (kind == Figure::Kind::counter ? "_total{" : "{");
    line.text(labels_.data(), labels_.length());
    return line;
  }

  bool is_openmetrics_;
  TextSink sink_;
  void* context_;
  Message labels_{""};
};

}  // namespace

void print_statistics_metrics(const Statistics& s, Format format, TextSink sink, void* context) {
  Metrics out(format, sink, context);
  for (const Figure& figure : kFigures) {
    out.family(figure.name, figure.kind, figure.help);
    out.sample(figure.name, figure.kind, s.*figure.value);
  }
  constexpr auto gauge = Figure::Kind::gauge;
  constexpr auto counter = Figure::Kind::counter;
  out.family("fragmentation_ratio", gauge, "The part of charged_bytes that is not live.");
  out.sample_permille("fragmentation_ratio", s.fragmentation_permille);
  out.family("system_calls", counter, "System calls made by the allocator.");
  for (unsigned k = 0; k < os::kCallKinds; ++k)
    out.labelled("system_calls", counter, "call", kSystemCallNames[k], s.system_calls[k]);
  const auto classes = [&](const char* name, const char* help, auto value) {
    out.family(name, gauge, help);
    for (SizeClass c = 1; c < kSizeEnd; ++c) {
      const ClassStatistics& k = s.classes[c];
      if (k.live_blocks + k.cached_blocks > 0) out.labelled(name, gauge, "size", u64{k.block_bytes}, value(k));
    }
  };
  classes("class_live_bytes", "Live bytes of a size class.",
          [](const ClassStatistics& k) { return k.live_blocks * k.block_bytes; });
  classes("class_cached_bytes", "Bytes of a size class in thread caches.",
          [](const ClassStatistics& k) { return k.cached_blocks * k.block_bytes; });
  if (format == Format::openmetrics) out.text("# EOF\n");
}

}  // namespace freestone
