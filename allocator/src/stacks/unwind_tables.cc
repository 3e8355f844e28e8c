// Room 13, stacks: finds a frame's caller by the call frame information that compilers write for exceptions. Follows
// only the stack pointer and the callee-saved registers.

#include <dlfcn.h>
#include <link.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/compiler.h"
#include "stacks/call_frames.h"

#if defined(DLFO_STRUCT_HAS_EH_DBASE)
extern "C" __attribute__((weak)) int _dl_find_object(void* address, struct dl_find_object* result) noexcept;
#endif

namespace freestone {

namespace {

usize strip_signature(usize pc) {
#if defined(__aarch64__)
  return pc & ((usize{1} << 48) - 1);
#else
  return pc;
#endif
}

// How to leave most frames, in one word. In these the CFA is the stack or frame pointer plus a constant, and only the
// return address and the frame pointer lie at constant distances from it.
//   bit 0 valid · 1 base is the frame pointer · 2 the frame pointer is saved · 3 the return address is saved ·
//   4 nothing else is saved
//   bits 8..31 cfa offset · 32..47 frame pointer's offset / 8 · 48..63 return address's offset / 8
struct Shortcut {
  static constexpr u64 kValid = 1, kBaseFrame = 2, kFrameSaved = 4, kReturnSaved = 8, kOthersKept = 16;

  static u64 of(const Row& row) {
    u64 word = kValid | kOthersKept;
    if (row.cfa_expression != nullptr || row.cfa_offset < 0 || row.cfa_offset >= (1 << 24)) return 0;
    if (row.cfa_register == Registers::kFrame) {
      word |= kBaseFrame;
    } else if (row.cfa_register != Registers::kStack) {
      return 0;
    }
    word |= static_cast<u64>(row.cfa_offset) << 8;
    for (unsigned reg = 0; reg < Registers::kCount; ++reg) {
      const Rule& rule = row.rules[reg];
      if (rule.kind == Rule::Kind::same) continue;
      const bool near = rule.kind == Rule::Kind::at_offset && rule.offset % 8 == 0 && rule.offset / 8 >= -32768 &&
                        rule.offset / 8 < 32768;
      if (reg == Registers::kFrame && near) {
        word |= kFrameSaved | static_cast<u64>(static_cast<u16>(rule.offset / 8)) << 32;
      } else if (reg == row.return_register && near) {
        word |= kReturnSaved | static_cast<u64>(static_cast<u16>(rule.offset / 8)) << 48;
      } else if (reg == Registers::kFrame || reg == row.return_register) {
        return 0;
      } else {
        word &= ~kOthersKept;
      }
    }
    return row.return_register == Registers::kReturn ? word : 0;
  }

