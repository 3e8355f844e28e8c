// Catches what operator new throws.
#include <cstdio>
#include <new>

int main() {
  volatile auto too_much = static_cast<std::size_t>(1) << 62;
  try {
    ::operator delete(::operator new(too_much));
    return 1;
  } catch (std::bad_alloc const&) {
    std::puts("caught");
  }
}
