// Room 13, stacks: expressions of the tables; see call_frames.h.

#include "stacks/call_frames.h"
#include "stacks/dwarf.h"
#include "stacks/table_reader.h"

namespace freestone {

namespace {

// What an operation on two values makes of them. Sets `bad` for any other.
usize combine(u8 op, usize a, usize b, bool& bad) {
  const auto x = static_cast<i64>(a);
  const auto y = static_cast<i64>(b);
  switch (op) {
    case DW_OP_and: return a & b;
    case DW_OP_minus: return a - b;
    case DW_OP_mul: return a * b;
    case DW_OP_or: return a | b;
    case DW_OP_plus: return a + b;
    case DW_OP_shl: return b < 64 ? a << b : 0;
    case DW_OP_shr: return b < 64 ? a >> b : 0;
    case DW_OP_eq: return x == y;
    case DW_OP_ge: return x >= y;
    case DW_OP_gt: return x > y;
    case DW_OP_le: return x <= y;
    case DW_OP_lt: return x < y;
    case DW_OP_ne: return x != y;
  }
  bad = true;
  return 0;
}

// The number that follows one of the operations from DW_OP_const1u to DW_OP_consts.
usize take_constant(u8 op, TableReader& r) {
  switch (op) {
    case DW_OP_const1u: return r.take<u8>();
    case DW_OP_const1s: return static_cast<usize>(i64{r.take<std::int8_t>()});
    case DW_OP_const2u: return r.take<u16>();
    case DW_OP_const2s: return static_cast<usize>(i64{r.take<std::int16_t>()});
    case DW_OP_const4u: return r.take<u32>();
    case DW_OP_const4s: return static_cast<usize>(i64{r.take<std::int32_t>()});
    case DW_OP_constu: return r.uleb();
    case DW_OP_consts: return static_cast<usize>(r.sleb());
  }
  r.bad = true;
  return 0;
}

}  // namespace

bool evaluate(const u8* expression, const Registers& registers, const StackBounds& stack, bool push_cfa, usize cfa,
              usize& result) {
  TableReader r{expression, expression + 16};
  const usize length = r.uleb();
  r = {r.at, r.at + length};
  constexpr unsigned kDepth = 16;
  usize values[kDepth];
  unsigned depth = 0;
  if (push_cfa) values[depth++] = cfa;
  while (r.at < r.end && !r.bad) {
    const u8 op = r.take<u8>();
    if (depth + 1 >= kDepth) return false;
    if (op >= DW_OP_lit0 && op <= DW_OP_lit31) {
      values[depth++] = u64{op} - DW_OP_lit0;
    } else if (op >= DW_OP_breg0 && op <= DW_OP_breg31) {
      const i64 offset = r.sleb();
      const unsigned reg = u32{op} - DW_OP_breg0;
      const bool is_place = reg == Registers::kReturn && Registers::kReturn == 16;
      if (!is_place && !registers.knows(reg)) return false;
      values[depth++] = (is_place ? registers.pc : registers.value[reg]) + static_cast<usize>(offset);
    } else if (op >= DW_OP_const1u && op <= DW_OP_consts) {
      values[depth++] = take_constant(op, r);
    } else if (depth == 0) {
      return false;
    } else if (op == DW_OP_deref) {
      if (!stack.holds(values[depth - 1], sizeof(usize))) return false;
      values[depth - 1] = stack.word_at(values[depth - 1]);
    } else if (op == DW_OP_dup) {
      values[depth] = values[depth - 1];
      ++depth;
    } else if (op == DW_OP_drop) {
      --depth;
    } else if (op == DW_OP_plus_uconst) {
      values[depth - 1] += r.uleb();
    } else {
      if (depth == 1) return false;
      --depth;
      values[depth - 1] = combine(op, values[depth - 1], values[depth], r.bad);
    }
  }
  if (r.bad || depth == 0) return false;
  result = values[depth - 1];
  return true;
}

}  // namespace freestone
