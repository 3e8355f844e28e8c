// libc's functions that fill a buffer, in the hardened library: none begins to write where it may leave a heap block,
// and none does less than libc's own. Twice: as they are, and with check_libc:false.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/child.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kBytes = 100, kNoRoomKnown = SIZE_MAX;

bool is_off() {
  const char* const conf = std::getenv("FREESTONE_CONF");
  return conf != nullptr && std::strstr(conf, "check_libc:false") != nullptr;
}
bool defines(const char* name) {
  Dl_info of_call{}, of_malloc{};
  return subject().is_hardened && dladdr(dlsym(RTLD_DEFAULT, name), &of_call) != 0 &&
         dladdr(reinterpret_cast<void*>(api().malloc), &of_malloc) != 0 && of_call.dli_fbase == of_malloc.dli_fbase;
}

// Calls by name, past what the compiler knows of each.
template <typename... Arguments>
intptr_t call(const char* name, Arguments... arguments) {
  return reinterpret_cast<intptr_t (*)(Arguments...)>(dlsym(RTLD_DEFAULT, name))(arguments...);
}

char source[2 * kBytes];
int file() { return open("/proc/self/exe", O_RDONLY); }
FILE* stream() { return std::fopen("/proc/self/exe", "r"); }
int letter() {
  int ends[2];
  socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
  return send(ends[1], source, sizeof source, 0) < 0 ? -1 : ends[0];
}

struct Filling {
  const char* name;
  void (*fill)(const char* name, char* to, size_t bytes);
};
#define FILLING(name, ...) {#name, [](const char* call_name, char* to, size_t bytes) { call(call_name, __VA_ARGS__); }}
const Filling kFillings[] = {
    FILLING(read, file(), to, bytes),
    FILLING(pread, file(), to, bytes, 0L),
    FILLING(pread64, file(), to, bytes, 0L),
    FILLING(recv, letter(), to, bytes, 0),
    FILLING(recvfrom, letter(), to, bytes, 0, nullptr, nullptr),
    FILLING(fread, to, size_t{2}, bytes / 2, stream()),
    FILLING(fread_unlocked, to, size_t{2}, bytes / 2, stream()),
    FILLING(fgets, to, static_cast<int>(bytes), stream()),
    FILLING(fgets_unlocked, to, static_cast<int>(bytes), stream()),
    FILLING(getcwd, to, bytes),
    FILLING(readlink, "/proc/self/exe", to, bytes),
    FILLING(bcopy, source, to, bytes),
    FILLING(bzero, to, bytes),
    FILLING(explicit_bzero, to, bytes),
    FILLING(memccpy, to, source, 'x', bytes),
    FILLING(wmemcpy, to, source, bytes / sizeof(wchar_t)),
    FILLING(wmemmove, to, source, bytes / sizeof(wchar_t)),
    FILLING(wmemset, to, L'w', bytes / sizeof(wchar_t)),
    FILLING(__read_chk, file(), to, bytes, kNoRoomKnown),
    FILLING(__pread_chk, file(), to, bytes, 0L, kNoRoomKnown),
    FILLING(__pread64_chk, file(), to, bytes, 0L, kNoRoomKnown),
    FILLING(__recv_chk, letter(), to, bytes, kNoRoomKnown, 0),
    FILLING(__recvfrom_chk, letter(), to, bytes, kNoRoomKnown, 0, nullptr, nullptr),
    FILLING(__fread_chk, to, kNoRoomKnown, size_t{2}, bytes / 2, stream()),
    FILLING(__fread_unlocked_chk, to, kNoRoomKnown, size_t{2}, bytes / 2, stream()),
    FILLING(__getcwd_chk, to, bytes, kNoRoomKnown),
    FILLING(__readlink_chk, "/proc/self/exe", to, bytes, kNoRoomKnown),
    FILLING(__explicit_bzero_chk, to, bytes, kNoRoomKnown),
    FILLING(__wmemcpy_chk, to, source, bytes / sizeof(wchar_t), kNoRoomKnown),
    FILLING(__wmemmove_chk, to, source, bytes / sizeof(wchar_t), kNoRoomKnown),
    FILLING(__wmemset_chk, to, L'w', bytes / sizeof(wchar_t), kNoRoomKnown),
};

char* attacked;
// At the end of a child: it goes on to die of the misuse only if nothing was written before.
void expect_untouched(int) {
  if (!std::all_of(attacked, attacked + kBytes, [](char byte) { return byte == 'p'; })) _exit(9);
}

class Fillings : public testing::TestWithParam<Filling> {
 protected:
  void SetUp() override {
    if (!defines("memcpy") || !defines(GetParam().name)) GTEST_SKIP() << "the subject checks no such call";
  }
  static void fill(char* to, size_t bytes) { GetParam().fill(GetParam().name, to, bytes); }
};

