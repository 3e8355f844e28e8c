// Room 13, stacks: reads numbers and pointers as the tables of a module encode them.
#pragma once

#include "stacks/dwarf.h"

namespace freestone {

// A position in the tables, never beyond `end`. Values that do not belong there end the walk.
struct TableReader {
  const u8* at = nullptr;
  const u8* end = nullptr;
  bool bad = false;

  template <typename T>
  T take() {
    T value{};
    if (bad || static_cast<usize>(end - at) < sizeof(T)) {
      bad = true;
      at = end;
      return value;
    }
    __builtin_memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  }
  u64 uleb() {
    u64 value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const u8 byte = take<u8>();
      if (shift < 64) value |= u64{byte & 0x7FU} << shift;
      if ((byte & 0x80) == 0 || bad) return value;
    }
  }
  i64 sleb() {
    u64 value = 0;
    unsigned shift = 0;
    for (;;) {
      const u8 byte = take<u8>();
      if (shift < 64) value |= u64{byte & 0x7FU} << shift;
      shift += 7;
      if ((byte & 0x80) == 0 || bad) {
        if (shift < 64 && (byte & 0x40) != 0) value |= ~u64{0} << shift;
        return static_cast<i64>(value);
      }
    }
  }
  void skip(usize bytes) {
    if (bytes > static_cast<usize>(end - at)) bad = true;
    at = bad ? end : at + bytes;
  }
  // A pointer in one of the encodings of the LSB. `data` is the base of data-relative ones.
  usize pointer(u8 encoding, usize data) {
    if (encoding == DW_EH_PE_omit) return 0;
    const auto here = reinterpret_cast<usize>(at);
    const usize value = encoded(encoding & DW_EH_PE_format);
    switch (encoding & DW_EH_PE_base) {
      case DW_EH_PE_absptr: return value;
      case DW_EH_PE_pcrel: return value + here;
      case DW_EH_PE_datarel: return value + data;
    }
    bad = true;
    return value;  // only personality routines have indirect pointers, and nobody uses those
  }

 private:
  usize encoded(unsigned format) {
    switch (format) {
      case DW_EH_PE_absptr:
      case DW_EH_PE_udata8:
      case DW_EH_PE_sdata8: return take<usize>();
      case DW_EH_PE_uleb128: return uleb();
      case DW_EH_PE_udata2: return take<u16>();
      case DW_EH_PE_udata4: return take<u32>();
      case DW_EH_PE_sleb128: return static_cast<usize>(sleb());
      case DW_EH_PE_sdata2: return static_cast<usize>(i64{take<std::int16_t>()});
      case DW_EH_PE_sdata4: return static_cast<usize>(i64{take<std::int32_t>()});
    }
    bad = true;
    return 0;
  }
};

}  // namespace freestone
