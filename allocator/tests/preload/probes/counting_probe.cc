// Calls every form of operator new and delete and prints how many calls of malloc, aligned_alloc and free another's
// functions see: those of a library ahead (counting.c), or with the argument `late` its own, which it puts into the
// relocated words of all loaded objects while it runs, as memray does.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

namespace {

constexpr std::align_val_t kWide{64};
using Size = std::size_t;

struct Form {
  void* (*create)(Size);
  void (*destroy)(void*, Size);
};
const Form kForms[] = {
    {[](Size n) { return ::operator new(n); }, [](void* p, Size) { ::operator delete(p); }},
    {[](Size n) { return ::operator new[](n); }, [](void* p, Size) { ::operator delete[](p); }},
    {[](Size n) { return ::operator new(n, std::nothrow); }, [](void* p, Size n) { ::operator delete(p, n); }},
    {[](Size n) { return ::operator new[](n, std::nothrow); }, [](void* p, Size n) { ::operator delete[](p, n); }},
    {[](Size n) { return ::operator new(n, kWide); }, [](void* p, Size) { ::operator delete(p, kWide); }},
    {[](Size n) { return ::operator new[](n, kWide); }, [](void* p, Size) { ::operator delete[](p, kWide); }},
    {[](Size n) { return ::operator new(n, kWide, std::nothrow); },
     [](void* p, Size n) { ::operator delete(p, n, kWide); }},
    {[](Size n) { return ::operator new[](n, kWide, std::nothrow); },
     [](void* p, Size n) { ::operator delete[](p, n, kWide); }},
};
constexpr Size kSizes[] = {0, 1, 24, 100, 100, 100, 1000, 5000, 40000, 200000, 3000000};
constexpr int kKept = 2000;

std::atomic_long own_calls[3];
std::atomic_long* calls = own_calls;

void* (*next_malloc)(Size);
void* (*next_aligned)(Size, Size);
int (*next_into)(void**, Size, Size);
void (*next_free)(void*);
void* seen_malloc(Size bytes) {
  ++own_calls[0];
  return next_malloc(bytes);
}
void* seen_aligned(Size alignment, Size bytes) {
  ++own_calls[1];
  return next_aligned(alignment, bytes);
}
int seen_into(void** block, Size alignment, Size bytes) {
  return (*block = seen_aligned(alignment, bytes)) != nullptr ? 0 : ENOMEM;
}
void seen_free(void* block) {
  if (block != nullptr) ++own_calls[2];
  next_free(block);
}

struct Word {
  const char* name;
  void* seen;
  void* next;
};

// Puts a function into the words that the loader filled in for its name, or takes it out again.
int patch(dl_phdr_info* object, Size, void* attach) {
  const Word words[] = {{"malloc", reinterpret_cast<void*>(seen_malloc), reinterpret_cast<void*>(next_malloc)},
                        {"aligned_alloc", reinterpret_cast<void*>(seen_aligned), reinterpret_cast<void*>(next_aligned)},
                        {"posix_memalign", reinterpret_cast<void*>(seen_into), reinterpret_cast<void*>(next_into)},
                        {"free", reinterpret_cast<void*>(seen_free), reinterpret_cast<void*>(next_free)}};
  const std::string_view file = object->dlpi_name;
  if (file.find("libfreestone") == file.npos && file.find("libstdc++") == file.npos) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    Size value[64] = {};
    auto* at = reinterpret_cast<ElfW(Dyn)*>(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; at->d_tag != DT_NULL; ++at)
      if (at->d_tag < 64) value[at->d_tag] = at->d_un.d_ptr;
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(value[DT_SYMTAB]);
    const Size tables[][2] = {{value[DT_RELA], value[DT_RELASZ]}, {value[DT_JMPREL], value[DT_PLTRELSZ]}};
    for (const auto& [start, bytes] : tables) {
      const auto* const end = reinterpret_cast<const ElfW(Rela)*>(start + bytes);
      for (const auto* at = reinterpret_cast<const ElfW(Rela)*>(start); at < end; ++at) {
        const char* name = reinterpret_cast<const char*>(value[DT_STRTAB]) + symbols[ELF64_R_SYM(at->r_info)].st_name;
        for (const Word& word : words) {
          if (std::strcmp(name, word.name) != 0) continue;
          const Size place = object->dlpi_addr + at->r_offset;
          const auto page = static_cast<Size>(sysconf(_SC_PAGESIZE));
          mprotect(reinterpret_cast<void*>(place / page * page), page, PROT_READ | PROT_WRITE);
          *reinterpret_cast<void**>(place) = attach != nullptr ? word.seen : word.next;
        }
      }
    }
  }
  return 0;
}

