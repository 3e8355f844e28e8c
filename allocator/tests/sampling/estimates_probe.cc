// One random workload whose truth is known: estimates_probe SEED SAMPLE_BYTES. Prints JSON: for each place of
// allocation, and for each quantity, the truth and the variance that unbiased sampling must have.
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
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
  void add(const Quantity& other) {
    objects += other.objects;
    bytes += other.bytes;
    objects_variance += other.objects_variance;
    bytes_variance += other.bytes_variance;
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

using Allocate = void* (*)(size_t, int);
template <int... sites>
constexpr std::array<Allocate, sizeof...(sites)> places(std::integer_sequence<int, sites...>) {
  return {allocate_at<sites>...};
}
constexpr auto kPlaces = places(std::make_integer_sequence<int, kSites>{});

// Each site has its own sizes and lifetimes: mostly short-lived small, some long-lived, few large ones.
void run(Worker& worker) {
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
    void* block = kPlaces[site](size, static_cast<int>(random.below(4)));
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
}

}  // namespace

int main(int, char** arguments) {
  const uint64_t seed = strtoull(arguments[1], nullptr, 0);
  sample_bytes = atof(arguments[2]);
  Random random(seed);
  const int threads = static_cast<int>(1 + random.below(3));
  static Worker workers[3];
  std::thread others[3];
  for (int t = 0; t < threads; ++t) {
    workers[t].seed = random.next();
    workers[t].steps = static_cast<int>(20000 + random.below(60000)) / threads;
    if (t > 0) others[t] = std::thread(run, std::ref(workers[t]));
  }
  run(workers[0]);
  for (int t = 1; t < threads; ++t) others[t].join();
  printf("[");
  for (int s = 0; s < kSites; ++s) {
    Truth sum;
    for (int t = 0; t < threads; ++t) {
      sum.all.add(workers[t].truth[s].all);
      sum.live.add(workers[t].truth[s].live);
    }
    printf("%s\n{\"address\": %" PRIuPTR, s > 0 ? "," : "", reinterpret_cast<uintptr_t>(kPlaces[s]));
    for (const auto& [name, q] : {std::pair("alloc", sum.all), std::pair("inuse", sum.live)}) {
      printf(", \"%s_objects\": [%.17g, %.17g], \"%s_space\": [%.17g, %.17g]", name, q.objects, q.objects_variance,
             name, q.bytes, q.bytes_variance);
    }
    printf("}");
  }
  printf("\n]\n");
  fflush(stdout);
  return 0;
}
