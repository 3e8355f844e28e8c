// Room 13, stacks: see call_frames.h.

#include "stacks/call_frames.h"

#include "stacks/dwarf.h"
#include "stacks/table_reader.h"

namespace freestone {

namespace {

struct Frame {  // a CIE and an FDE
  u64 code_align = 1;
  i64 data_align = 1;
  unsigned return_register = Registers::kReturn;
  u8 pointer_encoding = 0;
  bool signal_frame = false;
  TableReader initial{};
  usize start = 0;
  TableReader program{};
};

// The entry of the tables at `distance` from `from`, without its length. Empty if there is none.
TableReader entry_at(const TableBounds& bounds, const u8* from, i64 distance, usize longest) {
  if (distance < bounds.start - from || distance > bounds.end - from) return {};
  TableReader head{from + distance, bounds.end};
  const usize length = head.take<u32>();
  if (length == 0 || length >= longest || length > static_cast<usize>(head.end - head.at)) return {};
  return {head.at, head.at + length};
}

bool parse_cie(TableReader r, Frame& frame, bool& augmented) {
  if (r.take<u32>() != 0) return false;
  const u8 version = r.take<u8>();
  if (version != 1 && version != 3) return false;
  const u8* augmentation = r.at;
  while (r.take<u8>() != 0) {
  }
  if (r.bad) return false;
  frame.code_align = r.uleb();
  frame.data_align = r.sleb();
  frame.return_register = version == 1 ? r.take<u8>() : static_cast<unsigned>(r.uleb());
  augmented = augmentation[0] == 'z';
  if (augmented) {
    TableReader after = r;
    after.skip(after.uleb());
    r.uleb();
    for (const u8* letter = augmentation + 1; *letter != 0; ++letter) {
      if (*letter == 'R') {
        frame.pointer_encoding = r.take<u8>();
      } else if (*letter == 'P') {
        const u8 encoding = r.take<u8>();
        r.pointer(encoding, 0);
      } else if (*letter == 'L') {
        r.take<u8>();
      } else if (*letter == 'S') {
        frame.signal_frame = true;
      } else if (*letter != 'B') {
        return false;
      }
    }
    if (r.bad || r.at > after.at) return false;
    r = after;
  } else if (augmentation[0] != 0) {
    return false;
  }
  frame.initial = r;
  return !r.bad && frame.return_register < Registers::kCount;
}

bool parse_fde(TableReader r, const TableBounds& bounds, usize pc, Frame& frame) {
  const u8* const field = r.at;
  const i64 distance = r.take<u32>();
  bool augmented = false;
  if (r.bad || distance == 0 || !parse_cie(entry_at(bounds, field, -distance, 64 * kKiB), frame, augmented))
    return false;
  frame.start = r.pointer(frame.pointer_encoding, 0);
  const usize bytes = r.pointer(frame.pointer_encoding & DW_EH_PE_format, 0);
  if (pc - frame.start >= bytes) return false;
  if (augmented) r.skip(r.uleb());
  frame.program = r;
  return !r.bad;
}

// The sorted table of .eh_frame_hdr: (start of function, its FDE), both as 32-bit distances from the header.
TableReader search_header(const u8* header, const TableBounds& bounds, usize pc) {
  TableReader r{header, bounds.end};
  const u8 version = r.take<u8>();
  const u8 pointer_encoding = r.take<u8>();
  const u8 count_encoding = r.take<u8>();
  const u8 table_encoding = r.take<u8>();
  if (version != 1 || count_encoding != DW_EH_PE_udata4 || table_encoding != (DW_EH_PE_datarel | DW_EH_PE_sdata4))
    return {};
  r.pointer(pointer_encoding, reinterpret_cast<usize>(header));
  const u32 count = r.take<u32>();
  struct Entry {
    std::int32_t start;
    std::int32_t fde;
  };
  if (r.bad || count > static_cast<usize>(r.end - r.at) / sizeof(Entry)) return {};
  const auto entry = [&](u32 index) { return TableReader{r.at + index * sizeof(Entry), r.end}.take<Entry>(); };
  const i64 wanted = static_cast<i64>(pc - reinterpret_cast<usize>(header));
  const u32 behind = partition_point(0U, count, [&](u32 index) { return entry(index).start <= wanted; });
  return behind == 0 ? TableReader{} : entry_at(bounds, header, entry(behind - 1).fde, 16 * kMiB);
}

// What an instruction changes. Its last operand is the value.
enum class Change : u8 {
  nothing,
  set_location,
  advance,
  set_rule,
  restore_rule,  // to what the CIE says
  push_row,
  pop_row,
  set_cfa,
  set_cfa_register,
  set_cfa_offset,
  set_cfa_expression,
};
enum class Value : u8 { none, byte, half, word, address, uleb, uleb_factored, sleb_factored, block };

struct Instruction {
  u8 code;
  bool names_register;  // its first operand
  Value value;
  Change change;
  Rule::Kind rule = Rule::Kind::same;
};

using Kind = Rule::Kind;
constexpr Instruction kInstructions[] = {
    {DW_CFA_nop, false, Value::none, Change::nothing},
    {DW_CFA_set_loc, false, Value::address, Change::set_location},
    {DW_CFA_advance_loc1, false, Value::byte, Change::advance},
    {DW_CFA_advance_loc2, false, Value::half, Change::advance},
    {DW_CFA_advance_loc4, false, Value::word, Change::advance},
    {DW_CFA_offset_extended, true, Value::uleb_factored, Change::set_rule, Kind::at_offset},
    {DW_CFA_restore_extended, true, Value::none, Change::restore_rule},
    {DW_CFA_undefined, true, Value::none, Change::set_rule, Kind::undefined},
    {DW_CFA_same_value, true, Value::none, Change::set_rule, Kind::same},
    {DW_CFA_register, true, Value::uleb, Change::set_rule, Kind::in_register},
    {DW_CFA_remember_state, false, Value::none, Change::push_row},
    {DW_CFA_restore_state, false, Value::none, Change::pop_row},
    {DW_CFA_def_cfa, true, Value::uleb, Change::set_cfa},
    {DW_CFA_def_cfa_register, true, Value::none, Change::set_cfa_register},
    {DW_CFA_def_cfa_offset, false, Value::uleb, Change::set_cfa_offset},
    {DW_CFA_def_cfa_expression, false, Value::block, Change::set_cfa_expression},
    {DW_CFA_expression, true, Value::block, Change::set_rule, Kind::at_expression},
    {DW_CFA_offset_extended_sf, true, Value::sleb_factored, Change::set_rule, Kind::at_offset},
    {DW_CFA_def_cfa_sf, true, Value::sleb_factored, Change::set_cfa},
    {DW_CFA_def_cfa_offset_sf, false, Value::sleb_factored, Change::set_cfa_offset},
    {DW_CFA_val_offset, true, Value::uleb_factored, Change::set_rule, Kind::is_offset},
    {DW_CFA_val_offset_sf, true, Value::sleb_factored, Change::set_rule, Kind::is_offset},
    {DW_CFA_val_expression, true, Value::block, Change::set_rule, Kind::is_expression},
    // Masks off the signature of a return address, signed or not.
    {DW_CFA_AARCH64_negate_ra_state, false, Value::none, Change::nothing},
    {DW_CFA_GNU_args_size, false, Value::uleb, Change::nothing},
};
static_assert([] {
  for (unsigned code = 0; code <= DW_CFA_val_expression; ++code) {
    if (kInstructions[code].code != code) return false;
  }
  return true;
}());
// These instructions hold their operand in the six low bits.
constexpr Instruction kAdvance = {DW_CFA_advance_loc, false, Value::none, Change::advance};
constexpr Instruction kOffset = {DW_CFA_offset, false, Value::uleb_factored, Change::set_rule, Kind::at_offset};
constexpr Instruction kRestore = {DW_CFA_restore, false, Value::none, Change::restore_rule};

const Instruction* find_instruction(u8 code) {
  switch (code & DW_CFA_high_bits) {
    case DW_CFA_advance_loc: return &kAdvance;
    case DW_CFA_offset: return &kOffset;
    case DW_CFA_restore: return &kRestore;
  }
  if (code <= DW_CFA_val_expression) return &kInstructions[code];
  for (const Instruction& instruction : kInstructions) {
    if (instruction.code == code) return &instruction;
  }
  return nullptr;
}

struct Operand {
  i64 number = 0;
  const u8* block = nullptr;
};

Operand take_operand(TableReader& r, Value value, const Frame& frame) {
  const auto factored = [&](u64 number) {  // modulo 2^64
    return static_cast<i64>(number * static_cast<u64>(frame.data_align));
  };
  switch (value) {
    case Value::none: return {};
    case Value::byte: return {r.take<u8>()};
    case Value::half: return {r.take<u16>()};
    case Value::word: return {r.take<u32>()};
    case Value::address: return {static_cast<i64>(r.pointer(frame.pointer_encoding, 0))};
    case Value::uleb: return {static_cast<i64>(r.uleb())};
    case Value::uleb_factored: return {factored(r.uleb())};
    case Value::sleb_factored: return {factored(static_cast<u64>(r.sleb()))};
    case Value::block: break;
  }
  const u8* const block = r.at;
  r.skip(r.uleb());
  return {0, block};
}

// Runs call frame instructions up to `pc`.
bool run_program(TableReader r, const Frame& frame, usize pc, Row& row, const Row& initial) {
  usize location = frame.start;
  constexpr unsigned kSaved = 2;
  Row saved[kSaved];
  unsigned depth = 0;
  while (r.at < r.end && !r.bad && location <= pc) {
    const u8 code = r.take<u8>();
    const Instruction* const instruction = find_instruction(code);
    if (instruction == nullptr) return false;
    const u64 low = code & ~DW_CFA_high_bits;
    const u64 reg = instruction->names_register ? r.uleb() : low;
    const Operand operand = take_operand(r, instruction->value, frame);
    const bool is_known = reg < Registers::kCount;
    switch (instruction->change) {
      case Change::nothing: break;
      case Change::set_location: location = static_cast<usize>(operand.number); break;
      case Change::advance:
        location += (instruction == &kAdvance ? low : static_cast<u64>(operand.number)) * frame.code_align;
        break;
      case Change::set_rule:
        if (is_known) row.rules[reg] = {instruction->rule, static_cast<std::int32_t>(operand.number), operand.block};
        break;
      case Change::restore_rule:
        if (is_known) row.rules[reg] = initial.rules[reg];
        break;
      case Change::push_row:
        if (depth == kSaved) return false;
        saved[depth++] = row;
        break;
      case Change::pop_row:
        if (depth == 0) return false;
        row = saved[--depth];
        break;
      case Change::set_cfa:
        row.cfa_offset = operand.number;
        row.cfa_expression = nullptr;
        [[fallthrough]];
      case Change::set_cfa_register: row.cfa_register = static_cast<unsigned>(reg); break;
      case Change::set_cfa_offset: row.cfa_offset = operand.number; break;
      case Change::set_cfa_expression: row.cfa_expression = operand.block; break;
    }
  }
  return !r.bad;
}

}  // namespace

bool find_row(const u8* eh_frame_header, usize place, const TableBounds& bounds, Row& row) {
  if (eh_frame_header < bounds.start || eh_frame_header >= bounds.end) return false;
  Frame frame;
  if (!parse_fde(search_header(eh_frame_header, bounds, place), bounds, place, frame)) return false;
  if (!run_program(frame.initial, frame, ~usize{0}, row, row)) return false;
  const Row initial = row;
  if (!run_program(frame.program, frame, place, row, initial)) return false;
  row.return_register = frame.return_register;
  row.signal_frame = frame.signal_frame;
  return true;
}

}  // namespace freestone
