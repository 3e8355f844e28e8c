// freestone-record: starts a program with the recorder in front of its allocator, or joins one that has it, and writes
// the trace. `freestone record` calls it, and checks its options too.
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cwchar>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "recorder/shared.h"
#include "writer/merge.h"
#include "writer/program.h"
#include "writer/samples.h"

namespace freestone::trace {
namespace {

constexpr uint64_t kStepNs = 1000;
constexpr uint64_t kSampleNs = 10'000'000;
constexpr uint64_t kPagesNs = 50'000'000;
constexpr uint64_t kLookNs = 250'000'000;
constexpr uint64_t kWordNs = 1'000'000'000;
constexpr uint64_t kForkPatienceNs = 5'000'000'000;  // for a child that has not entered itself yet
constexpr uint64_t kLeastBufferBytes = 2 << 20;

struct Options {
  std::string output;
  std::string library;
  std::string name = "program";
  std::string allocator = "glibc";
  long pid = 0;
  double seconds = 0;
  uint64_t most_bytes = 0;
  uint64_t buffer_bytes = 64 << 20;
  unsigned sample_threads = 1;
  unsigned stack_every = 0;
  char** command = nullptr;
};

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "freestone-record: %s\n", text.c_str());
  std::exit(2);
}

Options parse(int count, char** words) {
  Options options;
  const auto number = [](const char* text) { return std::strtoull(text, nullptr, 10); };
  const auto count_of = [](const char* text) { return static_cast<unsigned>(std::max(0L, std::atol(text))); };
  const std::map<std::string, std::function<void(const char*)>> known = {
      {"--output", [&](const char* value) { options.output = value; }},
      {"--library", [&](const char* value) { options.library = value; }},
      {"--name", [&](const char* value) { options.name = value; }},
      {"--allocator", [&](const char* value) { options.allocator = value; }},
      {"--pid", [&](const char* value) { options.pid = std::atol(value); }},
      {"--for", [&](const char* value) { options.seconds = std::atof(value); }},
      {"--max-bytes", [&](const char* value) { options.most_bytes = number(value); }},
      {"--buffer-bytes", [&](const char* value) { options.buffer_bytes = number(value); }},
      {"--sample-threads", [&](const char* value) { options.sample_threads = count_of(value); }},
      {"--stack-every", [&](const char* value) { options.stack_every = count_of(value); }},
  };
  int at = 1;
  for (; at < count && std::strcmp(words[at], "--") != 0; at += 2) {
    const auto found = known.find(words[at]);
    if (found == known.end()) fail("unknown option '" + std::string(words[at]) + "'");
    if (at + 1 >= count) fail("'" + found->first + "' needs a value");
    found->second(words[at + 1]);
  }
  options.sample_threads = std::max(1u, options.sample_threads);
  if (at + 1 < count) options.command = words + at + 1;
  if (options.output.empty()) fail("--output is missing");
  if ((options.command == nullptr) == (options.pid == 0)) fail("expected either --pid N or -- COMMAND");
  if (options.command && options.library.empty()) fail("--library is missing");
  return options;
}