std::vector<void*> keep(const Form& form) {
  std::vector<void*> kept(kKept);
  for (void*& block : kept) block = form.create(100);
  return kept;
}
void give(const Form& form, const std::vector<void*>& kept) {
  for (void* block : kept) form.destroy(block, 100);
}

void use_all() {
  for (const Form& form : kForms)
    for (const Size bytes : kSizes) {
      void* const block = form.create(bytes);
      std::memset(block, 1, bytes);
      form.destroy(block, bytes);
      form.destroy(nullptr, bytes);
    }
}

void tell(const char* what, void (*work)()) {
  long before[3];
  for (int i = 0; i < 3; ++i) before[i] = calls[i];
  work();
  long after[3];
  for (int i = 0; i < 3; ++i) after[i] = calls[i] - before[i];
  std::printf("%s: %ld %ld %ld\n", what, after[0], after[1], after[2]);
}

void tell_all() {
  tell("one thread", use_all);
  static std::atomic_int step;
  step = 0;
  pthread_t thread;
  const auto body = [](void*) -> void* {
    use_all();
    for (step = 1; step != 2;) sched_yield();
    use_all();
    step = 3;
    return nullptr;
  };
  pthread_create(&thread, nullptr, body, nullptr);
  while (step != 1) sched_yield();
  tell("two threads", [] {
    step = 2;
    use_all();
    while (step != 3) sched_yield();
  });
  pthread_join(thread, nullptr);
  std::fflush(stdout);
  if (fork() == 0) {
    tell("child", use_all);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  wait(&status);
  std::printf("child ended with %d\n", status);
}

void run_late() {
  next_malloc = reinterpret_cast<void* (*)(Size)>(dlsym(RTLD_NEXT, "malloc"));
  next_aligned = reinterpret_cast<void* (*)(Size, Size)>(dlsym(RTLD_NEXT, "aligned_alloc"));
  next_into = reinterpret_cast<int (*)(void**, Size, Size)>(dlsym(RTLD_NEXT, "posix_memalign"));
  next_free = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_NEXT, "free"));
  std::vector<std::vector<void*>> older, younger;
  for (const Form& form : kForms) older.push_back(keep(form));
  use_all();
  dl_iterate_phdr(patch, calls);
  // A thread's cache may serve the first calls unseen.
  for (const Form& form : kForms) younger.push_back(keep(form));
  const long seen = calls[0] + calls[1];
  std::printf("seen of those kept: %s\n", seen > 8 * kKept * 9 / 10 ? "most" : "few");
  tell_all();
  for (Size i = 0; i < older.size(); i += 2) give(kForms[i], older[i]);
  for (Size i = 0; i < younger.size(); i += 2) give(kForms[i], younger[i]);
  dl_iterate_phdr(patch, nullptr);
  for (Size i = 1; i < older.size(); i += 2) give(kForms[i], older[i]);
  for (Size i = 1; i < younger.size(); i += 2) give(kForms[i], younger[i]);
  for (const Form& form : kForms) give(form, keep(form));
  tell_all();
}

}  // namespace

int main(int count, char**) {
  void* const ahead = dlsym(RTLD_DEFAULT, "counted_calls");
  if (ahead != nullptr) calls = static_cast<std::atomic_long*>(ahead);
  count > 1 ? run_late() : tell_all();
}
