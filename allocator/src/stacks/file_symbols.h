// Room 13, stacks: names of functions that a library does not export, from the full symbol table (.symtab) of its file,
// without allocation.
#pragma once

#include "base/units.h"

namespace freestone {

// Copies the name of the function that holds the byte at `offset` of the ELF file. *into becomes that byte's distance
// from the function's start. Returns the length; 0 if the file has no such table or no such function.
usize find_file_symbol(const char* path, usize offset, char* name, usize capacity, usize* into);

}  // namespace freestone