TEST_P(Fillings, EndInTheirBlock) {
  for (const size_t from : {size_t{0}, kBytes / 2}) {
    EXPECT_TRUE(ends_well([&] {
      auto* block = static_cast<char*>(api().malloc(kBytes));
      fill(block + from, kBytes - from);
      fill(block + kBytes + 8, 0);
      api().free(block);
    })) << from;
    const auto attack = [&] {
      attacked = static_cast<char*>(std::memset(api().malloc(kBytes), 'p', kBytes));
      std::signal(SIGABRT, expect_untouched);
      fill(attacked + from, kBytes - from + sizeof(wchar_t));
    };
    EXPECT_TRUE(is_off() ? ends_well(attack) : dies_by(SIGABRT, "heap overflow", attack)) << from;
  }
}

TEST_P(Fillings, TouchNoFreedBlock) {
  const auto attack = [&] {
    auto* block = static_cast<char*>(api().malloc(kBytes));
    api().free(block);
    fill(block, kBytes);
  };
  EXPECT_TRUE(is_off() ? ends_well(attack) : dies_by(SIGABRT, "write after free", attack));
}

TEST_P(Fillings, FillWhatIsNoBlock) {
  static char outside[2 * kBytes];
  EXPECT_TRUE(ends_well([&] { fill(outside, kBytes); }));
}

INSTANTIATE_TEST_SUITE_P(Calls, Fillings, testing::ValuesIn(kFillings),
                         [](const auto& each) { return std::string(each.param.name); });

// Of a program that the compiler gave the room.
TEST(FillingCalls, StayInTheRoomThatTheCompilerKnows) {
  if (!defines("read")) GTEST_SKIP() << "the subject checks no such call";
  static char outside[2 * kBytes];
  EXPECT_TRUE(ends_well([] { call("__read_chk", file(), outside, kBytes, kBytes); }));
  EXPECT_TRUE(dies_by(SIGABRT, [] { call("__read_chk", file(), outside, kBytes + 1, kBytes); }));
}

TEST(FillingCalls, CopyUpToTheLastByteOnly) {
  auto* block = static_cast<char*>(api().malloc(4));
  EXPECT_EQ(call("memccpy", block, "abcdefgh", 'd', kBytes), reinterpret_cast<intptr_t>(block + 4));
  EXPECT_EQ(std::memcmp(block, "abcd", 4), 0);
  EXPECT_EQ(call("memccpy", block, "abcdefgh", 'x', size_t{4}), 0);
  api().free(block);
}

TEST(FillingCalls, MayDropWhatAStreamHolds) {
  EXPECT_TRUE(ends_well([] {
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    send(ends[1], source, 8, 0);
    auto* block = static_cast<char*>(api().malloc(8));
    return call("recv", ends[0], block, kBytes, static_cast<int>(MSG_TRUNC)) == 8 ? 0 : 1;
  }));
}

TEST(FillingCalls, AnswerAsTheCLibrary) {
  auto* block = static_cast<char*>(api().malloc(kBytes));
  const auto fails_with = [](int expected, intptr_t answer) { return answer == -1 && errno == expected; };
  EXPECT_TRUE(fails_with(EBADF, read(-1, block, kBytes)));
  EXPECT_TRUE(fails_with(EBADF, pread(-1, block, kBytes, 0)));
  EXPECT_TRUE(fails_with(EBADF, recv(-1, block, kBytes, 0)));
  EXPECT_TRUE(fails_with(EFAULT, call("read", file(), reinterpret_cast<char*>(8), kBytes)));
  EXPECT_TRUE(fails_with(ENOENT, readlink("/no such file", block, kBytes)));
  EXPECT_EQ(call("getcwd", block, size_t{1}), 0);
  EXPECT_EQ(errno, ERANGE);
  char* const folder = getcwd(nullptr, 0);
  EXPECT_NE(folder, nullptr);
  std::free(folder);
  std::FILE* const text = fmemopen(const_cast<char*>("one\ntwo"), 7, "r");
  EXPECT_STREQ(std::fgets(block, kBytes, text), "one\n");
  EXPECT_EQ(std::fread(block, 1, kBytes, text), 3U);
  std::fclose(text);
  api().free(block);
}

bool is_cleaned_up;
void clean_up(void* block) {
  api().free(block);
  is_cleaned_up = true;
}
template <bool receives>
void* wait_for_ever(void* end) {
  void* const block = api().malloc(kBytes);
  pthread_cleanup_push(clean_up, block);
  const int from = *static_cast<int*>(end);
  if ((receives ? recv(from, block, kBytes, 0) : read(from, block, kBytes)) != 0) std::abort();
  pthread_cleanup_pop(1);
  return nullptr;
}

TEST(FillingCalls, MayBeCancelled) {
  for (const auto body : {wait_for_ever<false>, wait_for_ever<true>}) {
    is_cleaned_up = false;
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, body, ends), 0);
    usleep(20000);  // most of the time the thread waits by then; the call is a cancellation point in any case
    void* result = nullptr;
    ASSERT_EQ(pthread_cancel(thread), 0);
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
    EXPECT_TRUE(is_cleaned_up);
  }
}

}  // namespace
}  // namespace freestone_test
