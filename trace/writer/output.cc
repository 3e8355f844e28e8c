#include "writer/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace freestone::trace {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(100);
constexpr int kLastRetries = 20;  // at the end of a recording, which must not be dropped

// Opens a file for this process alone, empty. -1, with errno EWOULDBLOCK where another process writes it.
int open_alone(const std::string& path) {
  for (;;) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    struct stat held, named;
    if (fd < 0) return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(fd);
      return -1;
    }
    const bool is_it = fstat(fd, &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino;
    if (is_it && ftruncate(fd, 0) == 0) return fd;
    close(fd);  // it has its final name by now
  }
}

}  // namespace

Output::Output(const std::string& path, uint64_t most_bytes, uint64_t queue_bytes, uint64_t step_ns,
               uint64_t started_unix_ns)
    : most_bytes_(most_bytes), most_queued_bytes_(queue_bytes) {
  struct stat about;
  const bool is_there = stat(path.c_str(), &about) == 0;
  seekable_ = !is_there || S_ISREG(about.st_mode);
  char* target = is_there ? realpath(path.c_str(), nullptr) : nullptr;  // the file, where `path` is a link to it
  path_ = target ? target : path;
  std::free(target);
  fd_ = seekable_ ? open_alone(partial()) : open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0) return;
  if (!write_all(file_header(step_ns, started_unix_ns))) {
    const int kept = errno;
    if (seekable_) unlink(partial().c_str());
    close(fd_);
    fd_ = -1;
    errno = kept;
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

std::string Output::finish(const Block& last) {
  while (!write_end(last)) {
    take_back();
    if (problem_.empty()) problem_ = std::string("the end could not be written: ") + std::strerror(errno);
    if (!seekable_ || index_.is_empty()) return problem_ + (seekable_ ? "; what there is lies in " + partial() : "");
    offset_ = index_.drop_last();  // its room is for the end
    take_back();
  }
  if (seekable_ && rename(partial().c_str(), path_.c_str()) != 0)
    problem_ = "it stays in " + partial() + ": " + std::strerror(errno);
  return problem_;
}

bool Output::write_end(const Block& last) {
  const uint64_t begin = offset_;
  Index index = index_;
  index.add(last, begin);
  Bytes end = packer_.pack(last);
  const Bytes rest = index.finish(packer_, begin + end.size());
  end.insert(end.end(), rest.begin(), rest.end());
  return write_all(end);
}

}  // namespace freestone::trace
