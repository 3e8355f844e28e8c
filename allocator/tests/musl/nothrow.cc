// What a C++ library would define for a program that is linked without one.
#include <new>

namespace std {
const nothrow_t nothrow{};
}
