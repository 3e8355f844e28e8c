// One random workload whose truth is known: estimates_probe SEED SAMPLE_BYTES. Prints JSON: for each place of
// allocation, and for each quantity, the truth and the variance that unbiased sampling must have.
#include <pthread.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "support/random.h"

namespace {

using freestone_test::Random;

constexpr int kSites = 12;
constexpr int kHeld = 6000;
double sample_bytes;

struct Quantity {
  double objects = 0, bytes = 0, objects_variance = 0, bytes_variance = 0;
  void add(size_t size, double sign) {
    const double p = -std::expm1(-static_cast<double>(size == 0 ? 1 : size) / sample_bytes);
    const double s = static_cast<double>(size);
    objects += sign;
    bytes += sign * s;
    objects_variance += sign * (1 - p) / p;
    bytes_variance += sign * s * s * (1 - p) / p;
  }
};

struct Truth {
  Quantity all, live;
};

struct Held {
  void* block;
  size_t size;
  int site;
};

struct Worker {
  uint64_t seed;
  int steps;
  Truth truth[kSites];
  Held held[kHeld];  // what lives at the end
};

// Places of allocation that no optimisation merges: the address of the call says which it was.
template <int site>
__attribute__((noinline)) void* allocate_at(size_t size, int how) {
  void* block = nullptr;
  switch (how) {
    case 0: block = malloc(size); break;
    case 1: block = calloc(1, size); break;
    case 2: block = aligned_alloc(64, size); break;
    default: block = realloc(nullptr, size); break;
  }
  asm volatile("" : "+r"(block) : "r"(site) : "memory");
  return block;
}

template <int... sites>
void* dispatch(int site, size_t size, int how, std::integer_sequence<int, sites...>) {
  static void* (*const table[])(size_t, int) = {allocate_at<sites>...};
  return table[site](size, how);
}
void* allocate(int site, size_t size, int how) {
  return dispatch(site, size, how, std::make_integer_sequence<int, kSites>{});
}

template <int... sites>
uintptr_t address_of(int site, std::integer_sequence<int, sites...>) {
  static void* (*const table[])(size_t, int) = {allocate_at<sites>...};
  return reinterpret_cast<uintptr_t>(table[site]);
}

// Each site has its own sizes and lifetimes: mostly short-lived small, some long-lived, few large ones.
void* run(void* argument) {
  auto& worker = *static_cast<Worker*>(argument);
  Random random(worker.seed);
  size_t low[kSites], high[kSites];
  unsigned keep[kSites];
  for (int s = 0; s < kSites; ++s) {
    low[s] = random.log_uniform(s == 0 ? 1 : 64, 4000);
    high[s] = low[s] + random.log_uniform(1, s % 4 == 0 ? 300000 : 2000);
    keep[s] = static_cast<unsigned>(random.below(100));
  }
  for (int i = 0; i < worker.steps; ++i) {
    const int site = static_cast<int>(random.below(kSites));
    const size_t size = random.log_uniform(static_cast<double>(low[site]), static_cast<double>(high[site]));
    void* block = allocate(site, size, static_cast<int>(random.below(4)));
    if (block == nullptr) abort();
    memset(block, 1, size < 64 ? size : 64);
    worker.truth[site].all.add(size, 1);
    if (random.below(100) >= keep[site]) {
      free(block);
      continue;
    }
    Held& held = worker.held[random.below(kHeld)];
    if (held.block != nullptr) {
      worker.truth[held.site].live.add(held.size, -1);
      free(held.block);
    }
    worker.truth[site].live.add(size, 1);
    held = {block, size, site};
  }
  return nullptr;
}

}  // namespace

int main(int, char** arguments) {
  const uint64_t seed = strtoull(arguments[1], nullptr, 0);
  sample_bytes = atof(arguments[2]);
  Random random(seed);
  const int threads = static_cast<int>(1 + random.below(3));
  static Worker workers[3];
  pthread_t ids[3];
  for (int t = 0; t < threads; ++t) {
    workers[t].seed = random.next();
    workers[t].steps = static_cast<int>(20000 + random.below(60000)) / threads;
    if (t > 0) pthread_create(&ids[t], nullptr, run, &workers[t]);
  }
  run(&workers[0]);
  for (int t = 1; t < threads; ++t) pthread_join(ids[t], nullptr);
  printf("[");
  for (int s = 0; s < kSites; ++s) {
    Quantity sums[2];
    for (int t = 0; t < threads; ++t) {
      const Quantity* parts[2] = {&workers[t].truth[s].all, &workers[t].truth[s].live};
      for (int q = 0; q < 2; ++q) {
        sums[q].objects += parts[q]->objects;
        sums[q].bytes += parts[q]->bytes;
        sums[q].objects_variance += parts[q]->objects_variance;
        sums[q].bytes_variance += parts[q]->bytes_variance;
      }
    }
    printf("%s{\"address\": %" PRIuPTR, s > 0 ? ",\n" : "\n", address_of(s, std::make_integer_sequence<int, kSites>{}));
    const char* names[2] = {"alloc", "inuse"};
    for (int q = 0; q < 2; ++q) {
      printf(", \"%s_objects\": [%.17g, %.17g], \"%s_space\": [%.17g, %.17g]", names[q], sums[q].objects,
             sums[q].objects_variance, names[q], sums[q].bytes, sums[q].bytes_variance);
    }
    printf("}");
  }
  printf("\n]\n");
  fflush(stdout);
  return 0;
}
