// Room 13, stacks: the call frame information of a module about one place (DWARF 5, 6.4; the Linux Standard Base's
// .eh_frame and .eh_frame_hdr). Whatever the tables say, it reads only them and the stack, and takes no lock. Only
// unwind_tables.cc uses it.
#pragma once

#include "stacks/unwind.h"

namespace freestone {

struct Rule {
  enum class Kind : u8 { same, undefined, at_offset, is_offset, at_expression, is_expression, in_register };
  Kind kind = Kind::same;
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

// The part of a module's tables that may be read.
struct TableBounds {
  const u8* start = nullptr;
  const u8* end = nullptr;
};

// Finds the row that leads to the caller of `place`. False if the bounds hold no table for it, or one that we do not
// understand.
bool find_row(const u8* eh_frame_header, usize place, const TableBounds& bounds, Row& row);

// Replaces the registers with the caller's. False if they cannot be known, or if there is no caller; then it sets
// *outermost.
bool follow_row(const Row& row, Registers& registers, const StackBounds& stack, bool* outermost);

// Evaluates a DWARF expression over the registers and the stack. False if it needs anything else.
bool evaluate(const u8* expression, const Registers& registers, const StackBounds& stack, bool push_cfa, usize cfa,
              usize& result);

}  // namespace freestone
