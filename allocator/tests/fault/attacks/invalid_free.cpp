// Invalid free: a pointer that malloc did not return, or not exactly. In a twin the right pointer is freed.
#include <alloca.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "harness.h"

namespace attack {
namespace {

enum Where {
  kStack,
  kAlloca,
  kStatic,
  kConstant,
  kCode,
  kThreadLocal,
  kEnvironment,
  kMapping,
  kMappingInside,
  kUnmapped,
  kOne,
  kNonCanonical,
  kMinusOne,
  kLibcData,
  kBreak
};

alignas(16) thread_local Byte t_buffer[512];
alignas(16) const Byte kConstantBytes[256] = {0x21};

// Memory in which every word looks like a block's header; the pointer is the first one with a header before it.
Byte* dressed(Byte* memory, std::size_t bytes, std::size_t block_bytes) {
  dress(memory, bytes, block_bytes);
  return memory + 16;
}

void foreign(World& w, const Params& params) {
  alignas(16) Byte stack[512];
  w.populate();
  Byte* const block = w.take();
  Byte* wild = nullptr;
  std::size_t watched = 0;  // bytes from 16 before `wild` that must stay as they are
  switch (static_cast<Where>(params.how)) {
    case kStack: wild = dressed(stack, sizeof stack, w.size()); watched = sizeof stack; break;
    case kAlloca: wild = dressed(static_cast<Byte*>(opaque(alloca(1024))), 1024, w.size()); watched = 1024; break;
    case kStatic: wild = dressed(w.target(), 2048, w.size()); watched = 2048; break;
    case kConstant: wild = const_cast<Byte*>(kConstantBytes) + 16; break;
    case kCode: wild = reinterpret_cast<Byte*>(&foreign); break;
    case kThreadLocal: wild = dressed(t_buffer, sizeof t_buffer, w.size()); watched = sizeof t_buffer; break;
    case kEnvironment: wild = reinterpret_cast<Byte*>(*environ); watched = 32; break;
    case kMapping:
    case kMappingInside:
    case kUnmapped: {
      const std::size_t bytes = 64 * kPage;
      void* const mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapping == MAP_FAILED) w.refused("a mapping");
      Byte* const memory = static_cast<Byte*>(mapping);
      wild = params.how == kMapping ? memory : dressed(memory + kPage, kPage, w.size());
      if (params.how == kMappingInside) watched = kPage;
      if (params.how == kUnmapped) ::munmap(mapping, bytes);
      break;
    }
    case kOne: wild = at<Byte>(1); break;
    case kNonCanonical: wild = at<Byte>(0x4141414141414140); break;
    case kMinusOne: wild = at<Byte>(~std::uintptr_t{15}); break;
    case kLibcData: wild = reinterpret_cast<Byte*>(&environ); watched = 32; break;
    case kBreak: wild = static_cast<Byte*>(::sbrk(0)) - 4096; break;
  }
  if (watched > 0) w.watch(wild - 16, watched);
  w.fault();
  if (w.misuse()) {
    ::free(opaque(wild));
  } else {
    w.give(block);
  }
  w.past();
  w.aftermath();
}

// A pointer into the neighbourhood of a live block; `how` 1: `distance` counts from its end; 2: from its middle.
void displaced(World& w, const Params& params) {
  Byte* const block = w.populate();
  if (w.misuse()) {
    dress(block, w.size(), w.size());
    w.disregard(block);
  }
  const std::uintptr_t base = address_of(block) + (params.how == 1   ? w.size()
                                                   : params.how == 2 ? (w.size() / 2 & ~std::size_t{15})
                                                                     : 0);
  Byte* const wrong = at<Byte>(base + static_cast<std::uintptr_t>(params.distance));
  w.fault();
  if (w.misuse()) {
    if (w.is_live(wrong)) w.forget(wrong);  // the displacement met another block's start: that one is freed
    ::free(wrong);
  } else {
    w.give(block);
  }
  w.past();
  w.aftermath();
}

// A block that was never handed out: many block sizes above the highest live one.
void never_allocated(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  Byte* const above = w.neighbour_above(block);
  const std::size_t stride =
      above != nullptr && above - block < 65536 ? static_cast<std::size_t>(above - block) : w.size();
  Byte* const wrong = w.highest() + stride * static_cast<std::size_t>(params.count);
  w.fault();
  if (w.misuse()) ::free(opaque(wrong));
  w.past();
  w.aftermath();
}

void aligned_interior(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take(w.size() + 256, static_cast<Source>(params.how));
  if (w.misuse()) {
    dress(block, w.size() + 256, w.size());
    w.disregard(block);
  }
  w.fault();
  if (w.misuse()) {
    ::free(opaque(block + params.distance));
    w.past();
  } else {
    w.give(block);
    w.past();
  }
  w.aftermath();
}

void deleted(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take(w.size(), Source::kNew);
  Byte* const wrong = dressed(params.how == 0 ? w.target() : block, params.how == 0 ? 2048 : w.size(), w.size());
  w.disregard(block);
  w.seal_target();
  w.fault();
  if (w.misuse()) {
    ::operator delete(opaque(wrong));
  } else {
    w.give(block, Source::kNew);
  }
  w.past();
  w.aftermath();
}

// Asking for the size of what is no live block: an answer invites the program to write that many bytes.
void usable_size(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  Byte* asked = block;
  if (params.how == 0) {
    w.give(block);
  } else {
    asked = params.how == 1 ? block + 16 : w.target();
  }
  w.fault();
  if (w.misuse()) {
    const std::size_t answer = ::malloc_usable_size(opaque(asked));
    w.past();
    if (answer != 0) w.effect("a usable size was told for a pointer to no live block");
  } else {
    if (params.how != 0 && ::malloc_usable_size(block) < w.size())
      w.effect("the usable size is below the size asked for");
    w.past();
  }
  w.aftermath();
}

constexpr long kGibibyte = 1L << 30;

const Case kCases[] = {
    {"invalid_free_stack", kAny, "an array on the stack, dressed with plausible headers", foreign, {0, kStack}},
    {"invalid_free_alloca", kAny, "memory of alloca", foreign, {0, kAlloca}},
    {"invalid_free_static", kAny, "static memory, dressed with plausible headers", foreign, {0, kStatic}},
    {"invalid_free_constant", kAny, "read-only data", foreign, {0, kConstant}},
    {"invalid_free_code", kAny, "a function's address", foreign, {0, kCode}},
    {"invalid_free_thread_local", kAny, "a thread-local array", foreign, {0, kThreadLocal}},
    {"invalid_free_environment", kAny, "a string of the environment", foreign, {0, kEnvironment}},
    {"invalid_free_mapping", kAny, "the start of the program's own mapping", foreign, {0, kMapping}},
    {"invalid_free_mapping_inside", kAny, "inside the program's own mapping", foreign, {0, kMappingInside}},
    {"invalid_free_unmapped", kAny, "an address that is no longer mapped", foreign, {0, kUnmapped}},
    {"invalid_free_one", kAny, "the address 1", foreign, {0, kOne}},
    {"invalid_free_non_canonical", kAny, "the address 0x4141414141414140", foreign, {0, kNonCanonical}},
    {"invalid_free_minus_sixteen", kAny, "the highest aligned address", foreign, {0, kMinusOne}},
    {"invalid_free_libc_data", kAny, "a variable of the C library", foreign, {0, kLibcData}},
    {"invalid_free_break", kAny, "an address just below the program break", foreign, {0, kBreak}},
    {"invalid_free_plus_1", kAll, "one byte into a live block", displaced, {1}},
    {"invalid_free_plus_8", kAll, "eight bytes into a live block", displaced, {8}},
    {"invalid_free_plus_16", kAll, "sixteen bytes into a live block", displaced, {16}},
    {"invalid_free_middle", kAll, "the middle of a live block", displaced, {0, 2}},
    {"invalid_free_last_byte", kAll, "the last byte of a live block", displaced, {-1, 1}},
    {"invalid_free_minus_1", kAll, "one byte before a live block", displaced, {-1}},
    {"invalid_free_minus_8", kAll, "eight bytes before a live block", displaced, {-8}},
    {"invalid_free_minus_16", kAll, "sixteen bytes before a live block", displaced, {-16}},
    {"invalid_free_plus_page", kAll, "one page and 16 bytes above", displaced, {4096 + 16}},
    {"invalid_free_minus_page", kAll, "one page less 16 bytes below", displaced, {-4096 + 16}},
    {"invalid_free_plus_mebibyte", kAll, "1 MiB and 16 bytes above", displaced, {(1L << 20) + 16}},
    {"invalid_free_plus_gibibyte", kAll, "1 GiB above", displaced, {kGibibyte}},
    {"invalid_free_minus_gibibyte", kAll, "1 GiB below", displaced, {-kGibibyte}},
    {"invalid_free_high_bit", kAll, "a live block's address with bit 47 flipped", displaced, {1L << 47}},
    {"invalid_free_never_allocated",
     kAll,
     "a block's place that was never handed out, 1 block above the highest",
     never_allocated,
     {0, 0, 1}},
    {"invalid_free_never_allocated_far", kAll, "the same, 1000 blocks above", never_allocated, {0, 0, 1000}},
    {"invalid_free_aligned_interior",
     kAll,
     "64 bytes into a block of memalign(64)",
     aligned_interior,
     {64, static_cast<int>(Source::kAligned)}},
    {"invalid_free_page_aligned_interior",
     kAll,
     "128 bytes into a block of memalign(4096)",
     aligned_interior,
     {128, static_cast<int>(Source::kPageAligned)}},
    {"invalid_free_calloc_interior",
     kAll,
     "64 bytes into a block of calloc",
     aligned_interior,
     {64, static_cast<int>(Source::kCalloc)}},
    {"invalid_delete_static", kAny, "operator delete of static memory", deleted},
    {"invalid_delete_interior", kAll, "operator delete sixteen bytes into a live block", deleted, {0, 1}},
    {"usable_size_freed", kAll, "malloc_usable_size of a freed block", usable_size},
    {"usable_size_interior", kAll, "malloc_usable_size sixteen bytes into a live block", usable_size, {0, 1}},
    {"usable_size_foreign", kAny, "malloc_usable_size of static memory", usable_size, {0, 2}},
};

}  // namespace

const Family kInvalidFree = {"invalid-free",
                             "no foreign memory is handed out or written to, no live block is handed out again", kCases,
                             sizeof kCases / sizeof kCases[0]};

}  // namespace attack
