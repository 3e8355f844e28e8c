// What the kernel knows about this process: resident memory, page faults; and who owns malloc.
#pragma once

#include <cstdint>

namespace workload {

double resident_kib();       // /proc/self/smaps_rollup: walks the page tables; where it is absent statm, which may lag
double peak_resident_kib();  // VmHWM
std::uint64_t faults_of_process();
std::uint64_t faults_of_thread();
unsigned usable_cpus();  // in the affinity mask

// Path of the object that holds the function `malloc` resolves to, from the dynamic linker.
const char* malloc_owner();
// Whether `function` resolves into that same object: only then may it be asked about its blocks.
bool same_owner_as_malloc(const char* function);

}  // namespace workload
