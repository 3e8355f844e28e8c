// Room 14, profile: writes a profile as pprof's profile.proto, uncompressed, which pprof and its relatives read.
//
// One file holds all four views: allocated, in use, at the peak, and freed with the lifetime as a label. Values are
// estimates, with each sample already weighted. The reader names functions of C, by the mappings and their build ids.
// Functions of Python are named here, because they cannot be found later.

#include "base/utf8.h"
#include "platform/os.h"
#include "profile/profile_report.h"

namespace freestone {

namespace {

enum Field : unsigned {
  kSampleType = 1,
  kSample = 2,
  kMapping = 3,
  kLocation = 4,
  kFunction = 5,
  kString = 6,
  kDropFrames = 7,
  kTime = 9,
  kDuration = 10,
  kPeriodType = 11,
  kPeriod = 12,
  kComment = 13,
  kDefaultType = 14
};

// The frames that this library adds to a stack when it is linked into the program.
constexpr char kOwnFunctions[] =
    "freestone::.*|malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|valloc|pvalloc|"
    "operator new.*";
constexpr const char* kStrings[] = {
    "",
    "alloc_objects",
    "alloc_space",
    "inuse_objects",
    "inuse_space",
    "peak_objects",
    "peak_space",
    "freed_objects",
    "freed_space",
    "count",
    "bytes",
    "space",
    "lifetime",
    "nanoseconds",
    kOwnFunctions,
    "no allocation was sampled: the program asked for little compared with the bytes between samples",
};
constexpr unsigned kTypes = 8;
enum Text : unsigned {
  kCount = 9,
  kBytes = 10,
  kSpace = 11,
  kLifetime = 12,
  kNanoseconds = 13,
  kDrop = 14,
  kNothing = 15,
  kFixed = 16
};
static_assert(sizeof kStrings / sizeof kStrings[0] == kFixed);

void put_head(Output& out, Field field, usize length) {
  MessageBytes<24> head;
  head.varint((u64{field} << 3) | 2);
  head.varint(length);
  out.raw(head.data(), head.length());
}

template <usize n>
void put(Output& out, Field field, const MessageBytes<n>& message) {
  put_head(out, field, message.length());
  out.raw(message.data(), message.length());
}

void put_text(Output& out, const char* text) {
  const usize length = std::strlen(text);
  put_head(out, kString, length);
  put_as_utf8(text, length, [&](const char* part, usize bytes) { out.raw(part, bytes); });
}

void put_number(Output& out, Field field, u64 value) {
  MessageBytes<24> bytes;
  bytes.number(field, value);
  out.raw(bytes.data(), bytes.length());
}

MessageBytes<32> value_type(unsigned type, unsigned unit) {
  MessageBytes<32> message;
  message.number(1, type);
  message.number(2, unit);
  return message;
}

void put_sample(Output& out, const ProfileReport& report, const Site& site, const u64 (&values)[kTypes],
                i64 lifetime_ns) {
  MessageBytes<kTypes * 10> numbers;
  for (const u64 value : values) numbers.varint(value);
  MessageBytes<2048> sample;
  MessageBytes<1280> locations;
  for (unsigned k = 0, depth = report.depth_of(site); k < depth; ++k)
    locations.varint(report.place_of(site.frames[k]) + 1);
  sample.message(1, locations);
  sample.message(2, numbers);
  if (lifetime_ns >= 0) {
    MessageBytes<48> label;
    label.number(1, kLifetime);
    label.number(3, static_cast<u64>(lifetime_ns));
    label.number(4, kNanoseconds);
    sample.message(3, label);
  }
  put(out, kSample, sample);
}

}  // namespace

void write_pprof(const ProfileReport& report, ProfileView view, Output& out) {
  for (const char* text : kStrings) put_text(out, text);
  for (unsigned type = 1; type <= kTypes; ++type)
    put(out, kSampleType, value_type(type, type % 2 == 1 ? kCount : kBytes));

  unsigned next_text = kFixed;
  for (unsigned i = 0; i < report.module_count; ++i) {
    const Module& module = report.modules[i];
    MessageBytes<128> mapping;
    mapping.number(1, i + 1);
    mapping.number(2, module.start);
    mapping.number(3, module.end);
    mapping.number(4, module.file_offset);
    if (module.name != 0) {
      put_text(out, report.names + module.name);
      mapping.number(5, next_text++);
    }
    if (module.build_id[0] != '\0') {
      put_text(out, module.build_id);
      mapping.number(6, next_text++);
    }
    put(out, kMapping, mapping);
  }
  for (unsigned i = 0; i < report.place_count; ++i) {
    const usize address = report.places[i].address;
    MessageBytes<48> location;
    location.number(1, i + 1);
    if (is_python_frame(address)) {
      MessageBytes<24> line;
      line.number(1, python_function_of(address) + 1);
      line.number(2, python_line_of(address));
      location.message(4, line);
    } else {
      location.number(2, report.places[i].module);
      location.number(3, address);
    }
    put(out, kLocation, location);
  }
  for (unsigned i = 0; i < python_function_count(); ++i) {
    MessageBytes<48> function;
    function.number(1, i + 1);
    function.number(2, next_text);
    function.number(4, next_text + 1);
    put_text(out, python_function(i).name);
    put_text(out, python_function(i).file);
    next_text += 2;
    put(out, kFunction, function);
  }
  for (unsigned i = 0; i < profile_store.site_count(); ++i) {
    const Site& site = profile_store.site(i);
    if (site.samples == 0) continue;  // of an earlier profile
    const Amount peak = profile_store.peak_of(site);
    const u64 values[kTypes] = {whole(site.allocated.objects), whole(site.allocated.bytes), whole(site.live.objects),
                                whole(site.live.bytes),        whole(peak.objects),         whole(peak.bytes)};
    put_sample(out, report, site, values, -1);
    for (unsigned k = 0; k < kLifetimes; ++k) {
      if (site.freed[k].objects <= 0) continue;
      const u64 freed[kTypes] = {0, 0, 0, 0, 0, 0, whole(site.freed[k].objects), whole(site.freed[k].bytes)};
      put_sample(out, report, site, freed, static_cast<i64>(max_of<u64>(lifetime_floor_ns(k), 1)));
    }
  }
  put_number(out, kDropFrames, kDrop);
  put_number(out, kTime, os::wall_nanoseconds());
  put_number(out, kDuration, os::nanoseconds() - profile_store.totals().started_ns);
  put(out, kPeriodType, value_type(kSpace, kBytes));
  put_number(out, kPeriod, report.sample_bytes);
  if (profile_store.totals().samples == 0) put_number(out, kComment, kNothing);
  constexpr unsigned kDefault[] = {4, 2, 6, 8};
  put_number(out, kDefaultType, kDefault[static_cast<unsigned>(view)]);
}

}  // namespace freestone
