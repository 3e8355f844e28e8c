// Room 4, platform: libc's functions that some glibc lacks or keeps outside libc.so.6. Only in the shared library.
//
// A reference to a function asks for the version of the linker's glibc, such as pthread_create of 2.34, which an older
// glibc lacks; and before 2.34 these functions lay in libraries that a program may not have loaded. So the shared
// library refers to none of them. This file defines them, hidden, for the library's own calls, and each looks for
// libc's among the loaded files, as dlsym would. The static forms lack this file: there the program's linker binds
// them.
//
// Any thread may call these, with any lock held: the search takes only the loader's list lock, under which the loader
// neither loads, runs constructors nor allocates.

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

#include "base/atomic.h"
#include "base/compiler.h"
#include "config/options.h"
#include "platform/os.h"

extern "C" FREESTONE_HIDDEN const ElfW(Ehdr) __ehdr_start;  // of this library; the linker defines it

namespace {

using namespace freestone;

struct Nothing {};

// What an object exports: its dynamic symbols, and the table by which the loader finds them.
struct Exports {
  usize base;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  const u32* hashes = nullptr;
  const u16* versions = nullptr;  // null: none of its symbols has one

  explicit Exports(const dl_phdr_info& object) : base(object.dlpi_addr) {
    for (unsigned i = 0; i < object.dlpi_phnum; ++i)
      if (object.dlpi_phdr[i].p_type == PT_DYNAMIC) read(object.dlpi_phdr[i].p_vaddr);
  }

  const ElfW(Sym)* find(const char* name, bool defined = true) const;

 private:
  void read(usize table) {
    for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(base + table); entry->d_tag != DT_NULL; ++entry) {
      // The loader adds the base where it can write: not in the kernel's object, and not before it has got there.
      const usize place = entry->d_un.d_ptr < base ? base + entry->d_un.d_ptr : entry->d_un.d_ptr;
      switch (entry->d_tag) {
        case DT_SYMTAB: symbols = reinterpret_cast<const ElfW(Sym)*>(place); break;
        case DT_STRTAB: names = reinterpret_cast<const char*>(place); break;
        case DT_GNU_HASH: hashes = reinterpret_cast<const u32*>(place); break;
        case DT_VERSYM: versions = reinterpret_cast<const u16*>(place); break;
        default: break;
      }
    }
  }
};

// The function or variable of that name in its default version, or null. If not `defined`, the program's entry for
// another's function, where that is the function's address for everybody. DT_GNU_HASH is a header of four words, a
// filter of 64-bit words, buckets with the first symbol of each, and a word for each symbol: its hash, and in bit 0
// whether it ends its bucket.
const ElfW(Sym)* Exports::find(const char* name, bool defined) const {
  constexpr u16 kHiddenVersion = 0x8000;
  if (symbols == nullptr || names == nullptr || hashes == nullptr) return nullptr;
  u32 hash = 5381;
  for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<u8>(*c);
  const u32 bucket_count = hashes[0];
  const u32 first = hashes[1];
  const u32 filter_words = hashes[2];
  const u32 shift = hashes[3];
  if (bucket_count == 0 || filter_words == 0) return nullptr;
  const auto* const filter = reinterpret_cast<const u64*>(hashes + 4);
  const u64 word = filter[hash / 64 % filter_words];
  if ((word >> hash % 64 & word >> (hash >> shift) % 64 & 1) == 0) return nullptr;
  const auto* const buckets = reinterpret_cast<const u32*>(filter + filter_words);
  const u32* const chains = buckets + bucket_count;
  u32 index = buckets[hash % bucket_count];
  if (index < first) return nullptr;
  for (;; ++index) {
    const u32 found = chains[index - first];
    const ElfW(Sym)& symbol = symbols[index];
    const unsigned kind = ELF64_ST_TYPE(symbol.st_info);
    const bool has_address = kind == STT_FUNC || kind == STT_GNU_IFUNC || kind == STT_OBJECT;
    if ((found | 1) == (hash | 1) && (symbol.st_shndx != SHN_UNDEF) == defined && has_address &&
        (versions == nullptr || (versions[index] & kHiddenVersion) == 0) &&
        std::strcmp(names + symbol.st_name, name) == 0)
      return &symbol;
    if ((found & 1) != 0) return nullptr;
  }
}

