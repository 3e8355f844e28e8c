// The table of system calls in docs/COMPATIBILITY.md: each phase of a program makes those that stand there, by the
// library's own code, and no other. What libc does for it, such as starting a thread, is libc's.
//
//   <!-- calls: begin --> ... <!-- calls: end -->
//   | when | calls | hardened, also |       a call with a star behind it depends on other threads or on the kernel
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "fault/syscalls/supervisor.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

using Names = std::set<std::string>;

#define CALL(name) {SYS_##name, #name}
const std::map<long, std::string> kNames = {
    CALL(clock_gettime), CALL(close),      CALL(fcntl),      CALL(fstat),     CALL(ftruncate),
    CALL(futex),         CALL(getdents64), CALL(getpid),     CALL(getrandom), CALL(gettid),
    CALL(lseek),         CALL(madvise),    CALL(mmap),       CALL(mprotect),  CALL(mremap),
    CALL(munmap),        CALL(nanosleep),  CALL(newfstatat), CALL(openat),    CALL(prctl),
    CALL(pread64),       CALL(prlimit64),  CALL(read),       CALL(renameat2), CALL(sched_getaffinity),
    CALL(sysinfo),       CALL(tgkill),     CALL(unlinkat),   CALL(write),
};
#undef CALL

struct Row {
  Names calls;
  Names hardened;
  Names depending;  // of both
};

// Takes the names in backticks.
void read_cell(const std::string& cell, Names& names, Names& depending) {
  for (size_t from = cell.find('`'); from != std::string::npos;) {
    const size_t end = cell.find('`', from + 1);
    const std::string name = cell.substr(from + 1, end - from - 1);
    names.insert(name);
    if (end + 1 < cell.size() && cell[end + 1] == '*') depending.insert(name);
    from = cell.find('`', end + 1);
  }
}

std::map<std::string, Row> documented() {
  std::map<std::string, Row> rows;
  std::ifstream page(FREESTONE_COMPATIBILITY);
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.find("<!-- calls:") == 0) inside = line.find("begin") != std::string::npos;
    if (!inside || line.empty() || line[0] != '|') continue;
    std::istringstream cells(line.substr(1));
    std::string when, calls, hardened;
    std::getline(cells, when, '|');
    std::getline(cells, calls, '|');
    std::getline(cells, hardened, '|');
    Row row;
    read_cell(calls, row.calls, row.depending);
    read_cell(hardened, row.hardened, row.depending);
    if (when.size() > 2) rows[when.substr(1, when.size() - 2)] = row;
  }
  return rows;
}

const char* const kPhases[] = {"start", "use", "threads", "the C library's statistics", "fork", "exit"};

// Any phase may make these; reports add none.
const std::set<long> kUsual = {SYS_futex, SYS_getrandom, SYS_gettid, SYS_madvise, SYS_mmap, SYS_mremap, SYS_munmap};

// What the library called in each phase of a program with these options, the usual calls left out or not.
std::map<std::string, Names> observed(const std::string& options, bool with_usual) {
  std::vector<int> numbers;
  for (int number = 0; number < 470; ++number)
    if (number != SYS_sendmsg && (with_usual || !kUsual.contains(number))) numbers.push_back(number);
  std::map<std::string, Names> calls;
  std::map<std::pair<pid_t, uint64_t>, bool> is_ours;  // each place that calls is looked up once
  size_t phase = 0;
  const auto plan = [&](const SystemCall& call) {
    if (call.number == SYS_getppid) {
      phase = std::min(phase + 1, std::size(kPhases) - 1);
      return 0;
    }
    const auto [place, is_new] = is_ours.try_emplace({call.process, call.instruction}, false);
    // The library asks libc for its own mremap (LEAVING-1), which the probe never calls.
    if (is_new) place->second = call.number == SYS_mremap || call.caller().find("libfreestone") != std::string::npos;
    if (place->second) {
      const auto name = kNames.find(call.number);
      calls[kPhases[phase]].insert(name != kNames.end() ? name->second : "call " + std::to_string(call.number));
    }
    return 0;
  };
  const SupervisedEnd end = run_supervised(numbers, plan, [&] {
    setenv("FREESTONE_CONF", options.c_str(), 1);
    execl(FREESTONE_PROBE_DIR "/calls_probe", "calls_probe", static_cast<char*>(nullptr));
    return 126;
  });
  EXPECT_TRUE(end.child.exited_with(0)) << end.child.describe();
  EXPECT_EQ(phase, std::size(kPhases) - 1);
  return calls;
}

class Calls : public SupervisedTest {
 protected:
  void SetUp() override {
    SupervisedTest::SetUp();
    if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  }

  // Compares a row with what was seen: never more, and all of it.
  void expect_row(const std::string& when, const Names& seen) {
    static const std::map<std::string, Row> rows = documented();
    const auto found = rows.find(when);
    std::string all;
    for (const std::string& name : seen) all += "`" + name + "` ";
    ASSERT_NE(found, rows.end()) << "no row '" << when << "' with: " << all;
    Names stated = found->second.calls;
    if (subject().is_hardened) stated.insert(found->second.hardened.begin(), found->second.hardened.end());
    for (const std::string& name : seen) EXPECT_TRUE(stated.contains(name)) << when << ": not in the table: " << name;
    for (const std::string& name : stated) {
      EXPECT_TRUE(seen.contains(name) || found->second.depending.contains(name)) << when << ": not seen: " << name;
    }
  }
};

TEST_F(Calls, OfEachPhaseAreThoseOfTheTable) {
  const std::map<std::string, Names> seen = observed("", true);
  for (const char* phase : kPhases) expect_row(phase, seen.contains(phase) ? seen.at(phase) : Names{});
}

// What an option adds, in whichever phase.
TEST_F(Calls, OfEachReportAreThoseOfTheTable) {
  std::map<std::string, Names> plain = observed("", false);
  for (const auto& [when, options] : std::initializer_list<std::pair<const char*, const char*>>{
           {"`stats_print`", "stats_print:true"},
           {"`stats_file`, `stats_interval_ms`", "stats_interval_ms:5,stats_file:/dev/shm/freestone-calls-%p.json"},
           {"`live_page`", "live_page:true"},
           {"`prof`", "prof:true,prof_sample_bytes:64k,prof_file:/dev/shm/freestone-calls-%p.heap"},
           {"`leak`", "leak:exact"},
           {"`guard_sample`", "guard_sample:32k"},
           {"`background_purge`", "background_purge:true"},
           {"`limit_soft`, `limit_hard`", "limit_hard:90%"},
           {"`pressure`", "pressure:true"},
       }) {
    Names added;
    for (const auto& [phase, names] : observed(options, false)) {
      for (const std::string& name : names)
        if (!plain[phase].contains(name)) added.insert(name);
    }
    expect_row(when, added);
  }
}

}  // namespace
}  // namespace freestone_test
