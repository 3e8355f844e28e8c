// Room 12, stacks: what the call frame information of a module says of one place (DWARF 5, 6.4; the Linux Standard
// Base's .eh_frame and .eh_frame_hdr). Reads nothing but the tables, whatever they say, and the stack; takes no lock.
// Used by unwind_tables.cc alone.
#pragma once

#include "stacks/unwind.h"

namespace freestone {

struct Rule {
  enum class Kind : u8 {
    same,
    undefined,
    at_offset,
    is_offset,
    at_expression,
    is_expression,
    in_register
  } kind = Kind::same;
  std::int32_t offset = 0;         // from the CFA; or the register
  const u8* expression = nullptr;  // starts with its length
};

struct Row {
  unsigned cfa_register = 0;
  i64 cfa_offset = 0;
  const u8* cfa_expression = nullptr;
  Rule rules[Registers::kCount];
  unsigned return_register = Registers::kReturn;
  bool signal_frame = false;
};

// What may be read of a module's tables.
struct TableBounds {
  const u8* start = nullptr;
  const u8* end = nullptr;
};

// How the caller of `place` is found. False when there is no table for it within the bounds, or one that is not
// understood.
bool find_row(const u8* eh_frame_header, usize place, const TableBounds& bounds, Row& row);

// Replaces the registers by those of the caller. False when they cannot be known or, with *outermost set, when there is
// none.
bool follow_row(const Row& row, Registers& registers, const StackBounds& stack, bool* outermost);

// A DWARF expression over the registers and the stack. False when it needs anything else.
bool evaluate(const u8* expression, const Registers& registers, const StackBounds& stack, bool push_cfa, usize cfa,
              usize& result);

}  // namespace freestone
