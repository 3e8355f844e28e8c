// The option parser: any text leaves every option within its bounds, complaints point into the text, and what
// option_text prints is read back as the same value.
#include <string>

#include "config/options.h"
#include "fuzz/input.h"

namespace {

using namespace freestone;

const char* text_start = nullptr;
const char* text_end = nullptr;
unsigned complaints = 0;

void complain(const OptionInfo* option, const char* given, usize length, const char* nearest) {
  ++complaints;
  const bool inside = given >= text_start && given + length <= text_end;
  FUZZ_EXPECT(inside || length == 0);
  FUZZ_EXPECT(option == nullptr || find_option(option->name, std::strlen(option->name)) == option);
  FUZZ_EXPECT(nearest == nullptr || (option == nullptr && find_option(nearest, std::strlen(nearest)) != nullptr));
}

void parse(const std::string& text) {
  text_start = text.c_str();
  text_end = text_start + text.size();
  parse_options(text.c_str(), complain);
}

std::string value_of(const OptionInfo& info) {
  char value[kOptionTextBytes];
  const usize length = option_text(info, value, sizeof value);
  FUZZ_EXPECT(length < sizeof value);
  return std::string(value, length);
}

void expect_within_bounds(const OptionInfo& info) {
  const char* const field = reinterpret_cast<const char*>(&options) + info.offset;
  u64 number = 0;
  switch (info.kind) {
    case OptionKind::flag: std::memcpy(&number, field, sizeof(bool)); break;
    case OptionKind::choice: std::memcpy(&number, field, sizeof(u32)); break;
    case OptionKind::bytes:
    case OptionKind::number: std::memcpy(&number, field, sizeof(u64)); break;
    case OptionKind::limit:
      std::memcpy(&number, field, sizeof(u64));
      if ((number & kPercentBit) != 0) {
        FUZZ_EXPECT((number & ~kPercentBit) >= 1 && (number & ~kPercentBit) <= 100);
        return;
      }
      break;
    case OptionKind::text: FUZZ_EXPECT(std::memchr(field, '\0', kOptionTextBytes) != nullptr); return;
  }
  FUZZ_EXPECT(number >= info.minimum && number <= info.maximum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Options initial = options;
  options = initial;
  parse(std::string(reinterpret_cast<const char*>(data), size));
  for (usize i = 0; i < option_count(); ++i) {
    const OptionInfo& info = option_info(i);
    expect_within_bounds(info);
    const std::string value = value_of(info);
    if (value.find('\0') != std::string::npos) continue;
    complaints = 0;
    text_start = value.data();
    text_end = text_start + value.size();
    FUZZ_EXPECT(set_option(info, value.data(), value.size(), complain) && complaints == 0);
    FUZZ_EXPECT(value_of(info) == value);
  }
  options = initial;
  return 0;
}
