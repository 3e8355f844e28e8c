// The library's door to the kernel, with a stand-in behind it (stand_in.cc): in place of src/platform/system_call.h.
#pragma once

#include "base/units.h"

namespace freestone::os {

void count_call(long number);

long invoke(long number, usize a = 0, usize b = 0, usize c = 0, usize d = 0, usize e = 0, usize f = 0);

// What the kernel told the program at its start, with pages of the size that the stand-in has.
usize told_value(unsigned long type);
bool tells_vdso();
#define kernel_value told_value

inline bool is_error(long result) { return result < 0 && result > -4096; }

}  // namespace freestone::os
