// Draws from every law with a fixed seed and prints the counts; the test holds the formulas and compares.
#pragma once

namespace workload {
void dump_laws();
}
