// Room 3, config: parsing of the option table. No allocation, no locale, no libc state.

#include "config/options.h"

#include <cstring>

#include "base/digits.h"

namespace freestone {

constinit SealedPage sealed_page;

namespace {

constexpr OptionInfo kInfos[] = {
#define OPTION(kind, name, initial, minimum, maximum, unit, text) \
  {OptionKind::kind, #name, minimum, maximum, unit, text, offsetof(Options, name)},
#include "config/options.def"
#undef OPTION
};
constexpr usize kCount = sizeof kInfos / sizeof kInfos[0];

// The number of single-letter edits between two names (Levenshtein), for names of up to 31 letters.
usize edit_distance(const char* a, usize a_length, const char* b, usize b_length) {
  constexpr usize kLongest = 31;
  a_length = min_of(a_length, kLongest);
  b_length = min_of(b_length, kLongest);
  usize row[kLongest + 1];
  for (usize j = 0; j <= b_length; ++j) row[j] = j;
  for (usize i = 1; i <= a_length; ++i) {
    usize diagonal = row[0];
    row[0] = i;
    for (usize j = 1; j <= b_length; ++j) {
      const usize replaced = diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U);
      diagonal = row[j];
      row[j] = min_of(replaced, min_of(row[j], row[j - 1]) + 1);
    }
  }
  return row[b_length];
}

// Null if no name is near.
const char* nearest_name(const char* name, usize length) {
  const char* best = nullptr;
  usize best_distance = ~usize{0};
  for (const OptionInfo& info : kInfos) {
    const usize known_length = std::strlen(info.name);
    const usize distance = edit_distance(name, length, info.name, known_length);
    if (distance > 1 + known_length / 4 || distance >= best_distance) continue;
    best_distance = distance;
    best = info.name;
  }
  return best;
}

template <typename T>
T& field(const OptionInfo& info) {
  return *reinterpret_cast<T*>(reinterpret_cast<char*>(&options) + info.offset);
}

bool equals(const char* text, usize length, const char* word) {
  return std::strlen(word) == length && std::memcmp(text, word, length) == 0;
}

// Reads a decimal number with an optional k, m, g or t. False when the text is anything else or the value does not fit.
bool parse_number(const char* text, usize length, bool allow_suffix, u64& result) {
  u64 value = 0;
  usize i = 0;
  for (; i < length && text[i] >= '0' && text[i] <= '9'; ++i) {
    if (__builtin_mul_overflow(value, u64{10}, &value)) return false;
    if (__builtin_add_overflow(value, static_cast<u64>(text[i] - '0'), &value)) return false;
  }
  if (i == 0) return false;
  if (i < length && allow_suffix) {
    const char letter = static_cast<char>(text[i] | 0x20);
    const unsigned shift = letter == 'k' ? 10 : letter == 'm' ? 20 : letter == 'g' ? 30 : letter == 't' ? 40 : 0;
    if (shift == 0 || __builtin_mul_overflow(value, u64{1} << shift, &value)) return false;
    ++i;
  }
  result = value;
  return i == length;
}

// The position of the word in "a|b|c", or -1.
int choice_position(const char* choices, const char* word, usize length) {
  int position = 0;
  for (;; ++position) {
    const char* end = std::strchr(choices, '|');
    const usize word_length = end != nullptr ? static_cast<usize>(end - choices) : std::strlen(choices);
    if (word_length == length && std::memcmp(choices, word, length) == 0) return position;
    if (end == nullptr) return -1;
    choices = end + 1;
  }
}

// Even for no, odd for yes, in either case; -1 for anything else.
int flag_position(const char* word, usize length) {
  char small[sizeof "false"];
  if (length >= sizeof small) return -1;
  for (usize i = 0; i < length; ++i)
    small[i] = static_cast<char>(word[i] >= 'A' && word[i] <= 'Z' ? word[i] | 0x20 : word[i]);
  return choice_position("false|true|off|on|no|yes|0|1", small, length);
}

usize append(char* buffer, usize capacity, usize length, const char* text, usize text_length) {
  const usize taken = min_of(text_length, capacity - length);
  std::memcpy(buffer + length, text, taken);
  return length + taken;
}

usize append_text(char* buffer, usize capacity, const char* text) {
  return append(buffer, capacity, 0, text, std::strlen(text));
}
usize append_number(char* buffer, usize capacity, u64 number) {
  const Digits digits = Digits::decimal(number);
  return append(buffer, capacity, 0, digits.data(), digits.length());
}

}  // namespace

usize option_count() { return kCount; }
const OptionInfo& option_info(usize index) { return kInfos[index]; }

const OptionInfo* find_option(const char* name, usize length) {
  for (const OptionInfo& info : kInfos) {
    if (equals(name, length, info.name)) return &info;
  }
  return nullptr;
}

usize option_text(const OptionInfo& info, char* buffer, usize capacity) {
  switch (info.kind) {
    case OptionKind::flag: return append_text(buffer, capacity, field<bool>(info) ? "true" : "false");
    case OptionKind::bytes:
    case OptionKind::number: return append_number(buffer, capacity, field<u64>(info));
    case OptionKind::choice: {
      const char* word = info.unit;
      for (u32 i = field<u32>(info); i > 0; --i) word = std::strchr(word, '|') + 1;
      const char* end = std::strchr(word, '|');
      return append(buffer, capacity, 0, word, end != nullptr ? static_cast<usize>(end - word) : std::strlen(word));
    }
    case OptionKind::limit: {
      const usize value = field<usize>(info);
      const usize length = append_number(buffer, capacity, value & ~kPercentBit);
      return (value & kPercentBit) != 0 ? append(buffer, capacity, length, "%", 1) : length;
    }
    case OptionKind::text: return append_text(buffer, capacity, &field<char>(info));
  }
  return 0;
}

bool set_option(const OptionInfo& info, const char* value, usize length, OptionComplaint complain) {
  u64 number = 0;
  bool good = false;
  switch (info.kind) {
    case OptionKind::flag: {
      const int position = flag_position(value, length);
      good = position >= 0;
      if (good) field<bool>(info) = position % 2 != 0;
      break;
    }
    case OptionKind::bytes:
    case OptionKind::number:
      good = parse_number(value, length, info.kind == OptionKind::bytes, number) && number >= info.minimum &&
             number <= info.maximum;
      if (good) field<u64>(info) = number;
      break;
    case OptionKind::choice: {
      const int position = choice_position(info.unit, value, length);
      good = position >= 0;
      if (good) field<u32>(info) = static_cast<u32>(position);
      break;
    }
    case OptionKind::limit: {
      const bool percent = length > 1 && value[length - 1] == '%';
      good = parse_number(value, length - (percent ? 1 : 0), !percent, number) &&
             (percent ? number >= 1 && number <= 100 : number <= info.maximum);
      if (good) field<usize>(info) = percent ? number | kPercentBit : number;
      break;
    }
    case OptionKind::text:
      good = length < kOptionTextBytes;
      if (good) {
        char* target = &field<char>(info);
        std::memcpy(target, value, length);
        target[length] = '\0';
      }
      break;
  }
  if (!good) complain(&info, value, length, nullptr);
  return good;
}

void parse_options(const char* text, OptionComplaint complain) {
  while (*text != '\0') {
    const char* end = std::strchr(text, ',');
    const usize length = end != nullptr ? static_cast<usize>(end - text) : std::strlen(text);
    const auto* colon = static_cast<const char*>(std::memchr(text, ':', length));
    const usize name_length = colon != nullptr ? static_cast<usize>(colon - text) : length;
    if (length > 0) {
      const OptionInfo* info = find_option(text, name_length);
      if (info == nullptr) {
        complain(nullptr, text, name_length, nearest_name(text, name_length));
      } else if (colon == nullptr) {
        complain(info, "", 0, nullptr);
      } else {
        set_option(*info, colon + 1, length - name_length - 1, complain);
      }
    }
    text += length;
    if (*text == ',') ++text;
  }
}

}  // namespace freestone
