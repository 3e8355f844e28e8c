// What libstdc++'s headers ask the C library that they were installed for, answered for musl.
#pragma once

#define __GLIBC_PREREQ(major, minor) 0