  static bool follow(u64 word, Registers& r, const StackBounds& stack) {
    const unsigned base = (word & kBaseFrame) != 0 ? Registers::kFrame : Registers::kStack;
    if (!r.knows(base)) return false;
    const usize cfa = r.value[base] + ((word >> 8) & 0xFFFFFF);
    const auto saved = [&](unsigned shift) {
      return cfa + static_cast<usize>(static_cast<i64>(static_cast<std::int16_t>(word >> shift)) * 8);
    };
    usize pc;
    if ((word & kReturnSaved) != 0) {
      if (!stack.holds(saved(48), sizeof(usize))) return false;
      pc = stack.word_at(saved(48));
    } else if (Registers::kReturn != 16 && r.knows(Registers::kReturn)) {
      pc = r.value[Registers::kReturn];
    } else {
      return false;
    }
    if ((word & kFrameSaved) != 0) {
      if (!stack.holds(saved(32), sizeof(usize))) return false;
      r.set(Registers::kFrame, stack.word_at(saved(32)));
    }
    if ((word & kOthersKept) == 0) r.known &= (u64{1} << Registers::kFrame) | (u64{1} << Registers::kStack);
    if (Registers::kReturn != 16) r.known &= ~(u64{1} << Registers::kReturn);
    r.set(Registers::kStack, cfa);
    r.pc = strip_signature(pc);
    r.pc_is_call = true;
    return true;
  }
};

// The shortcuts of places seen so far, shared by all threads. A torn pair does not match its check word and is ignored.
struct Remembered {
  Atomic<u64> check;  // place ^ shortcut
  Atomic<u64> shortcut;
};
constexpr usize kRemembered = 4096;
FREESTONE_FAR constinit Remembered remembered[kRemembered];

[[maybe_unused]] u64 recall(usize pc) {
  const Remembered& entry = remembered[mix_bits(pc) % kRemembered];
  const u64 shortcut = entry.shortcut.load_relaxed();
  return (entry.check.load_relaxed() ^ shortcut) == pc ? shortcut : 0;
}

[[maybe_unused]] void remember(usize pc, u64 shortcut) {
  Remembered& entry = remembered[mix_bits(pc) % kRemembered];
  entry.shortcut.store_relaxed(shortcut);
  entry.check.store_relaxed(pc ^ shortcut);
}

#if defined(DLFO_STRUCT_HAS_EH_DBASE)

// The segment of the module that holds its tables, which lie beside each other. The whole module if its head does not
// say.
TableBounds segment_of(const dl_find_object& module) {
  const auto* const image = static_cast<const u8*>(module.dlfo_map_start);
  const TableBounds whole{image, static_cast<const u8*>(module.dlfo_map_end)};
  const auto* const head = reinterpret_cast<const ElfW(Ehdr)*>(image);
  const usize tables = address_of(module.dlfo_eh_frame) - module.dlfo_link_map->l_addr;
  if (__builtin_memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_phoff > 2 * kKiB ||
      head->e_phnum > 2 * kKiB / sizeof(ElfW(Phdr)))
    return whole;
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(image + head->e_phoff);
  for (unsigned i = 0; i < head->e_phnum; ++i) {
    const ElfW(Phdr)& segment = segments[i];
    if (segment.p_type != PT_LOAD || tables - segment.p_vaddr >= segment.p_memsz) continue;
    const auto* const start = reinterpret_cast<const u8*>(module.dlfo_link_map->l_addr + segment.p_vaddr);
    return {start, start + segment.p_memsz};
  }
  return whole;
}

#endif

}  // namespace

bool follow_row(const Row& row, Registers& r, const StackBounds& stack, bool* outermost) {
  usize cfa;
  if (row.cfa_expression != nullptr) {
    if (!evaluate(row.cfa_expression, r, stack, false, 0, cfa)) return false;
  } else {
    if (!r.knows(row.cfa_register)) return false;
    cfa = r.value[row.cfa_register] + static_cast<usize>(row.cfa_offset);
  }
  Registers caller{};
  for (unsigned reg = 0; reg < Registers::kCount; ++reg) {
    const Rule& rule = row.rules[reg];
    usize where = cfa + static_cast<usize>(rule.offset);
    switch (rule.kind) {
      case Rule::Kind::same:
        if (r.knows(reg)) caller.set(reg, r.value[reg]);
        break;
      case Rule::Kind::undefined: break;
      case Rule::Kind::at_expression:
        if (!evaluate(rule.expression, r, stack, true, cfa, where)) break;
        [[fallthrough]];
      case Rule::Kind::at_offset:
        if (stack.holds(where, sizeof(usize))) caller.set(reg, stack.word_at(where));
        break;
      case Rule::Kind::is_offset: caller.set(reg, where); break;
      case Rule::Kind::is_expression:
        if (evaluate(rule.expression, r, stack, true, cfa, where)) caller.set(reg, where);
        break;
      case Rule::Kind::in_register:
        if (r.knows(static_cast<unsigned>(rule.offset))) caller.set(reg, r.value[rule.offset]);
        break;
    }
  }
  if (row.rules[row.return_register].kind == Rule::Kind::undefined) {
    *outermost = true;
    return false;
  }
  if (!caller.knows(row.return_register)) return false;
  // On x86-64 the return address is a column of its own. On aarch64 the link register is not the caller's.
  caller.pc = strip_signature(caller.value[row.return_register]);
  caller.known &= ~(u64{1} << row.return_register);
  if (row.rules[Registers::kStack].kind == Rule::Kind::same) caller.set(Registers::kStack, cfa);
  caller.pc_is_call = !row.signal_frame;
  r = caller;
  return true;
}

#if defined(DLFO_STRUCT_HAS_EH_DBASE)

bool find_module(usize address, usize* start, usize* end) {
  struct dl_find_object found;
  if (&_dl_find_object == nullptr || _dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return false;
  if (found.dlfo_link_map->l_name[0] == '\0') return false;  // linked into the program, whose frames are not all ours
  *start = address_of(found.dlfo_map_start);
  *end = address_of(found.dlfo_map_end);
  return true;
}

bool step_by_tables(Registers& r, const StackBounds& stack, bool* outermost) {
  const usize place = r.pc - (r.pc_is_call ? 1 : 0);
  if (const u64 shortcut = recall(place); shortcut != 0) return Shortcut::follow(shortcut, r, stack);
  struct dl_find_object found;
  if (&_dl_find_object == nullptr || _dl_find_object(reinterpret_cast<void*>(place), &found) != 0 ||
      found.dlfo_eh_frame == nullptr)
    return false;
  Row row;
  if (!find_row(static_cast<const u8*>(found.dlfo_eh_frame), place, segment_of(found), row)) return false;
  if (!row.signal_frame && row.rules[row.return_register].kind != Rule::Kind::undefined) {
    if (const u64 shortcut = Shortcut::of(row); shortcut != 0) {
      remember(place, shortcut);
      return Shortcut::follow(shortcut, r, stack);
    }
  }
  return follow_row(row, r, stack, outermost);
}

#else

bool find_module(usize, usize*, usize*) { return false; }
bool step_by_tables(Registers&, const StackBounds&, bool*) { return false; }

#endif

}  // namespace freestone
