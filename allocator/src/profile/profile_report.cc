// Room 14, profile: see profile_report.h.

#include "profile/profile_report.h"

#include <elf.h>
#include <link.h>

#include <algorithm>

#include "platform/message.h"
#include "stacks/file_symbols.h"

namespace freestone {

namespace {

constexpr usize kModulesMax = 4096;
constexpr usize kNamesMax = 512 * kKiB;

// Reads the dynamic symbol table of a module piece by piece.
class SymbolTable {
 public:
  SymbolTable(const MemoryReader& memory, const Module& module) : memory_(memory), module_(module) {}

  bool open() {
    ElfW(Ehdr) header;
    if (module_.image == 0 || !memory_.read(module_.image, &header, sizeof header) ||
        std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
      return false;
    usize dynamic = 0;
    usize dynamic_bytes = 0;
    bool loaded = false;
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      ElfW(Phdr) segment;
      if (!memory_.read(module_.image + header.e_phoff + i * sizeof segment, &segment, sizeof segment)) return false;
      if (segment.p_type == PT_LOAD && !loaded) {
        bias_ = module_.image - (segment.p_vaddr - segment.p_offset);
        loaded = true;
      } else if (segment.p_type == PT_DYNAMIC) {
        dynamic = segment.p_vaddr;
        dynamic_bytes = segment.p_memsz;
      }
    }
    if (dynamic == 0 || !loaded) return false;
    usize hash = 0;
    for (usize at = 0; at < dynamic_bytes; at += sizeof(ElfW(Dyn))) {
      ElfW(Dyn) entry;
      if (!memory_.read(bias_ + dynamic + at, &entry, sizeof entry) || entry.d_tag == DT_NULL) break;
      // The loader has added the bias, unless the section is read-only.
      const usize value = entry.d_un.d_ptr < module_.image && bias_ != 0 ? entry.d_un.d_ptr + bias_ : entry.d_un.d_ptr;
      if (entry.d_tag == DT_SYMTAB) symbols_ = value;
      if (entry.d_tag == DT_STRTAB) strings_ = value;
      if (entry.d_tag == DT_GNU_HASH) hash = value;
    }
    return symbols_ != 0 && strings_ != 0 && hash != 0 && count_by(hash);
  }

  // Calls visit(start, bytes, address of the name) for each function.
  template <typename Visit>
  void for_each_function(Visit visit) const {
    ElfW(Sym) piece[64];
    for (usize first = 0; first < count_; first += 64) {
      const usize wanted = min_of<usize>(64, count_ - first);
      if (!memory_.read(symbols_ + first * sizeof piece[0], piece, wanted * sizeof piece[0])) return;
      for (usize i = 0; i < wanted; ++i) {
        const unsigned type = piece[i].st_info & 0xF;
        if (piece[i].st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC)) continue;
        visit(bias_ + piece[i].st_value, piece[i].st_size, strings_ + piece[i].st_name);
      }
    }
  }

 private:
  // The hash table tells how many symbols there are: the highest chain ends with the last one.
  bool count_by(usize hash) {
    u32 head[4];  // buckets, first symbol, words of the filter, shift
    if (!memory_.read(hash, head, sizeof head)) return false;
    const usize buckets = hash + sizeof head + head[2] * sizeof(usize);
    u32 highest = 0;
    u32 piece[128];
    for (u32 first = 0; first < head[0]; first += 128) {
      const u32 wanted = min_of<u32>(128, head[0] - first);
      if (!memory_.read(buckets + first * sizeof(u32), piece, wanted * sizeof(u32))) return false;
      for (u32 i = 0; i < wanted; ++i) highest = max_of(highest, piece[i]);
    }
    if (highest < head[1]) {
      count_ = head[1];
      return true;
    }
    const usize chains = buckets + head[0] * sizeof(u32);
    for (;; ++highest) {
      u32 link;
      if (!memory_.read(chains + (highest - head[1]) * sizeof(u32), &link, sizeof link)) return false;
      if ((link & 1) != 0) break;
    }
    count_ = highest + 1;
    return true;
  }

