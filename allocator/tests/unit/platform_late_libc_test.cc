// Room 4: what late_libc.cc finds among the loaded libraries is what libc's dlsym finds.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "unit/support.h"

namespace freestone {
namespace {

using Lookup = void* (*)(void*, const char*);
using Find = void (*)(Lookup, const char*, void**, void**);
extern "C" void probe_find(Lookup real, const char* name, void** found, void** expected);

// The functions that a library exports in their default version.
std::vector<std::string> functions_of(const ElfW(Dyn)* table) {
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  const u16* versions = nullptr;
  for (const ElfW(Dyn)* entry = table; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_VERSYM) versions = reinterpret_cast<const u16*>(entry->d_un.d_ptr);
  }
  std::vector<std::string> found;
  const auto* const end = reinterpret_cast<const ElfW(Sym)*>(names);  // the strings follow the symbols
  for (const ElfW(Sym)* symbol = symbols; symbol < end; ++symbol) {
    const unsigned kind = ELF64_ST_TYPE(symbol->st_info);
    const bool is_default = versions == nullptr || (versions[symbol - symbols] & 0x8000) == 0;
    if (symbol->st_shndx != SHN_UNDEF && (kind == STT_FUNC || kind == STT_GNU_IFUNC) && is_default)
      found.emplace_back(names + symbol->st_name);
  }
  return found;
}

// Of a loaded library; none if it is not loaded.
std::vector<std::string> functions_of(const char* library) {
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return {};
  dlclose(handle);
  return functions_of(map->l_ld);
}

void* of_libc(void*, const char* name) { return dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), name); }

void expect_same(Find find, Lookup real, const std::vector<std::string>& names) {
  EXPECT_GT(names.size(), 500u);
  unsigned different = 0;
  for (const std::string& name : names) {
    void* found = nullptr;
    void* expected = nullptr;
    find(real, name.c_str(), &found, &expected);
    if (found != expected && ++different < 10) ADD_FAILURE() << name << ": " << found << ", not " << expected;
  }
  EXPECT_EQ(different, 0u);
}

// In front of libc, as a preloaded library.
TEST(platform_late_libc, FindsEachFunctionOfTheLoadedLibraries) {
  for (const char* library : {"libc.so.6", "libm.so.6", "libstdc++.so.6"})
    expect_same(probe_find, reinterpret_cast<Lookup>(&dlsym), functions_of(library));
}

// Behind libc. What a library between the two defines too is nearer, and found there.
TEST(platform_late_libc, FindsTheFunctionsOfLibcFromALibraryThatIsLoadedLate) {
  void* const late = dlopen(FREESTONE_LATE_PROBE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(late, nullptr) << dlerror();
  const auto find = reinterpret_cast<Find>(dlsym(late, "probe_find"));
  ASSERT_NE(find, &probe_find);
  link_map* map = nullptr;
  dlinfo(late, RTLD_DI_LINKMAP, &map);
  std::set<std::string> nearer;
  for (map = map->l_prev; std::string_view(map->l_name).find("/libc.so") == std::string_view::npos; map = map->l_prev)
    for (const std::string& name : functions_of(map->l_ld)) nearer.insert(name);
  std::vector<std::string> names = functions_of(map->l_ld);
  std::erase_if(names, [&](const std::string& name) { return nearer.contains(name); });
  expect_same(find, of_libc, names);
}

TEST(platform_late_libc, FindsAFunctionOnceItsLibraryIsLoaded) {
  const auto find = [](const char* name) {
    void* found = nullptr;
    void* expected = nullptr;
    probe_find(reinterpret_cast<Lookup>(&dlsym), name, &found, &expected);
    return found;
  };
  EXPECT_EQ(find("freestone_no_such_function"), nullptr);
  EXPECT_EQ(find(""), nullptr);
  EXPECT_NE(find("__nptl_nthreads"), nullptr) << "a variable";
  EXPECT_EQ(find("freestone_guest_function"), nullptr);
  void* const guest = dlopen(FREESTONE_LATE_GUEST, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(guest, nullptr) << dlerror();
  EXPECT_EQ(find("freestone_guest_function"), dlsym(guest, "freestone_guest_function"));
  EXPECT_NE(find("freestone_guest_function"), nullptr);
  dlclose(guest);
  EXPECT_EQ(find("freestone_guest_function"), nullptr);
}

}  // namespace
}  // namespace freestone