void* address_in(const Exports& object, const ElfW(Sym)& symbol) {
  const usize place = object.base + symbol.st_value;
  if (ELF64_ST_TYPE(symbol.st_info) != STT_GNU_IFUNC) return reinterpret_cast<void*>(place);
#if defined(__aarch64__)
  const u64 capabilities[] = {3 * sizeof(u64), getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
  constexpr u64 kHasMore = u64{1} << 62;
  return reinterpret_cast<void* (*)(u64, const u64*)>(place)(capabilities[1] | kHasMore, capabilities);
#else
  return reinterpret_cast<void* (*)()>(place)();
#endif
}

struct Search {
  const char* name;
  bool in_libc = false;    // and nowhere else
  void* before = nullptr;  // in the nearest object in front of this library
  void* behind = nullptr;  // in the nearest one behind it
  const char* ahead = nullptr;  // the file of the first one
  bool passed_own = false;
};

FREESTONE_AT_START int look(dl_phdr_info* info, usize, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (info->dlpi_addr == reinterpret_cast<usize>(&__ehdr_start)) {
    search.passed_own = true;
    return 0;
  }
  const Exports object(*info);
  if (search.in_libc && object.find("gnu_get_libc_version") == nullptr) return 0;
  const ElfW(Sym)* const symbol = object.find(search.name);
  if (symbol == nullptr) return 0;
  (search.passed_own ? search.behind : search.before) = address_in(object, *symbol);
  if (!search.passed_own && search.ahead == nullptr) search.ahead = info->dlpi_name;
  return search.passed_own ? 1 : 0;
}

// The definition that is nearest behind this library; a library that is loaded late lies behind libc and takes the
// nearest in front of it.
FREESTONE_AT_START void* find_next(const char* name, bool in_libc = false) {
  Search search{name, in_libc};
  dl_iterate_phdr(look, &search);
  return search.behind != nullptr ? search.behind : search.before;
}

// A function of libc, which is looked for again until it is there. Relaxed: every thread finds the same.
//
// In the hardened build it stands on the sealed page. A constructor looks for all of them (SEAL-1); what is not there
// by then is looked for in each call.
template <typename Function, unsigned Place>
class Late {
 public:
  constexpr explicit Late(const char* name) : name_(name) {}

  Function* find() {
    Function* found = known();
    if (found == nullptr) {
      found = reinterpret_cast<Function*>(find_next(name_));
      if constexpr (!kSeals) function_.store_relaxed(found);
    }
    return found;
  }
  Function* known() const {
    if constexpr (kSeals) {
      return reinterpret_cast<Function*>(const_cast<void*>(sealed_page.code.late[Place]));
    } else {
      return function_.load_relaxed();
    }
  }
  void find_early() {
    if constexpr (kSeals) sealed_page.code.late[Place] = find_next(name_);
  }

 private:
  const char* name_;
  [[no_unique_address]] std::conditional_t<kSeals, Nothing, Atomic<Function*>> function_;
};

constinit Late<int(pthread_key_t*, void (*)(void*)), 0> key_create("pthread_key_create");
constinit Late<int(pthread_key_t), 1> key_delete("pthread_key_delete");
constinit Late<int(pthread_key_t, usize), 2> set_specific("pthread_setspecific");
constinit Late<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*), 3> create("pthread_create");
constinit Late<int(pthread_attr_t*, usize), 4> set_stack_size("pthread_attr_setstacksize");
constinit Late<int(pthread_t, const char*), 5> set_name("pthread_setname_np");
constinit Late<int(int, const sigset_t*, sigset_t*), 6> set_mask("pthread_sigmask");
#if defined(DLFO_STRUCT_HAS_EH_DBASE)
constinit Late<int(void*, dl_find_object*), 7> find_object("_dl_find_object");
#endif

__attribute__((constructor(101))) void find_early() {
  const auto find_all = [](auto&... each) { (each.find_early(), ...); };
  find_all(key_create, key_delete, set_specific, create, set_stack_size, set_name, set_mask);
#if defined(DLFO_STRUCT_HAS_EH_DBASE)
  // Stacks are followed in signal handlers too, so it is found before the first.
  find_object.find_early();
  if constexpr (!kSeals) find_object.find();
#endif
}

template <typename Function, unsigned Place, typename... Arguments>
int call(Late<Function, Place>& late, Arguments... arguments) {
  Function* const function = late.find();
  return function != nullptr ? function(arguments...) : ENOSYS;
}

}  // namespace

const char* freestone::os::object_ahead(const char* name, bool also_behind) {
  Search search{name};
  dl_iterate_phdr(look, &search);
  return !also_behind || search.behind != nullptr ? search.ahead : nullptr;
}

void* freestone::os::function_of_libc(const char* name) { return find_next(name, true); }

bool freestone::os::is_entry_of_program(const char* name, const void* address) {
  struct Entry {
    const char* name;
    usize address = 0;
  } entry{name};
  const auto look_in_program = [](dl_phdr_info* info, usize, void* data) {
    auto& wanted = *static_cast<Entry*>(data);
    const Exports program(*info);
    if (const ElfW(Sym)* symbol = program.find(wanted.name, false)) wanted.address = program.base + symbol->st_value;
    return 1;  // the program comes first
  };
  dl_iterate_phdr(look_in_program, &entry);
  return entry.address == reinterpret_cast<usize>(address);
}

extern "C" {

int pthread_key_create(pthread_key_t* key, void (*destructor)(void*)) noexcept {
  return call(key_create, key, destructor);
}
int pthread_key_delete(pthread_key_t key) noexcept { return call(key_delete, key); }
int pthread_setspecific(pthread_key_t key, const void* value) noexcept {
  // libc declares that the value is not looked at, so it is handed on as what nobody can look into.
  return call(set_specific, key, reinterpret_cast<usize>(value));
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  return call(create, thread, attributes, body, argument);
}
int pthread_attr_setstacksize(pthread_attr_t* attributes, usize bytes) noexcept {
  return call(set_stack_size, attributes, bytes);
}
int pthread_setname_np(pthread_t thread, const char* name) noexcept { return call(set_name, thread, name); }
int pthread_sigmask(int how, const sigset_t* mask, sigset_t* before) noexcept {
  return call(set_mask, how, mask, before);
}

// The library asks for what lies in others only, with RTLD_NEXT or RTLD_DEFAULT.
void* dlsym(void*, const char* name) noexcept { return find_next(name); }

#if defined(DLFO_STRUCT_HAS_EH_DBASE)
FREESTONE_HIDDEN int _dl_find_object(void* address, dl_find_object* result) noexcept {
  const auto function = find_object.known();
  return function != nullptr ? function(address, result) : -1;
}
#endif

}  // extern "C"
