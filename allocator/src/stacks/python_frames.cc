// Room 13, stacks: see python_frames.h.

#include "stacks/python_frames.h"

#include <cstring>

#include "base/atomic.h"
#include "stacks/memory_maps.h"

// The program defines these, or a libpython that it is linked with. Without Python they are null. dlsym will not do: it
// may wait for the loader's lock.
extern "C" {
[[gnu::weak]] void* PyGILState_GetThisThreadState();
[[gnu::weak]] extern const unsigned long Py_Version;
[[gnu::weak]] extern char PyCode_Type[];
[[gnu::weak]] extern char PyUnicode_Type[];
}

namespace freestone {

namespace {

// Where things lie, in bytes. All 64-bit builds of one version with the interpreter lock agree.
struct Layout {
  u32 minor;
  u16 state_link;    // PyThreadState: the cframe; from 3.13 on, the frame
  u16 cframe_frame;  // _PyCFrame
  u16 cframe_previous;
  u16 frame_code;  // _PyInterpreterFrame
  u16 frame_previous;
  u16 frame_entry;      // 3.11: the byte that says whether C called the function
  u16 frame_owner;      // later: the byte that is kOwnedByC in the evaluator's own frames
  u16 code_first_line;  // PyCodeObject
  u16 code_instructions;
  u16 text_data;  // where the letters of an ASCII str begin
  u16 wide_data;  // where those of any other str begin
};
constexpr Layout kLayouts[] = {
    {11, 56, 8, 16, 32, 48, 68, 0, 72, 184, 48, 72},
    {12, 56, 0, 8, 0, 8, 0, 70, 68, 192, 40, 56},
    {13, 72, 0, 0, 0, 8, 0, 70, 68, 200, 40, 56},
};
constexpr usize kFrameInstruction = 56;
constexpr usize kType = 8, kLength = 16, kTextState = 32, kBytesData = 32;
constexpr usize kCodeFile = 112, kCodeName = 128, kCodeLines = 136;
constexpr u8 kOwnedByC = 3;
constexpr unsigned kCallsLooked = 4096;

template <typename T>
T at(usize address, usize offset) {
  T value;
  std::memcpy(&value, reinterpret_cast<const void*>(address + offset), sizeof value);
  return value;
}

const Layout* layout() {
  if (&Py_Version == nullptr || PyGILState_GetThisThreadState == nullptr || (Py_Version >> 24) != 3) return nullptr;
  for (const Layout& one : kLayouts) {
    if (one.minor == ((Py_Version >> 16) & 0xFF)) return &one;
  }
  return nullptr;
}

bool is_code(usize object) { return object != 0 && at<usize>(object, kType) == address_of(PyCode_Type); }

usize first_frame(const Layout& is, usize state, usize* cframe) {
  *cframe = is.cframe_frame != is.cframe_previous ? at<usize>(state, is.state_link) : 0;
  if (*cframe == 0) return is.cframe_frame != is.cframe_previous ? 0 : at<usize>(state, is.state_link);
  return at<usize>(*cframe, is.cframe_frame);
}

// Whether the innermost frame looks as the layout says. These reads may fail without a fault.
bool proven(const Layout& is, const MemoryReader& memory, usize frame) {
  usize code = 0, type = 0, name = 0, name_type = 0;
  return memory.read(frame + is.frame_code, &code, sizeof code) && memory.read(code + kType, &type, sizeof type) &&
         type == address_of(PyCode_Type) && memory.read(code + kCodeName, &name, sizeof name) &&
         memory.read(name + kType, &name_type, sizeof name_type) && name_type == address_of(PyUnicode_Type);
}

enum : u32 { kUnknown, kProven, kRefuted };
Atomic<u32> trust;

// A starting interpreter has no frame yet, or only its own. Then the question stays open.
bool trusted(const Layout& is, usize state) {
  if (trust.load_relaxed() == kUnknown) {  // relaxed: every thread finds the same
    usize link = 0;
    const MemoryReader memory;
    if (!memory.read(state + is.state_link, &link, sizeof link) || link == 0) return false;
    if (is.cframe_frame != is.cframe_previous &&
        (!memory.read(link + is.cframe_frame, &link, sizeof link) || link == 0))
      return false;
    u8 owner = 0;
    if (is.frame_owner != 0 && (!memory.read(link + is.frame_owner, &owner, 1) || owner == kOwnedByC)) return false;
    trust.store_relaxed(proven(is, memory, link) ? kProven : kRefuted);
  }
  return trust.load_relaxed() == kProven;
}

u32 take_number(const u8* table, usize bytes, usize& place) {
  u32 value = 0;
  for (unsigned shift = 0; place < bytes && shift < 32; shift += 6) {
    const u8 piece = table[place++];
    value |= u32{piece & 0x3FU} << shift;
    if ((piece & 0x40) == 0) break;
  }
  return value;
}

}  // namespace

void PythonStack::capture() {
  const Layout* is = layout();
  const usize state = is != nullptr ? address_of(PyGILState_GetThisThreadState()) : 0;
  if (state == 0 || !trusted(*is, state)) return;
  usize cframe;
  usize frame = first_frame(*is, state, &cframe);
  for (unsigned looked = 0; frame != 0 && looked < kCallsLooked && level_count < kLevelsMax; ++looked) {
    const bool own = is->frame_owner != 0 && at<u8>(frame, is->frame_owner) == kOwnedByC;
    const usize code = own ? 0 : at<usize>(frame, is->frame_code);
    if (!own && is_code(code) && call_count < kCallsMax) {
      const usize start = code + is->code_instructions;
      const usize here = at<usize>(frame, kFrameInstruction);
      calls[call_count++] = {code, here > start ? static_cast<u32>((here - start) / 2) : 0};
    }
    const bool last = own || (is->frame_entry != 0 && at<u8>(frame, is->frame_entry) != 0);
    if (last) levels[level_count++] = {own ? frame : cframe, call_count};
    frame = at<usize>(frame, is->frame_previous);
    if (last && !own) {
      cframe = at<usize>(cframe, is->cframe_previous);
      if (cframe == 0) break;
    }
  }
}

PythonCode python_code(usize code) {
  return {at<usize>(code, kCodeName), at<usize>(code, kCodeFile), at<usize>(code, kCodeLines),
          at<u32>(code, layout()->code_first_line)};
}

usize python_text(usize text, char* to, usize capacity) {
  const u32 state = at<u32>(text, kTextState);
  const usize count = at<usize>(text, kLength);
  const usize unit = (state >> 2) & 7;
  if ((state & (1U << 5)) == 0 || unit == 0 || unit > 4) return 0;  // not in one piece
  const usize data = text + ((state & (1U << 6)) != 0 ? layout()->text_data : layout()->wide_data);
  usize length = 0;
  for (usize i = 0; i < count && length + 4 <= capacity; ++i) {
    const u32 letter = unit == 1 ? at<u8>(data, i) : unit == 2 ? at<u16>(data, 2 * i) : at<u32>(data, 4 * i);
    const unsigned more = letter < 0x80 ? 0 : letter < 0x800 ? 1 : letter < 0x10000 ? 2 : 3;
    constexpr u8 kLead[] = {0, 0xC0, 0xE0, 0xF0};
    to[length++] = static_cast<char>(kLead[more] | (letter >> (6 * more)));
    for (unsigned k = more; k-- > 0;) to[length++] = static_cast<char>(0x80 | ((letter >> (6 * k)) & 0x3F));
  }
  return length;
}

const u8* python_bytes(usize bytes, usize* length) {
  *length = at<usize>(bytes, kLength);
  return reinterpret_cast<const u8*>(bytes + kBytesData);
}

// CPython's Objects/locations.md describes the format: a byte with the kind and the number of instructions, then what
// the kind needs.
u32 python_line(const u8* table, usize bytes, u32 first_line, u32 instruction) {
  u32 line = first_line;
  u32 passed = 0;
  for (usize place = 0; place < bytes;) {
    const u8 head = table[place++];
    const u32 kind = (head >> 3) & 15;
    passed += (head & 7) + 1;
    if (kind == 13 || kind == 14) {
      const u32 moved = take_number(table, bytes, place);
      line += (moved & 1) != 0 ? 0 - (moved >> 1) : moved >> 1;
      for (unsigned k = 0; kind == 14 && k < 3; ++k) take_number(table, bytes, place);
    } else if (kind >= 10 && kind <= 12) {
      line += kind - 10;
      place += 2;
    } else if (kind < 10) {
      place += 1;
    }
    if (passed > instruction) return line;
  }
  return line;
}

}  // namespace freestone
