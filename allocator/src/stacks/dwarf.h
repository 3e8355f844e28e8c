// Room 13, stacks: the numbers in the tables, by the standards' names (DWARF 5, 7.7.1 and 7.24; Linux Standard Base 5).
#pragma once

#include "base/units.h"

namespace freestone {

// Call frame instructions. The first three have an operand in the bits below DW_CFA_high_bits.
inline constexpr u8 DW_CFA_high_bits = 0xC0;
inline constexpr u8 DW_CFA_advance_loc = 0x40;
inline constexpr u8 DW_CFA_offset = 0x80;
inline constexpr u8 DW_CFA_restore = 0xC0;
enum : u8 {
  DW_CFA_nop = 0x00,
  DW_CFA_set_loc,
  DW_CFA_advance_loc1,
  DW_CFA_advance_loc2,
  DW_CFA_advance_loc4,
  DW_CFA_offset_extended,
  DW_CFA_restore_extended,
  DW_CFA_undefined,
  DW_CFA_same_value,
  DW_CFA_register,
  DW_CFA_remember_state,
  DW_CFA_restore_state,
  DW_CFA_def_cfa,
  DW_CFA_def_cfa_register,
  DW_CFA_def_cfa_offset,
  DW_CFA_def_cfa_expression,
  DW_CFA_expression,
  DW_CFA_offset_extended_sf,
  DW_CFA_def_cfa_sf,
  DW_CFA_def_cfa_offset_sf,
  DW_CFA_val_offset,
  DW_CFA_val_offset_sf,
  DW_CFA_val_expression,
  DW_CFA_AARCH64_negate_ra_state = 0x2D,
  DW_CFA_GNU_args_size = 0x2E,
};
static_assert(DW_CFA_val_expression == 0x16);

// How a pointer is encoded: a format in the low bits, and what it is relative to.
enum : u8 {
  DW_EH_PE_absptr = 0x00,
  DW_EH_PE_uleb128 = 0x01,
  DW_EH_PE_udata2 = 0x02,
  DW_EH_PE_udata4 = 0x03,
  DW_EH_PE_udata8 = 0x04,
  DW_EH_PE_sleb128 = 0x09,
  DW_EH_PE_sdata2 = 0x0A,
  DW_EH_PE_sdata4 = 0x0B,
  DW_EH_PE_sdata8 = 0x0C,
  DW_EH_PE_format = 0x0F,
  DW_EH_PE_pcrel = 0x10,
  DW_EH_PE_datarel = 0x30,
  DW_EH_PE_base = 0x70,
  DW_EH_PE_omit = 0xFF,
};

// Operations of an expression.
enum : u8 {
  DW_OP_deref = 0x06,
  DW_OP_const1u = 0x08,
  DW_OP_const1s,
  DW_OP_const2u,
  DW_OP_const2s,
  DW_OP_const4u,
  DW_OP_const4s,
  DW_OP_constu = 0x10,
  DW_OP_consts,
  DW_OP_dup,
  DW_OP_drop,
  DW_OP_and = 0x1A,
  DW_OP_minus = 0x1C,
  DW_OP_mul = 0x1E,
  DW_OP_or = 0x21,
  DW_OP_plus,
  DW_OP_plus_uconst,
  DW_OP_shl,
  DW_OP_shr,
  DW_OP_eq = 0x29,
  DW_OP_ge,
  DW_OP_gt,
  DW_OP_le,
  DW_OP_lt,
  DW_OP_ne,
  DW_OP_lit0 = 0x30,
  DW_OP_lit31 = 0x4F,
  DW_OP_breg0 = 0x70,
  DW_OP_breg31 = 0x8F,
};

}  // namespace freestone