  const MemoryReader& memory_;
  const Module& module_;
  usize bias_ = 0;
  usize symbols_ = 0;
  usize strings_ = 0;
  usize count_ = 0;
};

}  // namespace

bool ProfileReport::gather(bool stop) {
  stop_at_unmapped = stop;
  modules = static_cast<Module*>(profile_store.scratch_locked(kModulesMax * sizeof(Module)));
  auto* text = static_cast<char*>(profile_store.scratch_locked(kNamesMax));
  if (modules == nullptr || text == nullptr) return false;
  names = text;
  text[0] = '\0';
  usize text_used = 1;
  for_each_mapped([&](const Mapping& mapping) {
    if (!mapping.executable || module_count == kModulesMax) return true;
    Module& module = modules[module_count++];
    module = {mapping.start, mapping.end, mapping.file_offset, mapping.image, 0, {}};
    if (std::strcmp(mapping.name, "[vdso]") == 0) module.image = mapping.start;
    const usize length = std::strlen(mapping.name) + 1;
    if (length > 1 && text_used + length <= kNamesMax) {
      std::memcpy(text + text_used, mapping.name, length);
      module.name = static_cast<u32>(text_used);
      text_used += length;
    }
    return true;
  });
  const MemoryReader memory;
  alignas(8) char head[2048];
  for (unsigned i = 0; i < module_count; ++i) {
    const usize got = modules[i].image != 0 ? memory.read_some(modules[i].image, head, sizeof head) : 0;
    if (got > 0) build_id_of(address_of(head), address_of(head) + got, modules[i].build_id, sizeof modules[i].build_id);
  }

  usize frames = 0;
  for (unsigned i = 0; i < profile_store.site_count(); ++i) frames += depth_of(profile_store.site(i));
  auto* addresses = static_cast<usize*>(profile_store.scratch_locked(max_of<usize>(frames, 1) * sizeof(usize)));
  if (addresses == nullptr) return false;
  usize count = 0;
  for (unsigned i = 0; i < profile_store.site_count(); ++i) {
    const Site& site = profile_store.site(i);
    for (unsigned k = 0, depth = depth_of(site); k < depth; ++k) addresses[count++] = site.frames[k] - 1;
  }
  std::make_heap(addresses, addresses + count);  // these sort without recursion, for a small stack
  std::sort_heap(addresses, addresses + count);
  const auto unique = static_cast<usize>(std::unique(addresses, addresses + count) - addresses);
  places = static_cast<Place*>(profile_store.scratch_locked(max_of<usize>(unique, 1) * sizeof(Place)));
  if (places == nullptr) return false;
  unsigned module = 0;
  for (usize i = 0; i < unique; ++i) {
    while (module < module_count && modules[module].end <= addresses[i]) ++module;
    const bool inside = module < module_count && modules[module].start <= addresses[i];
    places[i] = {addresses[i], inside ? module + 1 : 0, 0, 0, 0};
  }
  place_count = static_cast<unsigned>(unique);
  return true;
}

unsigned ProfileReport::depth_of(const Site& site) const {
  if (!stop_at_unmapped) return site.depth;
  for (unsigned k = 0; k < site.depth; ++k) {
    if (is_python_frame(site.frames[k])) continue;
    const usize address = site.frames[k] - 1;
    const unsigned m = partition_point(0U, module_count, [&](unsigned i) { return modules[i].end <= address; });
    if (m == module_count || modules[m].start > address) return max_of(k, 1U);
  }
  return site.depth;
}

unsigned ProfileReport::place_of(usize return_address) const {
  return partition_point(0U, place_count, [&](unsigned i) { return places[i].address < return_address - 1; });
}

