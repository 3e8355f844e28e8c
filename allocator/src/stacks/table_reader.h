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
    usize value;
    switch (encoding & DW_EH_PE_format) {
      case DW_EH_PE_absptr:
      case DW_EH_PE_udata8:
      case DW_EH_PE_sdata8:
        value = take<usize>();
        break;
      case DW_EH_PE_uleb128:
        value = uleb();
        break;
      case DW_EH_PE_udata2:
        value = take<u16>();
        break;
      case DW_EH_PE_udata4:
        value = take<u32>();
        break;
      case DW_EH_PE_sleb128:
        value = static_cast<usize>(sleb());
        break;
      case DW_EH_PE_sdata2:
        value = static_cast<usize>(static_cast<i64>(take<std::int16_t>()));
        break;
      case DW_EH_PE_sdata4:
        value = static_cast<usize>(static_cast<i64>(take<std::int32_t>()));
        break;
      default:
        bad = true;
        return 0;
    }
    switch (encoding & DW_EH_PE_base) {
      case DW_EH_PE_absptr:
        break;
      case DW_EH_PE_pcrel:
        value += here;
        break;
      case DW_EH_PE_datarel:
        value += data;
        break;
      default:
        bad = true;
    }
    return value;  // only personality routines have indirect pointers, and nobody uses those
  }
};

}  // namespace freestone
