// mallctl: any name with old and new values of any length gives a known answer, writes no byte beyond the length that
// it was given, and the same question by number gives the same answer.
#include <malloc.h>

#include <cerrno>
#include <string>

#include "fuzz/input.h"

extern "C" {
int freestone_mallctl(const char* name, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes);
int freestone_mallctlnametomib(const char* name, size_t* mib, size_t* length);
int freestone_mallctlbymib(const size_t* mib, size_t length, void* old, size_t* old_bytes, void* fresh,
                           size_t fresh_bytes);
}

namespace {

constexpr size_t kRoom = 16;
constexpr size_t kGuard = 16;
constexpr uint8_t kUntouched = 0xA5;

bool is_known(int answer) {
  return answer == 0 || answer == EINVAL || answer == ENOENT || answer == EPERM || answer == EFAULT ||
         answer == EAGAIN || answer == ENOMEM || answer == EIO;
}

struct Question {
  bool has_old, has_length, has_fresh;
  size_t old_bytes;
  std::string fresh;
};

template <typename Ask>
int ask(const Question& question, Ask call) {
  uint8_t old[kRoom + kGuard];
  std::memset(old, kUntouched, sizeof old);
  size_t length = question.old_bytes;
  std::string fresh = question.fresh;
  const int answer = call(question.has_old ? old : nullptr, question.has_length ? &length : nullptr,
                          question.has_fresh ? fresh.data() : nullptr, fresh.size());
  FUZZ_EXPECT(is_known(answer));
  FUZZ_EXPECT(length <= question.old_bytes);
  for (size_t k = question.old_bytes; k < sizeof old; ++k) FUZZ_EXPECT(old[k] == kUntouched);
  FUZZ_EXPECT(fresh == question.fresh);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const uint8_t shape = input.byte();
  Question question{(shape & 1) != 0, (shape & 2) != 0, (shape & 4) != 0, input.byte() % (kRoom + 1), {}};
  const fuzz::Input fresh = input.take(shape >> 4);
  question.fresh.assign(reinterpret_cast<const char*>(fresh.data()), fresh.left());
  const std::string name(reinterpret_cast<const char*>(input.data()), input.left());
  // The new value of prof.dump is an address of the caller's: it must be one. A profile needs no file here.
  const bool dumps = name.rfind("prof.dump", 0) == 0;
  if (dumps) question.has_fresh = false;
  if (dumps && !question.has_old) return 0;

  const int answer = ask(question, [&](auto... rest) { return freestone_mallctl(name.c_str(), rest...); });
  size_t mib[8];
  size_t length = shape >> 3 & 1 ? 8 : input.left() % 8;
  const size_t room = length;
  const int found = freestone_mallctlnametomib(name.c_str(), mib, &length);
  FUZZ_EXPECT(found == 0 || found == ENOENT || found == EINVAL);
  FUZZ_EXPECT(length <= room);
  FUZZ_EXPECT(found != ENOENT || answer == ENOENT);
  if (found == 0) {
    const int again = ask(question, [&](auto... rest) { return freestone_mallctlbymib(mib, length, rest...); });
    FUZZ_EXPECT(again == answer);
    // Other numbers, and other lengths, are refused or answered.
    for (size_t k = 1; k < length; ++k) mib[k] = input.number(2) | data[0];
    ask(question, [&](auto... rest) { return freestone_mallctlbymib(mib, length, rest...); });
    ask(question, [&](auto... rest) { return freestone_mallctlbymib(mib, length - 1, rest...); });
  }
  mib[0] = input.left() + 1000;
  FUZZ_EXPECT(freestone_mallctlbymib(mib, 1, nullptr, nullptr, nullptr, 0) == ENOENT);
  return 0;
}
