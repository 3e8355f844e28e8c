// Overflow and underflow: accesses past the end or before the start of a live block. In a twin the same access stays
// inside. The misuse includes the block's next use by the program, its free: that is the first moment at which an
// allocator that keeps check values can see the damage, and the last at which it comes in time.
#include <stdlib.h>
#include <string.h>

#include "harness.h"

namespace attack {
namespace {

enum Means { kStore, kMemset, kMemcpy, kMemmove, kStrcpy, kStrcat, kStray };
enum Next { kFreed, kReallocated, kFreedRemotely, kUnused };

constexpr char kWrote[] = "a live block was written to";
constexpr char kRead[] = "a live block was read";
constexpr std::size_t kSourceBytes = 4 * kMebibyte;
char g_source[kSourceBytes];  // what memcpy and strcpy copy from

char* source_of(std::size_t bytes, char value) {
  for (std::size_t i = 0; i < bytes; i++) opaque(g_source)[i] = value;
  opaque(g_source)[bytes] = '\0';
  return opaque(g_source);
}

void put(World& w, Byte* from, std::size_t bytes, int means) {
  const char value = static_cast<char>('A' + w.random().below(26));
  switch (means) {
    case kMemset: ::memset(opaque(from), value, bytes); break;
    case kMemcpy: ::memcpy(opaque(from), source_of(bytes, value), bytes); break;
    case kMemmove: ::memmove(opaque(from), source_of(bytes, value), bytes); break;
    default:  // what an attacker would write where a heap keeps headers
      if (bytes == 1) {
        flip(from, 1, w.random());
      } else {
        dress(from, bytes, 2 * w.size());
      }
      break;
  }
}

void free_it(void* block) { ::free(opaque(block)); }

void next_use(World& w, Byte* block, int next, Source source) {
  w.forget(block);
  switch (next) {
    case kFreed: release(block, source); break;
    case kReallocated: w.adopt(::realloc(opaque(block), 2 * w.size() + 64), 2 * w.size() + 64); break;
    case kFreedRemotely: in_thread(free_it, block); break;
    default: break;  // it stays as it is, and nothing names it again
  }
}

struct Access {
  Byte* from;
  std::size_t bytes;
};

// Where a linear access of `distance` bytes goes: past the end, or before the start when negative.
Access beyond(Byte* block, std::size_t size, long distance) {
  if (distance > 0) return {block + size, static_cast<std::size_t>(distance)};
  return {at<Byte>(address_of(block) - static_cast<std::uintptr_t>(-distance)), static_cast<std::size_t>(-distance)};
}

Access inside(Byte* block, std::size_t size, long distance) {
  const std::size_t wanted = static_cast<std::size_t>(distance > 0 ? distance : -distance);
  return {block, wanted < size ? wanted : size};
}

// A linear write of `distance` bytes. `count`: what the program does with the block next.
void linear(World& w, const Params& params) {
  Byte* const block = w.populate();
  w.disregard(block);
  const Access access =
      w.misuse() ? beyond(block, w.size(), params.distance) : inside(block, w.size(), params.distance);
  w.fault();
  put(w, access.from, access.bytes, params.how);
  next_use(w, block, static_cast<int>(params.count), Source::kMalloc);
  w.past();
  if (w.misuse()) w.touched(access.from, access.bytes, kWrote);
  w.aftermath();
}

// The same on a block from another call than malloc. `count` is the source.
void linear_source(World& w, const Params& params) {
  w.populate();
  const Source source = static_cast<Source>(params.count);
  Byte* blocks[16];
  for (Byte*& each : blocks) each = w.take(w.size(), source);
  const std::size_t chosen = w.random().below(16);
  w.disregard(blocks[chosen]);
  const Access access = w.misuse() ? beyond(blocks[chosen], w.size(), params.distance)
                                   : inside(blocks[chosen], w.size(), params.distance);
  w.fault();
  put(w, access.from, access.bytes, params.how);
  next_use(w, blocks[chosen], kFreed, source);
  w.past();
  if (w.misuse()) w.touched(access.from, access.bytes, kWrote);
  for (std::size_t i = 0; i < 16; i++)
    if (i != chosen) w.give(blocks[i], source);
  w.aftermath();
}

// One byte at a distance, nothing between: it jumps over whatever stands at the border.
void stray(World& w, const Params& params) {
  Byte* const block = w.populate();
  w.disregard(block);
  const std::uintptr_t base = address_of(block) + (params.distance > 0 ? w.size() - 1 : 0);
  Byte* const place = w.misuse() ? at<Byte>(base + static_cast<std::uintptr_t>(params.distance)) : block;
  w.fault();
  flip(place, 1, w.random());
  next_use(w, block, kFreed, Source::kMalloc);
  w.past();
  if (w.misuse()) w.touched(place, 1, kWrote);
  w.aftermath();
}

// A string of `distance` characters too many, its NUL included.
void string(World& w, const Params& params) {
  Byte* const block = w.populate();
  w.disregard(block);
  const std::size_t extra = static_cast<std::size_t>(params.distance);
  char* const text = source_of(w.misuse() ? w.size() - 1 + extra : w.size() - 1, 'x');
  char* const field = reinterpret_cast<char*>(opaque(block));
  w.fault();
  if (params.how == kStrcat) {
    field[0] = '\0';
    ::strcat(field, text);
  } else {
    ::strcpy(field, text);
  }
  next_use(w, block, kFreed, Source::kMalloc);
  w.past();
  if (w.misuse()) w.touched(block + w.size(), extra, kWrote);
  w.aftermath();
}

// The classical off-by-one: a terminating NUL just past the end.
void one_nul(World& w, const Params&) {
  Byte* const block = w.populate();
  w.disregard(block);
  Byte* const place = w.misuse() ? block + w.size() : block + w.size() - 1;
  w.fault();
  *static_cast<volatile Byte*>(opaque(place)) = 0;
  next_use(w, block, kFreed, Source::kMalloc);
  w.past();
  if (w.misuse()) w.touched(place, 1, kWrote);
  w.aftermath();
}

void read_beyond(World& w, const Params& params) {
  Byte* const block = w.populate();
  const Access access =
      w.misuse() ? beyond(block, w.size(), params.distance) : inside(block, w.size(), params.distance);
  w.fault();
  peruse(access.from, access.bytes);
  w.past();
  if (w.misuse()) w.touched(access.from, access.bytes, kRead);
  w.aftermath();
}

// From one field of an object into the next one: no border of a block is crossed.
void inside_object(World& w, const Params&) {
  Byte* const block = w.populate();
  w.disregard(block);
  const std::size_t half = w.size() / 2;
  w.fault();
  flip(block, w.misuse() ? half + 1 : half, w.random());
  w.past();
  if (w.misuse()) w.effect("the next field of the same object was written to");
  w.aftermath();
}

constexpr long kPg = 4096;
constexpr long kMiB = 1L << 20;

constexpr char kJump[] =
    "the byte lands inside another live block and touches no check value: seeing it takes a page per block or memory "
    "tagging";
constexpr char kLeap[] =
    "among large blocks the byte leaps over any guard between them into another live block: seeing it takes memory "
    "tagging";
constexpr char kReadApart[] = "a read leaves no trace: seeing it takes a page per block or memory tagging";
constexpr char kNeverAgain[] =
    "no call names the block again: seeing it in time takes a page per block or memory tagging";
constexpr char kOneObject[] = "the allocator does not know the fields of an object: seeing it takes instrumented code";

const Case kOverflowCases[] = {
    {"overflow_store_1", kAll, "one byte past the end", linear, {1, kStore}},
    {"overflow_store_8", kAll, "eight bytes past the end", linear, {8, kStore}},
    {"overflow_store_32", kAll, "32 bytes past the end", linear, {32, kStore}},
    {"overflow_store_page", kAll, "a page past the end", linear, {kPg, kStore}},
    {"overflow_store_mebibyte", kAll, "1 MiB past the end", linear, {kMiB, kStore}},
    {"overflow_memset_1", kAll, "memset one byte too long", linear, {1, kMemset}},
    {"overflow_memset_32", kAll, "memset 32 bytes too long", linear, {32, kMemset}},
    {"overflow_memset_mebibyte", kAll, "memset 1 MiB too long", linear, {kMiB, kMemset}},
    {"overflow_memcpy_1", kAll, "memcpy one byte past the end", linear, {1, kMemcpy}},
    {"overflow_memcpy_8", kAll, "memcpy eight bytes past the end", linear, {8, kMemcpy}},
    {"overflow_memcpy_32", kAll, "memcpy 32 bytes past the end", linear, {32, kMemcpy}},
    {"overflow_memcpy_page", kAll, "memcpy a page past the end", linear, {kPg, kMemcpy}},
    {"overflow_memcpy_mebibyte", kAll, "memcpy 1 MiB past the end", linear, {kMiB, kMemcpy}},
    {"overflow_memmove_8", kAll, "memmove eight bytes past the end", linear, {8, kMemmove}},
    {"overflow_strcpy_1", kAll, "a string one character too long", string, {1, kStrcpy}},
    {"overflow_strcpy_8", kAll, "a string eight characters too long", string, {8, kStrcpy}},
    {"overflow_strcpy_32", kAll, "a string 32 characters too long", string, {32, kStrcpy}},
    {"overflow_strcpy_page", kAll, "a string a page too long", string, {kPg, kStrcpy}},
    {"overflow_strcat_8", kAll, "strcat eight characters too many", string, {8, kStrcat}},
    {"overflow_nul", kAll, "only the terminating NUL lands past the end", one_nul},
    {"overflow_then_realloc_1", kAll, "one byte past the end, then realloc", linear, {1, kStore, kReallocated}},
    {"overflow_then_realloc_8", kAll, "eight bytes past the end, then realloc", linear, {8, kStore, kReallocated}},
    {"overflow_then_remote_free_1",
     kAll,
     "one byte past the end, then another thread frees",
     linear,
     {1, kStore, kFreedRemotely}},
    {"overflow_then_remote_free_32",
     kAll,
     "32 bytes past the end, then another thread frees",
     linear,
     {32, kStore, kFreedRemotely}},
    {"overflow_never_freed_8",
     kAll,
     "eight bytes past the end of a block that stays",
     linear,
     {8, kStore, kUnused},
     kSlab,
     kNeverAgain},
    {"overflow_never_freed_32",
     kAll,
     "32 bytes past the end of a block that stays",
     linear,
     {32, kStore, kUnused},
     kSlab,
     kNeverAgain},
    {"overflow_calloc_1",
     kAll,
     "one byte past a block of calloc",
     linear_source,
     {1, kStore, static_cast<long>(Source::kCalloc)}},
    {"overflow_calloc_8",
     kAll,
     "eight bytes past a block of calloc",
     linear_source,
     {8, kStore, static_cast<long>(Source::kCalloc)}},
    {"overflow_aligned_1",
     kAll,
     "one byte past a block of memalign(64)",
     linear_source,
     {1, kStore, static_cast<long>(Source::kAligned)}},
    {"overflow_aligned_8",
     kAll,
     "eight bytes past a block of memalign(64)",
     linear_source,
     {8, kStore, static_cast<long>(Source::kAligned)}},
    {"overflow_page_aligned_8",
     kAll,
     "eight bytes past a block of memalign(4096)",
     linear_source,
     {8, kStore, static_cast<long>(Source::kPageAligned)}},
    {"overflow_realloc_1",
     kAll,
     "one byte past a block that realloc grew",
     linear_source,
     {1, kStore, static_cast<long>(Source::kRealloc)}},
    {"overflow_new_1",
     kAll,
     "one byte past a block of operator new",
     linear_source,
     {1, kStore, static_cast<long>(Source::kNew)}},
    {"overflow_new_array_8",
     kAll,
     "one element past a block of operator new[]",
     linear_source,
     {8, kStore, static_cast<long>(Source::kNewArray)}},
    {"overflow_stray_32", kAll, "one byte, 32 past the end", stray, {32}, kSlab, kJump},
    {"overflow_stray_page", kAll, "one byte, a page past the end", stray, {kPg}, kSlab, kJump},
    {"overflow_stray_mebibyte", kAll, "one byte, 1 MiB past the end", stray, {kMiB}, kLarge, kLeap},
    {"overread_1", kAll, "one byte past the end is read", read_beyond, {1}, kSlab, kReadApart},
    {"overread_32", kAll, "32 bytes past the end are read", read_beyond, {32}, kSlab, kReadApart},
    {"overread_page", kAll, "a page past the end is read", read_beyond, {kPg}, kSlab, kReadApart},
    {"overread_mebibyte", kAll, "1 MiB past the end is read", read_beyond, {kMiB}},
    {"overflow_inside_object", kAny, "from one field into the next", inside_object, {}, kAny, kOneObject},
};

const Case kUnderflowCases[] = {
    {"underflow_store_1", kAll, "one byte before the start", linear, {-1, kStore}},
    {"underflow_store_8", kAll, "eight bytes before the start", linear, {-8, kStore}},
    {"underflow_store_32", kAll, "32 bytes before the start", linear, {-32, kStore}},
    {"underflow_store_page", kAll, "a page before the start", linear, {-kPg, kStore}},
    {"underflow_store_mebibyte", kAll, "1 MiB before the start", linear, {-kMiB, kStore}},
    {"underflow_memset_8", kAll, "memset eight bytes early", linear, {-8, kMemset}},
    {"underflow_memcpy_1", kAll, "memcpy one byte early", linear, {-1, kMemcpy}},
    {"underflow_memcpy_8", kAll, "memcpy eight bytes early", linear, {-8, kMemcpy}},
    {"underflow_memcpy_32", kAll, "memcpy 32 bytes early", linear, {-32, kMemcpy}},
    {"underflow_memcpy_page", kAll, "memcpy a page early", linear, {-kPg, kMemcpy}},
    {"underflow_memcpy_mebibyte", kAll, "memcpy 1 MiB early", linear, {-kMiB, kMemcpy}},
    {"underflow_then_realloc_8",
     kAll,
     "eight bytes before the start, then realloc",
     linear,
     {-8, kStore, kReallocated}},
    {"underflow_aligned_8",
     kAll,
     "eight bytes before a block of memalign(64)",
     linear_source,
     {-8, kStore, static_cast<long>(Source::kAligned)}},
    {"underflow_new_array_8",
     kAll,
     "one element before a block of operator new[]",
     linear_source,
     {-8, kStore, static_cast<long>(Source::kNewArray)}},
    {"underflow_stray_32", kAll, "one byte, 32 before the start", stray, {-32}, kSlab, kJump},
    {"underflow_stray_page", kAll, "one byte, a page before the start", stray, {-kPg}, kSlab, kJump},
    {"underflow_stray_mebibyte", kAll, "one byte, 1 MiB before the start", stray, {-kMiB}, kLarge, kLeap},
    {"underread_8", kAll, "eight bytes before the start are read", read_beyond, {-8}, kSlab, kReadApart},
    {"underread_page", kAll, "a page before the start is read", read_beyond, {-kPg}, kSlab, kReadApart},
    {"underread_mebibyte", kAll, "1 MiB before the start is read", read_beyond, {-kMiB}},
};

constexpr char kHarmless[] =
    "no other live block is written to or read, and the heap goes on without handing one out again";

}  // namespace

const Family kOverflow = {"overflow", kHarmless, kOverflowCases, sizeof kOverflowCases / sizeof kOverflowCases[0]};
const Family kUnderflow = {"underflow", kHarmless, kUnderflowCases, sizeof kUnderflowCases / sizeof kUnderflowCases[0]};

}  // namespace attack