// The shared memory of a recording. The destructor removes its file.
class Shared {
 public:
  explicit Shared(const Options& options) {
    uint64_t bytes = options.buffer_bytes;
    for (const char* folder : {"/dev/shm", "/tmp"}) {
      // At most half of the room that is there: a page that does not exist would kill the program.
      struct statvfs about;
      if (statvfs(folder, &about) != 0) continue;
      const uint64_t room = about.f_bavail * about.f_frsize / 2;
      if (room < kLeastBufferBytes) continue;
      if (make(folder, std::min(bytes, room))) break;
    }
    if (!header_) fail("no room for the buffers in /dev/shm or /tmp");
    header_->sample_threads = options.sample_threads;
    header_->stack_every = options.stack_every;
    __atomic_store_n(&header_->magic, FSR_MAGIC, __ATOMIC_RELEASE);  // any order would do: the program starts later
  }
  ~Shared() { unlink(path_.c_str()); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  fsr_header* header() const { return header_; }
  const std::string& path() const { return path_; }

 private:
  bool make(const std::string& folder, uint64_t bytes) {
    std::string path = folder + "/freestone-recording.XXXXXX";
    const int fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd < 0) return false;
    const uint64_t front = (sizeof(fsr_header) + 4095) / 4096 * 4096;
    const auto blocks = static_cast<uint32_t>(std::clamp<uint64_t>(bytes / kBlockBytes, 16, kMostBlocks));
    const uint64_t whole = front + static_cast<uint64_t>(blocks) * kBlockBytes;
    void* memory = MAP_FAILED;
    if (posix_fallocate(fd, 0, static_cast<off_t>(whole)) == 0)
      memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) {
      unlink(path.c_str());
      return false;
    }
    path_ = path;
    header_ = static_cast<fsr_header*>(memory);
    header_->blocks = blocks;
    header_->blocks_offset = front;
    for (uint32_t i = 0; i < blocks; i++) header_->free_bits[i / 64] |= uint64_t{1} << (i % 64);
    return true;
  }

  fsr_header* header_ = nullptr;
  std::string path_;
};

bool is_utf8(const std::string& text) {
  std::mbstate_t state{};
  const char* at = text.c_str();
  const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  const locale_t before = uselocale(utf8);
  const bool valid = utf8 != nullptr && std::mbsrtowcs(nullptr, &at, 0, &state) != static_cast<size_t>(-1);
  uselocale(before);
  if (utf8 != nullptr) freelocale(utf8);
  return valid;
}

// The name of a file may be no UTF-8, which JSON is: any byte above ASCII of such a text becomes a question mark.
std::string quoted(const std::string& text) {
  const bool valid = is_utf8(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || (byte >= 0x80 && !valid) ? '?' : c;
  }
  return out + '"';
}

Block text_block(fst_block_type type, const std::string& text) {
  return {type, 0, 0, 0, 0, 0, 0, {text.begin(), text.end()}};
}

// What is known at the start. It leaves out the program's arguments, which could hold a secret.
std::string describe(const Options& options) {
  utsname host{};
  uname(&host);
  std::string text = "{\"program\":" + quoted(options.name) + ",\"allocator\":" + quoted(options.allocator);
  text += ",\"machine\":" + quoted(host.machine) + ",\"kernel\":" + quoted(host.release);
  text += ",\"cpus\":" + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) +
          ",\"page_bytes\":" + std::to_string(sysconf(_SC_PAGESIZE));
  text += ",\"attached\":" + std::string(options.pid ? "true" : "false") +
          ",\"sample_threads\":" + std::to_string(options.sample_threads);
  return text + ",\"stack_every\":" + std::to_string(options.stack_every) + "}";
}

std::string summarize(const Counts& counts, uint64_t dropped_calls, uint64_t lost_processes, const std::string& end) {
  const std::pair<const char*, uint64_t> numbers[] = {
      {"events", counts.events},         {"births", counts.births},
      {"deaths", counts.deaths},         {"unknown_frees", counts.unknown_frees},
      {"lost_frees", counts.lost_frees}, {"gap_seconds", counts.gap_seconds},
      {"dropped_calls", dropped_calls},  {"lost_processes", lost_processes},
      {"threads", counts.threads},       {"processes", counts.processes}};
  std::string text = "{";
  for (const auto& [name, number] : numbers) text += quoted(name) + ":" + std::to_string(number) + ",";
  return text + "\"end\":" + quoted(end) + "}";
}

