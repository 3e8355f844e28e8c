// Room 12, stacks: names of functions that a file knows and the loader does not: its full symbol table (.symtab), read
// from disk without allocation.
#pragma once

#include "base/units.h"

namespace freestone {

// Copies the name of the function that holds the byte at `offset` of the ELF file; *into is where in the function that
// is. Returns the length, 0 when the file has no such table or no such function.
usize find_file_symbol(const char* path, usize offset, char* name, usize capacity, usize* into);

}  // namespace freestone
