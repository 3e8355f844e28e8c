#include "served.h"

int main(void) {
  prove_c_calls();
  return 0;
}
