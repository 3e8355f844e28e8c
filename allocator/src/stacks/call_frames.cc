// Room 12, stacks: see call_frames.h.

#include "stacks/call_frames.h"

namespace freestone {

namespace {

// A read position in the tables. Values that do not belong there make the walk end, not fault: the tables are mapped with their module.
struct Reader {
  const u8* at;
  const u8* end;
  bool bad = false;

  template <typename T>
  T take() {
    T value{};
    if (static_cast<usize>(end - at) < sizeof(T)) {
      bad = true;
      at = end;
      return value;
    }
    __builtin_memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  }
  u64 uleb() {
    u64 value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const u8 byte = take<u8>();
      if (shift < 64) value |= u64{byte & 0x7FU} << shift;
      if ((byte & 0x80) == 0 || bad) return value;
    }
  }
  i64 sleb() {
    u64 value = 0;
    unsigned shift = 0;
    for (;;) {
      const u8 byte = take<u8>();
      if (shift < 64) value |= u64{byte & 0x7FU} << shift;
      shift += 7;
      if ((byte & 0x80) == 0 || bad) {
        if (shift < 64 && (byte & 0x40) != 0) value |= ~u64{0} << shift;
        return static_cast<i64>(value);
      }
    }
  }
  void skip(usize bytes) {
    if (bytes > static_cast<usize>(end - at)) bad = true;
    at = bad ? end : at + bytes;
  }
  // A pointer in one of the encodings of the LSB. `data` is the base of data-relative ones.
  usize pointer(u8 encoding, usize data) {
    if (encoding == 0xFF) return 0;
    const auto here = reinterpret_cast<usize>(at);
    usize value;
    switch (encoding & 0x0F) {
      case 0x00:
      case 0x04:
      case 0x0C: value = take<usize>(); break;
      case 0x01: value = uleb(); break;
      case 0x02: value = take<u16>(); break;
      case 0x03: value = take<u32>(); break;
      case 0x09: value = static_cast<usize>(sleb()); break;
      case 0x0A: value = static_cast<usize>(static_cast<i64>(take<std::int16_t>())); break;
      case 0x0B: value = static_cast<usize>(static_cast<i64>(take<std::int32_t>())); break;
      default: bad = true; return 0;
    }
    switch (encoding & 0x70) {
      case 0x00: break;
      case 0x10: value += here; break;
      case 0x30: value += data; break;
      default: bad = true;
    }
    return value;  // indirect pointers (0x80) occur for personality routines only, of which the value is not used
  }
};

struct Frame {  // a CIE and an FDE
  u64 code_align = 1;
  i64 data_align = 1;
  unsigned return_register = Registers::kReturn;
  u8 pointer_encoding = 0;
  bool signal_frame = false;
  Reader initial{};
  usize start = 0;
  Reader program{};
};

bool parse_cie(const u8* cie, Frame& frame, bool& augmented) {
  const u8* const limit = cie + 4 + 64 * kKiB;
  Reader head{cie, limit};
  const u32 length = head.take<u32>();
  if (length == 0 || length >= 64 * kKiB) return false;
  Reader r{head.at, head.at + length};
  if (r.take<u32>() != 0) return false;
  const u8 version = r.take<u8>();
  if (version != 1 && version != 3) return false;
  const u8* augmentation = r.at;
  while (r.take<u8>() != 0 && !r.bad) {
  }
  frame.code_align = r.uleb();
  frame.data_align = r.sleb();
  frame.return_register = version == 1 ? r.take<u8>() : static_cast<unsigned>(r.uleb());
  augmented = augmentation[0] == 'z';
  if (augmented) {
    const usize bytes = r.uleb();
    const u8* const after = r.at + bytes;
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
    if (after < r.at || after > r.end) return false;
    r.at = after;
  } else if (augmentation[0] != 0) {
    return false;
  }
  frame.initial = r;
  return !r.bad && frame.return_register < Registers::kCount;
}

bool parse_fde(const u8* fde, usize pc, Frame& frame) {
  Reader head{fde, fde + 4};
  const u32 length = head.take<u32>();
  if (length == 0 || length >= 16 * kMiB) return false;
  Reader r{head.at, head.at + length};
  const u8* const field = r.at;
  const u32 distance = r.take<u32>();
  bool augmented = false;
  if (distance == 0 || !parse_cie(field - distance, frame, augmented)) return false;
  frame.start = r.pointer(frame.pointer_encoding, 0);
  const usize bytes = r.pointer(frame.pointer_encoding & 0x0F, 0);
  if (pc - frame.start >= bytes) return false;
  if (augmented) r.skip(r.uleb());
  frame.program = r;
  return !r.bad;
}

// The sorted table of .eh_frame_hdr: (start of function, its FDE), both as 32-bit distances from the header.
const u8* search_header(const u8* header, usize pc) {
  if (header[0] != 1 || header[3] != 0x3B || header[2] != 0x03) return nullptr;
  Reader r{header + 4, header + 64};
  r.pointer(header[1], reinterpret_cast<usize>(header));
  const u32 count = r.take<u32>();
  struct Entry {
    std::int32_t start;
    std::int32_t fde;
  };
  const auto* table = reinterpret_cast<const Entry*>(r.at);
  const i64 wanted = static_cast<i64>(pc - reinterpret_cast<usize>(header));
  u32 low = 0;
  u32 high = count;
  while (low < high) {
    const u32 middle = low + (high - low) / 2;
    if (table[middle].start <= wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return r.bad || low == 0 ? nullptr : header + table[low - 1].fde;
}

// Runs call frame instructions up to `pc`.
bool run_program(Reader r, const Frame& frame, usize pc, Row& row, const Row& initial) {
  usize location = frame.start;
  constexpr unsigned kSaved = 2;
  Row saved[kSaved];
  unsigned depth = 0;
  Rule ignored;
  const auto rule = [&](u64 reg) -> Rule& { return reg < Registers::kCount ? row.rules[reg] : ignored; };
  const auto block = [&] {
    const u8* at = r.at;
    r.skip(r.uleb());
    return at;
  };
  const auto narrow = [](i64 offset) { return static_cast<std::int32_t>(offset); };
  using Kind = Rule::Kind;
  while (r.at < r.end && !r.bad && location <= pc) {
    const u8 op = r.take<u8>();
    const u8 low = op & 0x3F;
    const auto advance = [&](u64 amount) { location += amount * frame.code_align; };
    switch (op >> 6) {
      case 1: advance(low); continue;
      case 2: rule(low) = {Kind::at_offset, narrow(static_cast<i64>(r.uleb()) * frame.data_align)}; continue;
      case 3:
        if (low < Registers::kCount) row.rules[low] = initial.rules[low];
        continue;
      default: break;
    }
    switch (low) {
      case 0x00: break;
      case 0x01: location = r.pointer(frame.pointer_encoding, 0); break;
      case 0x02: advance(r.take<u8>()); break;
      case 0x03: advance(r.take<u16>()); break;
      case 0x04: advance(r.take<u32>()); break;
      case 0x05: {
        Rule& which = rule(r.uleb());
        which = {Kind::at_offset, narrow(static_cast<i64>(r.uleb()) * frame.data_align)};
        break;
      }
      case 0x06: {
        const u64 reg = r.uleb();
        if (reg < Registers::kCount) row.rules[reg] = initial.rules[reg];
        break;
      }
      case 0x07: rule(r.uleb()).kind = Kind::undefined; break;
      case 0x08: rule(r.uleb()).kind = Kind::same; break;
      case 0x09: {
        Rule& which = rule(r.uleb());
        which = {Kind::in_register, narrow(static_cast<i64>(r.uleb()))};
        break;
      }
      case 0x0A:
        if (depth == kSaved) return false;
        saved[depth++] = row;
        break;
      case 0x0B:
        if (depth == 0) return false;
        row = saved[--depth];
        break;
      case 0x0C:
        row.cfa_register = static_cast<unsigned>(r.uleb());
        row.cfa_offset = static_cast<i64>(r.uleb());
        row.cfa_expression = nullptr;
        break;
      case 0x0D: row.cfa_register = static_cast<unsigned>(r.uleb()); break;
      case 0x0E: row.cfa_offset = static_cast<i64>(r.uleb()); break;
      case 0x0F: row.cfa_expression = block(); break;
      case 0x10: {
        Rule& which = rule(r.uleb());
        which = {Kind::at_expression, 0, block()};
        break;
      }
      case 0x11: {
        Rule& which = rule(r.uleb());
        which = {Kind::at_offset, narrow(r.sleb() * frame.data_align)};
        break;
      }
      case 0x12:
        row.cfa_register = static_cast<unsigned>(r.uleb());
        row.cfa_offset = r.sleb() * frame.data_align;
        row.cfa_expression = nullptr;
        break;
      case 0x13: row.cfa_offset = r.sleb() * frame.data_align; break;
      case 0x14: {
        Rule& which = rule(r.uleb());
        which = {Kind::is_offset, narrow(static_cast<i64>(r.uleb()) * frame.data_align)};
        break;
      }
      case 0x15: {
        Rule& which = rule(r.uleb());
        which = {Kind::is_offset, narrow(r.sleb() * frame.data_align)};
        break;
      }
      case 0x16: {
        Rule& which = rule(r.uleb());
        which = {Kind::is_expression, 0, block()};
        break;
      }
      case 0x2D: break;  // aarch64: the return address is signed or not; the signature is masked off
      case 0x2E: r.uleb(); break;
      default: return false;
    }
  }
  return !r.bad;
}

}  // namespace

bool find_row(const void* eh_frame_header, usize place, Row& row) {
  const u8* fde = search_header(static_cast<const u8*>(eh_frame_header), place);
  Frame frame;
  if (fde == nullptr || !parse_fde(fde, place, frame)) return false;
  if (!run_program(frame.initial, frame, ~usize{0}, row, row)) return false;
  const Row initial = row;
  if (!run_program(frame.program, frame, place, row, initial)) return false;
  row.return_register = frame.return_register;
  row.signal_frame = frame.signal_frame;
  return true;
}

bool evaluate(const u8* expression, const Registers& registers, const StackBounds& stack, bool push_cfa, usize cfa, usize& result) {
  Reader r{expression, expression + 16};
  const usize length = r.uleb();
  r = {r.at, r.at + length};
  constexpr unsigned kDepth = 16;
  usize values[kDepth];
  unsigned depth = 0;
  if (push_cfa) values[depth++] = cfa;
  while (r.at < r.end && !r.bad) {
    const u8 op = r.take<u8>();
    if (depth + 1 >= kDepth) return false;
    const auto need = [&](unsigned count) { return depth >= count; };
    if (op >= 0x30 && op <= 0x4F) {
      values[depth++] = op - 0x30U;
    } else if (op >= 0x70 && op <= 0x8F) {
      const i64 offset = r.sleb();
      if (op - 0x70U == Registers::kReturn && Registers::kReturn == 16) {
        values[depth++] = registers.pc + static_cast<usize>(offset);
      } else if (registers.knows(op - 0x70U)) {
        values[depth++] = registers.value[op - 0x70U] + static_cast<usize>(offset);
      } else {
        return false;
      }
    } else {
      switch (op) {
        case 0x06:
          if (!need(1) || !stack.holds(values[depth - 1], sizeof(usize))) return false;
          values[depth - 1] = *reinterpret_cast<const usize*>(values[depth - 1]);
          break;
        case 0x08: values[depth++] = r.take<u8>(); break;
        case 0x09: values[depth++] = static_cast<usize>(static_cast<i64>(r.take<std::int8_t>())); break;
        case 0x0A: values[depth++] = r.take<u16>(); break;
        case 0x0B: values[depth++] = static_cast<usize>(static_cast<i64>(r.take<std::int16_t>())); break;
        case 0x0C: values[depth++] = r.take<u32>(); break;
        case 0x0D: values[depth++] = static_cast<usize>(static_cast<i64>(r.take<std::int32_t>())); break;
        case 0x10: values[depth++] = r.uleb(); break;
        case 0x11: values[depth++] = static_cast<usize>(r.sleb()); break;
        case 0x12:
          if (!need(1)) return false;
          values[depth] = values[depth - 1];
          ++depth;
          break;
        case 0x13:
          if (!need(1)) return false;
          --depth;
          break;
        case 0x23:
          if (!need(1)) return false;
          values[depth - 1] += r.uleb();
          break;
        default: {
          if (!need(2)) return false;
          const usize b = values[--depth];
          usize& a = values[depth - 1];
          const auto x = static_cast<i64>(a);
          const auto y = static_cast<i64>(b);
          switch (op) {
            case 0x1A: a &= b; break;
            case 0x1C: a -= b; break;
            case 0x1E: a *= b; break;
            case 0x21: a |= b; break;
            case 0x22: a += b; break;
            case 0x24: a = b < 64 ? a << b : 0; break;
            case 0x25: a = b < 64 ? a >> b : 0; break;
            case 0x29: a = x == y; break;
            case 0x2A: a = x >= y; break;
            case 0x2B: a = x > y; break;
            case 0x2C: a = x <= y; break;
            case 0x2D: a = x < y; break;
            case 0x2E: a = x != y; break;
            default: return false;
          }
        }
      }
    }
  }
  if (r.bad || depth == 0) return false;
  result = values[depth - 1];
  return true;
}

}  // namespace freestone
