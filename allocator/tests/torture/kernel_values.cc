// The library's values of the kernel with the stand-in behind its clock. Where the clock has a rule, there is no vDSO.
#include <elf.h>
#include <sys/auxv.h>

#include "platform/system_call.h"

#undef kernel_value  // this file defines it
#undef AT_SYSINFO_EHDR
#define AT_SYSINFO_EHDR (tells_vdso() ? 33 : AT_IGNORE)
#include "../../src/platform/kernel_values.cc"
