// What the kernel knows about this process: resident memory, page faults; and who owns malloc.
#pragma once

#include <cstdint>

namespace workload {

std::uint64_t resident_kib();        // /proc/self/statm: cheap, may lag by a few hundred KiB on newer kernels
std::uint64_t resident_exact_kib();  // /proc/self/smaps_rollup: walks the page tables; statm where it is absent
std::uint64_t peak_resident_kib();   // VmHWM
std::uint64_t minor_faults_process();
std::uint64_t minor_faults_thread();
unsigned usable_cpus();  // in the affinity mask

// Path of the object that holds the function `malloc` resolves to, from the dynamic linker.
const char* malloc_owner();
// Whether `function` resolves into that same object: only then may it be asked about its blocks.
bool same_owner_as_malloc(const char* function);

}  // namespace workload
