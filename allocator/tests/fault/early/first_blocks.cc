// What a correct program may do with the first blocks of a process, while the fast build checks them (cache/early.h):
// fill each to the size that the library names, grow and shrink it in place, free it in another order, in a child and
// in another thread. Every way runs in a process of its own, forked before the first of its allocations.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <pthread.h>

namespace {

constexpr std::size_t kBlocks = 40;
char* blocks[kBlocks];
std::size_t bytes_of(std::size_t way, std::size_t k) { return way % 64 * 17 + k * k % 97 + (k % 8 == 0 ? 5000 : 0); }

void fill(char* block, std::size_t bytes) { std::memset(block, 'x', bytes); }
void take_all(std::size_t way, std::size_t rounds) {
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t k = 0; k < kBlocks; ++k) {
      const std::size_t bytes = bytes_of(way, k + round);
      if (round != 0) std::free(blocks[(k * 7 + round) % kBlocks]);
      char*& block = blocks[round != 0 ? (k * 7 + round) % kBlocks : k];
      void* const taken = k % 5 == 0 ? std::calloc(1, bytes) : k % 7 == 0 ? memalign(64, bytes) : std::malloc(bytes);
      block = static_cast<char*>(taken);
      for (std::size_t i = 0; k % 5 == 0 && i < bytes; ++i) {
        if (block[i] != 0) std::abort();
      }
      fill(block, bytes);
    }
  }
}
void use_all() {
  for (std::size_t k = 0; k < kBlocks; ++k) {
    if (k % 3 == 0) fill(blocks[k], malloc_usable_size(blocks[k]));
    if (k % 3 == 1) {
      const std::size_t bytes = malloc_usable_size(blocks[k]);
      for (const std::size_t wanted : {bytes, bytes - bytes / 4, bytes, bytes + 1}) {
        blocks[k] = static_cast<char*>(std::realloc(blocks[k], wanted));
        fill(blocks[k], wanted);
      }
    }
  }
}
void* free_all(void*) {
  for (std::size_t k = kBlocks; k-- > 0;) std::free(blocks[k]);
  return nullptr;
}
void* use_and_free(void*) {
  use_all();
  return free_all(nullptr);
}

// Whether a child ended as `work` did.
template <class Work>
bool in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    std::exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

void run(std::size_t way) {
  take_all(way, 1 + way % 16);  // up to 640 allocations: some ways end the watch, some do not
  switch (way / 16 % 4) {
    case 0: use_and_free(nullptr); break;
    case 1:
      if (!in_child([] { use_and_free(nullptr); })) std::abort();
      free_all(nullptr);
      break;
    case 2: {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, use_and_free, nullptr) != 0) std::abort();
      pthread_join(thread, nullptr);
      break;
    }
    default: malloc_trim(0); use_all();  // and the exit finds them live
  }
  take_all(way, 2);
  malloc_trim(0);
}

}  // namespace

int main() {
  int failed = 0;
  for (std::size_t way = 0; way < 128; ++way) {
    if (!in_child([way] { run(way); })) ++failed, std::fprintf(stderr, "way %zu failed\n", way);
  }
  return failed == 0 ? 0 : 1;
}