// Where a dormant process looks for what to join. Fails before anything is made or overwritten.
fsr_control* find_control(const Options& options) {
  const std::string path = FSR_CONTROL_PREFIX + std::to_string(options.pid);
  if (kill(static_cast<pid_t>(options.pid), 0) != 0 && errno == ESRCH)  // it may have left its control file
    fail("there is no process " + std::to_string(options.pid));
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    fail("process " + std::to_string(options.pid) + " is not preloaded with libfreestone-record.so, or not yours (" +
         path + ": " + std::strerror(errno) + ")");
  void* memory = mmap(nullptr, sizeof(fsr_control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  auto* control = static_cast<fsr_control*>(memory);
  if (memory == MAP_FAILED || control->magic != FSR_MAGIC) fail(path + " is not a control file of this recorder");
  return control;
}

void attach(fsr_control* control, const std::string& shared_path) {
  std::snprintf(control->path, sizeof control->path, "%s", shared_path.c_str());
  __atomic_fetch_add(&control->request, 1, __ATOMIC_RELEASE);  // publishes the path
  munmap(control, sizeof(fsr_control));
}

class Recording {
 public:
  Recording(const Options& options, Shared& shared, Output& output, Program& program)
      : options_(options),
        shared_(shared),
        output_(output),
        program_(program),
        merge_(shared.header(), output),
        samples_(merge_, output) {}

  // Runs until the program and all that it started are gone, time or room is used up, or a signal comes. Returns why.
  std::string run() {
    const uint64_t begun = monotonic_ns();
    uint64_t sample_at = begun, pages_at = begun, look_at = begun;
    for (;;) {
      const size_t taken = merge_.poll();
      const uint64_t now = monotonic_ns();
      if (now >= sample_at) samples_.read_resident(), sample_at = now + kSampleNs;
      if (now >= pages_at) samples_.read_pages(), pages_at = now + kPagesNs;
      program_.look_after();
      if (now >= look_at || program_.has_ended()) merge_.look_after(), look_at = now + kLookNs;
      if (options_.seconds > 0 && static_cast<double>(now - begun) / 1e9 >= options_.seconds) return "time";
      if (output_.is_at_limit()) return "max-bytes";
      if (program_.is_told_to_end()) return "signal";
      if (!program_.is_asked_to_end() && (options_.pid ? attached_gone() : program_.has_ended()) && all_gone())
        return "exit";
      if (taken < 1000) pause(taken);
    }
  }

  // Writes the end. Returns whether the trace has all that was recorded.
  bool finish(std::string end) {
    __atomic_store_n(&shared_.header()->stop, 1u, __ATOMIC_RELAXED);  // noticed by each thread when its block is full
    merge_.poll();
    merge_.look_after();
    merge_.flush_all();
    samples_.flush_all();
    output_.drain();
    if (output_.is_at_limit()) end = output_.problem().empty() ? "max-bytes" : "write-error";  // events are missing
    const Counts& counts = merge_.counts();
    const uint64_t dropped = __atomic_load_n(&shared_.header()->dropped_calls, __ATOMIC_RELAXED);  // a statistic
    const uint32_t entered = __atomic_load_n(&shared_.header()->next_process, __ATOMIC_RELAXED);   // a statistic
    const uint64_t lost = entered - std::min<uint32_t>(entered, kMostProcesses);
    const std::string problem = output_.finish(text_block(FST_BLOCK_SUMMARY, summarize(counts, dropped, lost, end)));
    std::fprintf(stderr, "freestone-record: %s: %llu calls, %llu bytes", options_.output.c_str(),
                 static_cast<unsigned long long>(counts.events), static_cast<unsigned long long>(output_.bytes()));
    if (counts.gap_seconds)
      std::fprintf(stderr, ", %llu seconds dropped", static_cast<unsigned long long>(counts.gap_seconds));
    if (dropped) std::fprintf(stderr, ", %llu calls without a buffer", static_cast<unsigned long long>(dropped));
    if (lost) std::fprintf(stderr, ", %llu processes too many", static_cast<unsigned long long>(lost));
    if (entered == 0) std::fprintf(stderr, ", no process loaded the recorder and may open its buffers");
    if (end != "exit") std::fprintf(stderr, ", ended by %s", end.c_str());
    std::fprintf(stderr, "%s%s\n", problem.empty() ? "" : "; ", problem.c_str());
    return problem.empty();
  }

  void wait_for_program() {
    while (!options_.pid && !program_.is_done()) {
      program_.look_after();
      pause(0);
    }
  }

 private:
  // What forked away may run for ever, and nothing else shows why this process waits.
  void tell_of(uint32_t living) {
    if (has_told_ || !program_.has_ended() || monotonic_ns() - program_.ended_ns() < kWordNs) return;
    has_told_ = true;
    std::fprintf(stderr, "freestone-record: '%s' has ended; it left process %u, which is recorded until it ends: %s\n",
                 options_.name.c_str(), living, "Ctrl-C ends the recording");
  }

  bool attached_gone() const {
    return options_.pid && kill(static_cast<pid_t>(options_.pid), 0) != 0 && errno == ESRCH;
  }

  bool all_gone() {
    merge_.look_after();
    bool is_pending = false;
    if (const uint32_t living = one_that_lives(is_pending))
      alone_since_ = 0, tell_of(living);
    else if (!alone_since_)
      alone_since_ = monotonic_ns();
    return alone_since_ && (!is_pending || monotonic_ns() - alone_since_ > kForkPatienceNs);
  }

  uint32_t one_that_lives(bool& is_pending) {
    for (const Process& process : merge_.processes())
      if (process.known && !process.ended) return process.pid;
    // This process has entered itself and stored nothing yet, or is being forked.
    const uint32_t count = std::min<uint32_t>(shared_.header()->next_process, kMostProcesses);
    for (uint32_t i = 0; i < count; i++) {
      const fsr_process& entry = shared_.header()->processes[i];
      const uint32_t pid = __atomic_load_n(&entry.pid, __ATOMIC_ACQUIRE);
      if (pid && !is_gone(pid, pid)) return pid;
      if (!pid && __atomic_load_n(&entry.started, __ATOMIC_RELAXED)) is_pending = true;  // or its fork failed
    }
    return 0;
  }

  static void pause(size_t taken) {
    const timespec time{0, taken ? 500'000 : 2'000'000};
    nanosleep(&time, nullptr);
  }

  const Options& options_;
  Shared& shared_;
  Output& output_;
  Program& program_;
  Merge merge_;
  Samples samples_;
  bool has_told_ = false;
  uint64_t alone_since_ = 0;  // all known processes are gone since then; 0: some live
};

int run(const Options& options) {
  timespec started{};
  clock_gettime(CLOCK_REALTIME, &started);
  for (const int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_IGN);
  Program program;
  fsr_control* control = options.command ? nullptr : find_control(options);
  Shared shared(options);
  Output output(options.output, options.most_bytes, options.buffer_bytes / 2, kStepNs,
                static_cast<uint64_t>(started.tv_sec) * 1000000000u + static_cast<uint64_t>(started.tv_nsec));
  if (!output.is_open()) {
    unlink(shared.path().c_str());
    const bool in_use = errno == EWOULDBLOCK;
    fail("'" + options.output + "' cannot be written: " +
         (in_use ? "another recording is at work on it; name another file with -o" : std::strerror(errno)));
  }
  output.put(text_block(FST_BLOCK_META, describe(options)));
  Recording recording(options, shared, output, program);
  if (options.pid)
    attach(control, shared.path());
  else if (!program.start(options.command, options.library, shared.path()))
    fail(std::string("fork: ") + std::strerror(errno));
  const std::string end = recording.run();
  const bool is_whole = recording.finish(end);
  recording.wait_for_program();
  return is_whole ? program.status() : 2;
}

}  // namespace
}  // namespace freestone::trace

int main(int count, char** words) { return freestone::trace::run(freestone::trace::parse(count, words)); }
