// The unwinder on damaged tables: whatever .eh_frame_hdr and .eh_frame say, nothing outside of them and of the stack is
// read, and each step ends. Both lie in blocks of exactly their size, so that the address sanitizer sees a byte too
// many.
//
// An input: where the header begins, the place to find from the header (4 bytes), the registers' kinds, then the
// tables.
#include <memory>

#include "fuzz/input.h"
#include "stacks/call_frames.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace freestone;
  fuzz::Input input(data, size);
  const size_t header = input.byte();
  const auto place = static_cast<std::int32_t>(input.number(4));
  const uint64_t known = input.number(4);
  if (input.left() <= header) return 0;
  const std::unique_ptr<uint8_t[]> tables(new uint8_t[input.left()]);
  std::memcpy(tables.get(), input.data(), input.left());
  const TableBounds bounds{tables.get(), tables.get() + input.left()};

  constexpr size_t kWords = 64;
  const std::unique_ptr<usize[]> stack(new usize[kWords]);
  for (size_t k = 0; k < kWords; ++k) stack[k] = reinterpret_cast<usize>(&stack[(k * 7 + 1) % kWords]);
  const StackBounds stack_bounds{reinterpret_cast<usize>(stack.get()), reinterpret_cast<usize>(stack.get() + kWords)};
  Registers registers{};
  registers.pc = reinterpret_cast<usize>(tables.get());
  for (unsigned reg = 0; reg < Registers::kCount; ++reg)
    if ((known >> (reg % 32) & 1) != 0) registers.set(reg, reinterpret_cast<usize>(&stack[reg % kWords]));

  Row row;
  const u8* const start = bounds.start + header;
  if (!find_row(start, reinterpret_cast<usize>(start) + static_cast<usize>(static_cast<i64>(place)), bounds, row))
    return 0;
  bool outermost = false;
  for (int steps = 0; steps < 4 && follow_row(row, registers, stack_bounds, &outermost); ++steps) {
  }
  return 0;
}
