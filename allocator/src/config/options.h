// Room 3, config: the run-time options in force.
//
// Read once, at the first slow path, from the application's symbol `freestone_conf` and then from the environment
// variable FREESTONE_CONF ("key:value,key:value"); the environment wins and is ignored for privileged programs.
#pragma once

#include "base/compiler.h"
#include "base/units.h"
#include "config/sealed.h"

namespace freestone {

inline constexpr usize kOptionTextBytes = 256;

struct Options {
#define FREESTONE_OPTION_FIELD_flag(name, initial) bool name = initial;
#define FREESTONE_OPTION_FIELD_bytes(name, initial) usize name = initial;
#define FREESTONE_OPTION_FIELD_limit(name, initial) usize name = initial;
#define FREESTONE_OPTION_FIELD_number(name, initial) u64 name = initial;
#define FREESTONE_OPTION_FIELD_choice(name, initial) u32 name = initial;
#define FREESTONE_OPTION_FIELD_text(name, initial) char name[kOptionTextBytes] = initial;
#define OPTION(kind, name, initial, minimum, maximum, unit, text) FREESTONE_OPTION_FIELD_##kind(name, initial)
#include "config/options.def"
#undef OPTION
};

enum class OptionKind : u8 { flag, bytes, number, choice, text, limit };

// A limit is a number of bytes. With this bit it is a percentage of the memory that the container may use.
inline constexpr usize kPercentBit = usize{1} << 63;

struct OptionInfo {
  OptionKind kind;
  const char* name;
  u64 minimum;
  u64 maximum;
  const char* unit;
  const char* text;
  usize offset;  // of the field in Options
};

// The sealed page, in the hardened build; else variables like others. Written at start, and while the seal is open.
struct alignas(kSeals ? kSealedBytes : alignof(BlockSecrets)) SealedPage {
  Options options;
  BlockSecrets secrets = {};
  CodeAddresses code = {};
  GivenCallbacks callbacks = {};
  const unsigned* libc_threads = nullptr;  // hardened/walk.cc
  u8 guarding = 0;                         // region/region.h
};
static_assert(!kSeals || sizeof(SealedPage) == kSealedBytes);
extern FREESTONE_HIDDEN SealedPage sealed_page;

inline constexpr Options& options = sealed_page.options;
inline constexpr BlockSecrets& block_secrets = sealed_page.secrets;

usize option_count();
const OptionInfo& option_info(usize index);
// Null when no option has this name.
const OptionInfo* find_option(const char* name, usize length);
// Writes the value as text into `buffer`. Returns its length.
usize option_text(const OptionInfo& info, char* buffer, usize capacity);

// Says that the option cannot have the value `given`; or, if `option` is null, that no option has the name `given` and
// which one is near, or null.
using OptionComplaint = void (*)(const OptionInfo* option, const char* given, usize given_length, const char* nearest);
// Sets one option. On a bad value it complains, leaves the option as it was, and returns false.
bool set_option(const OptionInfo& info, const char* value, usize length, OptionComplaint complain);
// Reads "key:value,key:value".
void parse_options(const char* text, OptionComplaint complain);

}  // namespace freestone