void ProfileReport::find_symbols() {
  const MemoryReader memory;
  for (unsigned m = 0; m < module_count; ++m) {
    unsigned first = 0;
    while (first < place_count && places[first].module != m + 1) ++first;
    unsigned end = first;
    while (end < place_count && places[end].module == m + 1) ++end;
    SymbolTable table(memory, modules[m]);
    if (first == end || !table.open()) continue;
    table.for_each_function([&](usize start, usize bytes, usize name) {
      unsigned i = partition_point(first, end, [&](unsigned k) { return places[k].address < start; });
      for (; i < end && places[i].address < start + bytes; ++i) {
        places[i].symbol = name;
        places[i].function = start;
      }
    });
    for (unsigned i = first; i < end; ++i) {
      char name[512];
      if (places[i].symbol == 0) continue;
      const usize got = memory.read_some(places[i].symbol, name, sizeof name);
      const void* zero = std::memchr(name, '\0', got);
      places[i].symbol_length =
          zero != nullptr ? static_cast<u32>(static_cast<const char*>(zero) - name) : static_cast<u32>(got);
      auto* copy = static_cast<char*>(profile_store.scratch_locked(places[i].symbol_length + 1));
      if (copy == nullptr) places[i].symbol_length = 0;
      if (copy != nullptr) std::memcpy(copy, name, places[i].symbol_length);
      places[i].symbol = address_of(copy);
    }
  }
}

void write_place(const ProfileReport& report, const Place& place, Output& out) {
  if (is_python_frame(place.address)) {
    const PythonFunction& function = python_function(python_function_of(place.address));
    out << function.name << " (" << function.file << ':' << u64{python_line_of(place.address)} << ')';
  } else if (place.symbol_length > 0) {
    out.raw(reinterpret_cast<const char*>(place.symbol), place.symbol_length);
  } else if (place.module == 0) {
    out.hex(place.address);
  } else {
    const Module& module = report.modules[place.module - 1];
    const char* name = os::file_name(report.names + module.name);
    out << (*name != '\0' ? name : "anonymous") << '+';
    out.hex(place.address - module.start + module.file_offset);
  }
}

void print_stack(const usize* frames, unsigned depth) {
  const MemoryReader memory;
  for (unsigned k = 0; k < depth; ++k) {
    const usize address = frames[k] - 1;
    if (is_python_frame(address)) {
      const PythonFunction& function = python_function(python_function_of(address));
      Message line("  #");
      line << k << ' ' << function.name << " (" << function.file << ':' << python_line_of(address) << ')';
      line.write();
      continue;
    }
    Module module{};
    char name[512] = "";
    for_each_mapped([&](const Mapping& mapping) {
      if (mapping.end <= address) return true;
      if (mapping.start > address) return false;
      module = {mapping.start, mapping.end, mapping.file_offset, mapping.image, 0, {}};
      std::memcpy(name, mapping.name, min_of(std::strlen(mapping.name), sizeof name - 1));
      return false;
    });
    Message line("  #");
    line << k << ' ' << reinterpret_cast<const void*>(frames[k]) << ' ';
    usize symbol = 0;
    usize start = 0;
    SymbolTable table(memory, module);
    if (table.open()) {
      table.for_each_function([&](usize from, usize bytes, usize text) {
        if (address - from >= bytes) return;
        symbol = text;
        start = from;
      });
    }
    char text[160];
    if (const usize got = symbol != 0 ? memory.read_some(symbol, text, sizeof text - 1) : 0; got > 0) {
      text[got] = '\0';
      line << text << '+' << reinterpret_cast<const void*>(frames[k] - start) << ' ';
    } else if (usize into; module.image != 0 && find_file_symbol(name, address - module.start + module.file_offset,
                                                                 text, sizeof text, &into) != 0) {
      line << text << '+' << reinterpret_cast<const void*>(into + 1) << ' ';
    }
    line << '(' << (name[0] != '\0' ? os::file_name(name) : "unknown") << '+'
         << reinterpret_cast<const void*>(module.end != 0 ? frames[k] - module.start + module.file_offset : frames[k])
         << ')';
    line.write();
  }
}

}  // namespace freestone
