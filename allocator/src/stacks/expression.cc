// Room 13, stacks: expressions of the tables; see call_frames.h.

#include "stacks/call_frames.h"
#include "stacks/dwarf.h"
#include "stacks/table_reader.h"

namespace freestone {

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
    const auto need = [&](unsigned count) { return depth >= count; };
    if (op >= DW_OP_lit0 && op <= DW_OP_lit31) {
      values[depth++] = u64{op} - DW_OP_lit0;
    } else if (op >= DW_OP_breg0 && op <= DW_OP_breg31) {
      const i64 offset = r.sleb();
      const unsigned reg = u32{op} - DW_OP_breg0;
      if (reg == Registers::kReturn && Registers::kReturn == 16) {
        values[depth++] = registers.pc + static_cast<usize>(offset);
      } else if (registers.knows(reg)) {
        values[depth++] = registers.value[reg] + static_cast<usize>(offset);
      } else {
        return false;
      }
    } else {
      switch (op) {
        case DW_OP_deref:
          if (!need(1) || !stack.holds(values[depth - 1], sizeof(usize))) return false;
          values[depth - 1] = stack.word_at(values[depth - 1]);
          break;
        case DW_OP_const1u:
          values[depth++] = r.take<u8>();
          break;
        case DW_OP_const1s:
          values[depth++] = static_cast<usize>(static_cast<i64>(r.take<std::int8_t>()));
          break;
        case DW_OP_const2u:
          values[depth++] = r.take<u16>();
          break;
        case DW_OP_const2s:
          values[depth++] = static_cast<usize>(static_cast<i64>(r.take<std::int16_t>()));
          break;
        case DW_OP_const4u:
          values[depth++] = r.take<u32>();
          break;
        case DW_OP_const4s:
          values[depth++] = static_cast<usize>(static_cast<i64>(r.take<std::int32_t>()));
          break;
        case DW_OP_constu:
          values[depth++] = r.uleb();
          break;
        case DW_OP_consts:
          values[depth++] = static_cast<usize>(r.sleb());
          break;
        case DW_OP_dup:
          if (!need(1)) return false;
          values[depth] = values[depth - 1];
          ++depth;
          break;
        case DW_OP_drop:
          if (!need(1)) return false;
          --depth;
          break;
        case DW_OP_plus_uconst:
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
            case DW_OP_and:
              a &= b;
              break;
            case DW_OP_minus:
              a -= b;
              break;
            case DW_OP_mul:
              a *= b;
              break;
            case DW_OP_or:
              a |= b;
              break;
            case DW_OP_plus:
              a += b;
              break;
            case DW_OP_shl:
              a = b < 64 ? a << b : 0;
              break;
            case DW_OP_shr:
              a = b < 64 ? a >> b : 0;
              break;
            case DW_OP_eq:
              a = x == y;
              break;
            case DW_OP_ge:
              a = x >= y;
              break;
            case DW_OP_gt:
              a = x > y;
              break;
            case DW_OP_le:
              a = x <= y;
              break;
            case DW_OP_lt:
              a = x < y;
              break;
            case DW_OP_ne:
              a = x != y;
              break;
            default:
              return false;
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
