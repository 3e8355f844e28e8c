// The harness's hands: loads and stores that the compiler keeps, every way to obtain and return a block, and threads.
#include "harness.h"

#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include <new>

namespace attack {

void poke(void* address, std::uint64_t word) {
  volatile Byte* const bytes = static_cast<volatile Byte*>(opaque(address));
  for (unsigned i = 0; i < 8; i++) bytes[i] = static_cast<Byte>(word >> (8 * i));
}

std::uint64_t peek(const void* address) {
  const volatile Byte* const bytes = static_cast<const volatile Byte*>(opaque(address));
  std::uint64_t word = 0;
  for (unsigned i = 0; i < 8; i++) word |= std::uint64_t{bytes[i]} << (8 * i);
  return word;
}

// A header as lists of blocks have it: the size with the header's own 8 bytes, a multiple of 16, and a flag in bit 0.
// Words are those of the address space, so that a range that starts amid one is dressed as its neighbour would be.
void dress(Byte* from, std::size_t bytes, std::size_t block_bytes) {
  const std::uint64_t size = (block_bytes + 8 + 15) & ~std::uint64_t{15};
  const std::uint64_t header = (size < 32 ? 32 : size) | 1;
  volatile Byte* const range = opaque(from);
  for (std::size_t i = 0; i < bytes; i++) range[i] = static_cast<Byte>(header >> (8 * ((address_of(from) + i) & 7)));
}

// The first byte changes by a multiple of 16 that keeps its low bits: in a heap with headers that is a plausible size,
// which is what an attacker would choose.
void flip(Byte* from, std::size_t bytes, Random& random) {
  volatile Byte* const range = opaque(from);
  range[0] = static_cast<Byte>(range[0] ^ ((1 + random.below(15)) << 4));
  for (std::size_t i = 1; i < bytes; i++) range[i] = static_cast<Byte>(range[i] ^ (1 + (i & 127)));
}

unsigned peruse(const Byte* from, std::size_t bytes) {
  const volatile Byte* const range = opaque(from);
  unsigned sum = 0;
  for (std::size_t i = 0; i < bytes; i++) sum += range[i];
  return sum;
}

void* allocate(std::size_t bytes, Source source) {
  switch (source) {
    case Source::kMalloc: return opaque(::malloc(bytes));
    case Source::kCalloc: return opaque(::calloc(1, bytes));
    case Source::kAligned: return opaque(::memalign(64, bytes));
    case Source::kPageAligned: return opaque(::memalign(kPage, bytes));
    case Source::kRealloc: return opaque(::realloc(opaque(::malloc(bytes / 2 + 1)), bytes));
    case Source::kNew: return opaque(::operator new(bytes, std::nothrow));
    case Source::kNewArray: return opaque(::operator new[](bytes, std::nothrow));
  }
  return nullptr;
}

void release(void* block, Source source) {
  switch (source) {
    case Source::kNew: ::operator delete(opaque(block)); return;
    case Source::kNewArray: ::operator delete[](opaque(block)); return;
    default: ::free(opaque(block)); return;
  }
}

namespace {

struct Call {
  void (*body)(void*);
  void* argument;
};

void* run_call(void* argument) {
  const Call call = *static_cast<Call*>(argument);
  call.body(call.argument);
  return nullptr;
}

}  // namespace

void in_thread(void (*body)(void*), void* argument) {
  Call call{body, argument};
  pthread_t thread;
  if (pthread_create(&thread, nullptr, run_call, &call) != 0) ::_exit(4);
  pthread_join(thread, nullptr);
}

struct Partner::State {
  pthread_t thread;
  sem_t asked;
  sem_t done;
  Call call;  // written before `asked` is posted, read after it was waited for; body is null at the end
};

namespace {
alignas(64) Byte g_partner_memory[4][512];
unsigned g_partners = 0;
}  // namespace

Partner::Partner() : state_(new (g_partner_memory[g_partners++ % 4]) State{}) {
  static_assert(sizeof(State) <= sizeof g_partner_memory[0]);
  sem_init(&state_->asked, 0, 0);
  sem_init(&state_->done, 0, 0);
  auto serve = [](void* argument) -> void* {
    State* const state = static_cast<State*>(argument);
    for (;;) {
      while (sem_wait(&state->asked) != 0) {
      }
      if (state->call.body == nullptr) return nullptr;
      state->call.body(state->call.argument);
      sem_post(&state->done);
    }
  };
  if (pthread_create(&state_->thread, nullptr, serve, state_) != 0) ::_exit(4);
}

void Partner::run(void (*body)(void*), void* argument) {
  state_->call = {body, argument};
  sem_post(&state_->asked);
  while (sem_wait(&state_->done) != 0) {
  }
}

Partner::~Partner() {
  state_->call = {nullptr, nullptr};
  sem_post(&state_->asked);
  pthread_join(state_->thread, nullptr);
}

}  // namespace attack
