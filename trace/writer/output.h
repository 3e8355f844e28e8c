// writer/output.h: the growing trace file. Its own thread packs and writes, so a slow disk delays nobody.
//
// OUTPUT-1: before each attempt the file ends with a whole block, because the remains of a failed write are cut off.
// OUTPUT-2: a file has its name once it is whole. Until then it is NAME.partial, locked for the process that writes it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "format/file_writer.h"

namespace freestone::trace {

class Output {
 public:
  // Opens the file and writes the header. If that fails, it is not open and errno says why. `most_bytes` bounds the
  // size of the whole file; 0: no bound. At most `queue_bytes` should wait for the disk.
  Output(const std::string& path, uint64_t most_bytes, uint64_t queue_bytes, uint64_t step_ns,
         uint64_t started_unix_ns);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool is_open() const { return fd_ >= 0; }

  // Whether the queue is full, so that anything put now would wait for the disk.
  bool is_full() const { return queued_bytes_.load(std::memory_order_relaxed) > most_queued_bytes_; }  // a threshold
  bool is_at_limit() const { return at_limit_.load(std::memory_order_relaxed); }  // noticed sooner or later

  void put(Block block);

  // Writes the queue. Then nothing is put any more, and `is_at_limit` and `problem` are final.
  void drain();
  const std::string& problem() const { return problem_; }  // what went wrong, or an empty text

  // After `drain`: writes `last` and the index; on a full disk instead of the last blocks. Returns `problem`.
  std::string finish(const Block& last);

  uint64_t bytes() const { return offset_; }

 private:
  static constexpr uint64_t kEndBytes = 64 << 10;  // the part of `most_bytes` kept for the last block and the index

  void run();
  void store(const Block& block);
  bool write_all(const Bytes& bytes);
  bool write_end(const Block& last);
  std::string partial() const { return path_ + ".partial"; }
  void take_back();

  int fd_ = -1;
  bool seekable_ = false;
  std::string path_;
  uint64_t most_bytes_;
  uint64_t most_queued_bytes_;
  uint64_t offset_ = 0;
  Packer packer_{1};
  Index index_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Block> queue_;
  std::atomic<size_t> queued_bytes_{0};
  std::atomic<bool> at_limit_{false};
  bool ending_ = false;
  std::atomic<bool> hurry_{false};
  std::string problem_;
  std::thread thread_;
};

}  // namespace freestone::trace
