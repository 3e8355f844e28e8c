#include "writer/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace freestone::trace {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(100);
constexpr int kLastRetries = 20;  // at the end of a recording, which must not be dropped

}  // namespace

Output::Output(const std::string& path, uint64_t most_bytes, uint64_t queue_bytes, uint64_t step_ns,
               uint64_t started_unix_ns)
    : most_bytes_(most_bytes), most_queued_bytes_(queue_bytes) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) return;
  struct stat about;
  seekable_ = fstat(fd_, &about) == 0 && S_ISREG(about.st_mode);
  if (!write_all(file_header(step_ns, started_unix_ns))) {
    close(fd_);
    fd_ = -1;
    return;
  }
  thread_ = std::thread([this] { run(); });
}

Output::~Output() {
  if (fd_ >= 0) close(fd_);
}

void Output::put(Block block) {
  queued_bytes_.fetch_add(block.payload.size(), std::memory_order_relaxed);  // a threshold
  const std::lock_guard guard(lock_);
  queue_.push_back(std::move(block));
  changed_.notify_one();
}

void Output::run() {
  for (;;) {
    std::unique_lock guard(lock_);
    changed_.wait(guard, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Block block = std::move(queue_.front());
    queue_.pop_front();
    guard.unlock();
    store(block);
    queued_bytes_.fetch_sub(block.payload.size(), std::memory_order_relaxed);  // a threshold
  }
}

void Output::store(const Block& block) {
  const Bytes packed = packer_.pack(block);
  const uint64_t reserve = kEndBytes + index_.bytes();
  if (at_limit_.load(std::memory_order_relaxed) || (most_bytes_ && offset_ + packed.size() + reserve > most_bytes_)) {
    at_limit_.store(true, std::memory_order_relaxed);  // noticed sooner or later
    return;
  }
  const uint64_t offset = offset_;
  for (int tries = 0; !write_all(packed); tries++) {
    take_back();
    if (!seekable_ || (hurry_.load(std::memory_order_relaxed) && tries >= kLastRetries)) {
      problem_ = std::string("writing failed: ") + std::strerror(errno);
      at_limit_.store(true, std::memory_order_relaxed);  // noticed sooner or later
      return;
    }
    std::this_thread::sleep_for(kRetryPause);
  }
  index_.add(block, offset);
}

bool Output::write_all(const Bytes& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(fd_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  offset_ += bytes.size();
  return true;
}

void Output::take_back() {
  const int error = errno;
  if (seekable_ && ftruncate(fd_, static_cast<off_t>(offset_)) == 0) lseek(fd_, static_cast<off_t>(offset_), SEEK_SET);
  errno = error;
}

void Output::drain() {
  hurry_.store(true, std::memory_order_relaxed);  // read after the queue's lock
  {
    const std::lock_guard guard(lock_);
    ending_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

std::string Output::finish(Block last) {
  const uint64_t offset = offset_;
  if (write_all(packer_.pack(last)))
    index_.add(last, offset);
  else
    take_back();
  if (!write_all(index_.finish(packer_, offset_))) {
    problem_ = std::string("the end could not be written: ") + std::strerror(errno);
    take_back();
  }
  return problem_;
}

}  // namespace freestone::trace
