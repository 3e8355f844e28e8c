// mallctl, with jemalloc's types.
#pragma once

#include "api/support.h"

extern "C" int mallctl(const char* name, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes);

namespace freestone_test {

template <typename T>
T get(const std::string& name) {
  T value{};
  size_t bytes = sizeof value;
  EXPECT_EQ(mallctl(name.c_str(), &value, &bytes, nullptr, 0), 0) << name;
  EXPECT_EQ(bytes, sizeof value) << name;
  return value;
}

template <typename T>
int set(const std::string& name, T value) {
  return mallctl(name.c_str(), nullptr, nullptr, &value, sizeof value);
}

inline int call(const std::string& name) { return mallctl(name.c_str(), nullptr, nullptr, nullptr, 0); }

inline std::string arena_name(unsigned number, const char* what) {
  return "arena." + std::to_string(number) + "." + what;
}

}  // namespace freestone_test
