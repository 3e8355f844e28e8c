// Room 14, profile: see python_names.h.

#include "profile/python_names.h"

#include <cstring>

#include "base/bits.h"
#include "profile/profile_store.h"

namespace freestone {

namespace {

constexpr unsigned kFunctionsMax = 16 * 1024;
constexpr unsigned kSlots = 2 * kFunctionsMax;
constexpr usize kTextMax = 512;
constexpr usize kLinesMax = 16 * kKiB;  // a longer table is cut: calls behind the cut get the last line before it

// An entry is complete before any frame names it, and it never changes. So the owner of a frame reads its entry without
// the lock.
PythonFunction* functions = nullptr;
// Open addressing: index + 1, 0 is empty.
u32* slots FREESTONE_GUARDED_BY(profile_store.lock) = nullptr;
unsigned count FREESTONE_GUARDED_BY(profile_store.lock) = 0;

const char* copy_text(usize text) FREESTONE_REQUIRES(profile_store.lock) {
  char buffer[kTextMax];
  const usize length = python_text(text, buffer, sizeof buffer);
  auto* copy = static_cast<char*>(profile_store.scratch_locked(length + 1));
  if (copy == nullptr) return "";
  std::memcpy(copy, buffer, length);
  copy[length] = '\0';
  return copy;
}

}  // namespace

static bool has_room_locked() FREESTONE_REQUIRES(profile_store.lock) {
  if (functions != nullptr) return true;
  auto* room = static_cast<u32*>(profile_store.scratch_locked(kSlots * sizeof(u32)));
  if (room == nullptr) return false;
  std::memset(room, 0, kSlots * sizeof(u32));
  slots = room;
  functions = static_cast<PythonFunction*>(profile_store.scratch_locked(kFunctionsMax * sizeof(PythonFunction)));
  return functions != nullptr;
}

static usize frame_of(unsigned function, usize instruction) {
  return (kPythonFrame | usize{function} << kInstructionBits |
          min_of<usize>(instruction, (usize{1} << kInstructionBits) - 2)) +
         1;
}

usize python_frame_locked(const PythonCall& call) {
  if (!has_room_locked()) return 0;
  const PythonCode named = python_code(call.code);
  auto at = static_cast<u32>(mix_bits(call.code ^ named.first_line)) & (kSlots - 1);
  const auto is_same = [&](const PythonFunction& known) { return known.code == call.code && known.named == named; };
  while (slots[at] != 0 && !is_same(functions[slots[at] - 1])) at = (at + 1) & (kSlots - 1);
  u32& slot = slots[at];
  if (slot == 0) {
    if (count == kFunctionsMax) return 0;
    usize bytes;
    const u8* lines = python_bytes(named.line_table, &bytes);
    bytes = min_of(bytes, kLinesMax);
    auto* copy = static_cast<u8*>(profile_store.scratch_locked(bytes));
    if (copy == nullptr) return 0;
    std::memcpy(copy, lines, bytes);
    functions[count] = {call.code, named, copy_text(named.name), copy_text(named.file), copy, bytes};
    slot = ++count;
  }
  return frame_of(slot - 1, call.instruction);
}

unsigned python_function_count() { return count; }
const PythonFunction& python_function(unsigned index) { return functions[index]; }
unsigned python_function_of(usize place) { return static_cast<unsigned>((place & ~kPythonFrame) >> kInstructionBits); }

u32 python_line_of(usize place) {
  const PythonFunction& function = functions[python_function_of(place)];
  return python_line(function.lines, function.line_bytes, function.named.first_line,
                     static_cast<u32>(place & ((usize{1} << kInstructionBits) - 1)));
}

}  // namespace freestone
