// Room 4, platform: the values that the kernel hands to a program at its start: the environment, the auxiliary vector,
// and the functions of the vDSO that tell the time without a system call.
//
// It calls neither getauxval nor clock_gettime: libraries such as libfaketime define these names, and theirs may
// allocate. Its only state is the clock's address, written once, at start.

#include <elf.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "base/compiler.h"
#include "config/options.h"
#include "platform/file.h"
#include "platform/os.h"
#include "platform/system_call.h"

extern char** environ;
extern "C" __attribute__((weak)) void* __libc_stack_end;

namespace freestone::os {
namespace {

// The program's first environment, in its first place: argc, argv, null, the environment, null and the auxiliary vector
// lie at the end of the first stack. Null where the C library does not say where that is (musl).
char** first_environment() {
  if (&__libc_stack_end == nullptr || __libc_stack_end == nullptr) return nullptr;
  auto* words = static_cast<char**>(__libc_stack_end);
  const auto count = static_cast<usize>(*reinterpret_cast<long*>(words));
  char** const arguments_end = words + 1 + count;
  return *arguments_end == nullptr ? arguments_end + 1 : nullptr;
}

// Behind the environment. glibc takes variables from that in a program with more rights than its caller, and programs
// do: then nulls and pointers stand between. No pointer is as small as a value's type.
const Elf64_auxv_t* auxiliary_vector() {
  constexpr usize kTypeMax = 4095;
  char** entry = first_environment();
  if (entry == nullptr) return nullptr;
  while (reinterpret_cast<usize>(*entry) - 1 >= kTypeMax) ++entry;
  return reinterpret_cast<const Elf64_auxv_t*>(entry);
}

// How many symbols there are follows from the hash table alone.
usize symbol_count(const u32* hash, const u32* gnu_hash) {
  if (hash != nullptr) return hash[1];
  if (gnu_hash == nullptr) return 0;
  const u32 buckets = gnu_hash[0];
  const u32 first = gnu_hash[1];
  const u32* const bucket = gnu_hash + 4 + usize{gnu_hash[2]} * 2;
  const u32* const chain = bucket + buckets;
  u32 last = 0;
  for (u32 k = 0; k < buckets; ++k) last = max_of(last, bucket[k]);
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

const void* find_in_vdso(const char* name) {
  const usize start = kernel_value(AT_SYSINFO_EHDR);
  if (start == 0) return nullptr;
  const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(start);
  const auto* const segments = reinterpret_cast<const Elf64_Phdr*>(start + header->e_phoff);
  usize shift = 0;
  const Elf64_Dyn* entry = nullptr;
  bool is_loaded = false;
  for (unsigned k = 0; k < header->e_phnum; ++k) {
    if (segments[k].p_type == PT_LOAD && !is_loaded) {
      shift = start + segments[k].p_offset - segments[k].p_vaddr;
      is_loaded = true;
    }
    if (segments[k].p_type == PT_DYNAMIC)
      entry = reinterpret_cast<const Elf64_Dyn*>(start + segments[k].p_offset);
  }
  if (!is_loaded || entry == nullptr) return nullptr;
  const char* names = nullptr;
  const Elf64_Sym* symbols = nullptr;
  const u32* hash = nullptr;
  const u32* gnu_hash = nullptr;
  for (; entry->d_tag != DT_NULL; ++entry) {
    const usize at = shift + entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_STRTAB: names = reinterpret_cast<const char*>(at); break;
      case DT_SYMTAB: symbols = reinterpret_cast<const Elf64_Sym*>(at); break;
      case DT_HASH: hash = reinterpret_cast<const u32*>(at); break;
      case DT_GNU_HASH: gnu_hash = reinterpret_cast<const u32*>(at); break;
      default: break;
    }
  }
  if (names == nullptr || symbols == nullptr) return nullptr;
  for (usize k = 0, count = symbol_count(hash, gnu_hash); k < count; ++k) {
    if (symbols[k].st_shndx != SHN_UNDEF && std::strcmp(names + symbols[k].st_name, name) == 0)
      return reinterpret_cast<const void*>(shift + symbols[k].st_value);
  }
  return nullptr;
}

using Clock = int (*)(long clock, timespec* now);
// Written at start. No Atomic: tests that run a protocol in every order need not stop at a look at the clock.
constexpr const void*& vdso_clock = sealed_page.code.clock;

timespec read_clock(long clock) {
  timespec now{};
  const auto function = reinterpret_cast<Clock>(const_cast<void*>(__atomic_load_n(&vdso_clock, __ATOMIC_RELAXED)));
  if (FREESTONE_UNLIKELY(function == nullptr || function(clock, &now) != 0))
    invoke(SYS_clock_gettime, static_cast<usize>(clock), address_of(&now));
  return now;
}

u64 nanoseconds_of(const timespec& time) {
  return static_cast<u64>(time.tv_sec) * 1'000'000'000 + static_cast<u64>(time.tv_nsec);
}

}  // namespace

usize kernel_value(usize type) {
  const Elf64_auxv_t* pair = auxiliary_vector();
  if (pair == nullptr) return getauxval(type);
  while (pair->a_type != AT_NULL && pair->a_type != type) ++pair;
  return pair->a_type == type ? pair->a_un.a_val : 0;
}

void find_clock() {
#if defined(__x86_64__)
  constexpr const char* kName = "__vdso_clock_gettime";
#else
  constexpr const char* kName = "__kernel_clock_gettime";
#endif
  __atomic_store_n(&vdso_clock, find_in_vdso(kName), __ATOMIC_RELAXED);
}

const char* environment_value(const char* name) {
  char** entry = environ != nullptr ? environ : first_environment();  // libc may not have run yet
  if (entry == nullptr) return nullptr;
  const usize length = std::strlen(name);
  for (; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return nullptr;
}

usize program_name(char* buffer, usize capacity) {
  constexpr usize kLengthMax = 15;  // as in the kernel
  const auto* path = reinterpret_cast<const char*>(kernel_value(AT_EXECFN));
  if (path == nullptr) return 0;
  const char* name = file_name(path);
  const usize length = min_of(min_of(std::strlen(name), kLengthMax), capacity);
  std::memcpy(buffer, name, length);
  return length;
}

u64 coarse_milliseconds() {
  const timespec now = read_clock(CLOCK_MONOTONIC_COARSE);
  return static_cast<u64>(now.tv_sec) * 1000 + static_cast<u64>(now.tv_nsec) / 1'000'000;
}
u64 nanoseconds() { return nanoseconds_of(read_clock(CLOCK_MONOTONIC)); }
u64 wall_nanoseconds() { return nanoseconds_of(read_clock(CLOCK_REALTIME)); }

}  // namespace freestone::os
