// freestone-probe QUESTION: answers one question about the allocator that serves this very process.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "probe.hpp"

namespace probe {
namespace {

// The names stand in freestone_lab/peers/discover.py and come as further arguments.
int owners(int count, char** names) {
  Answer answer;
  for (int i = 0; i < count; ++i) {
    void* address = dlsym(RTLD_DEFAULT, names[i]);
    Dl_info where{};
    const bool found = address != nullptr && dladdr(address, &where) != 0 && where.dli_fname != nullptr;
    answer.add(names[i], std::string_view(found ? where.dli_fname : ""));
  }
  return 0;
}

constexpr Question kQuestions[] = {
    {"zero", ask_zero},
    {"alignment", ask_alignment},
    {"pvalloc", ask_pvalloc},
    {"malloc_huge", ask_malloc_huge},
    {"malloc_size_max", ask_malloc_size_max},
    {"calloc_overflow", ask_calloc_overflow},
    {"reallocarray_overflow", ask_reallocarray_overflow},
    {"memalign_huge", ask_memalign_huge},
    {"aligned_alloc_huge", ask_aligned_alloc_huge},
    {"realloc_huge", ask_realloc_huge},
    {"posix_memalign_huge", ask_posix_memalign_huge},
    {"free_errno", ask_free_errno},
    {"usable", ask_usable},
    {"content", ask_content},
    {"operators", ask_operators},
    {"mallinfo", ask_mallinfo},
    {"mallinfo2", ask_mallinfo2},
    {"malloc_stats", ask_malloc_stats},
    {"malloc_info", ask_malloc_info},
    {"malloc_trim", ask_malloc_trim},
    {"mallopt", ask_mallopt},
};

int run(int argc, char** argv) {
  if (argc >= 2 && std::strcmp(argv[1], "owners") == 0) return owners(argc - 2, argv + 2);
  for (const Question& question : kQuestions) {
    if (argc == 2 && std::strcmp(argv[1], question.name) == 0) {
      Answer answer;
      question.ask(answer);
      return 0;
    }
  }
  std::fprintf(stderr, "usage: freestone-probe owners NAME... | QUESTION, one of:");
  for (const Question& question : kQuestions) std::fprintf(stderr, " %s", question.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace
}  // namespace probe

int main(int argc, char** argv) {
  static char buffer[1 << 16];  // stdio must not ask the allocator for one
  std::setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  return probe::run(argc, argv);
}
