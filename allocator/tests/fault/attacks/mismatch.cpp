// Mismatches: the size, the alignment or the kind of call that returns a block is not the one that it was obtained
// with.
// In a twin they agree. Without an effect on another object (a block in the wrong class is one) it is neutralised.
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

#include <new>

#include "harness.h"

namespace attack {
namespace {

enum Size { kHalf, kDouble, kLess16, kMore16, kOne, kMillion, kZero };

std::size_t wrong_size(std::size_t size, int how) {
  switch (how) {
    case kHalf: return size / 2;
    case kDouble: return 2 * size;
    case kLess16: return size > 16 ? size - 16 : size + 32;
    case kMore16: return size + 16;
    case kOne: return 1;
    case kZero: return 0;
    default: return 1000000;
  }
}

// Several blocks go back wrongly, so that an allocator that trusts the size hands some of them out as what they are
// not.
template <class Give>
void return_many(World& w, Source source, std::size_t alignment, Give give) {
  w.populate();
  Byte* blocks[8];
  const auto aligned = std::align_val_t{alignment};
  for (Byte*& block : blocks) {
    if (alignment == 0) {
      block = w.take(w.size(), source);
    } else if (source == Source::kNew) {
      block = w.adopt(::operator new(w.size(), aligned, std::nothrow), w.size());
    } else {
      block = w.adopt(::memalign(alignment, w.size()), w.size());
    }
  }
  w.fault();
  for (Byte* const block : blocks) {
    w.forget(block);
    give(static_cast<void*>(opaque(block)));
  }
  w.past();
  w.aftermath();
}

void sized_delete(World& w, const Params& params) {
  const std::size_t told = w.misuse() ? wrong_size(w.size(), params.how) : w.size();
  return_many(w, Source::kNew, 0, [told](void* block) { ::operator delete(block, told); });
}

void sized_delete_array(World& w, const Params& params) {
  const std::size_t told = w.misuse() ? wrong_size(w.size(), params.how) : w.size();
  return_many(w, Source::kNewArray, 0, [told](void* block) { ::operator delete[](block, told); });
}

void sized_aligned_delete(World& w, const Params& params) {
  const std::size_t told = w.misuse() ? wrong_size(w.size(), params.how) : w.size();
  return_many(w, Source::kNew, 64, [told](void* block) { ::operator delete(block, told, std::align_val_t{64}); });
}

// `distance`: the alignment it was obtained with, 0 for none; `count`: the one it is returned with, 0 for none.
void aligned_delete(World& w, const Params& params) {
  const std::size_t given = static_cast<std::size_t>(w.misuse() ? params.count : params.distance);
  return_many(w, Source::kNew, static_cast<std::size_t>(params.distance), [given](void* block) {
    if (given == 0) {
      ::operator delete(block);
    } else {
      ::operator delete(block, std::align_val_t{given});
    }
  });
}

void free_sized(World& w, const Params& params) {
  using FreeSized = void (*)(void*, std::size_t);
  const FreeSized call = reinterpret_cast<FreeSized>(::dlsym(RTLD_DEFAULT, "free_sized"));
  if (call == nullptr) w.not_applicable("free_sized is not provided");
  const std::size_t told = w.misuse() ? wrong_size(w.size(), params.how) : w.size();
  return_many(w, Source::kMalloc, 0, [call, told](void* block) { call(block, told); });
}

void free_aligned_sized(World& w, const Params& params) {
  using FreeAlignedSized = void (*)(void*, std::size_t, std::size_t);
  const FreeAlignedSized call = reinterpret_cast<FreeAlignedSized>(::dlsym(RTLD_DEFAULT, "free_aligned_sized"));
  if (call == nullptr) w.not_applicable("free_aligned_sized is not provided");
  const std::size_t told = w.misuse() && params.distance == 0 ? wrong_size(w.size(), params.how) : w.size();
  const std::size_t alignment = w.misuse() && params.distance != 0 ? static_cast<std::size_t>(params.distance) : 64;
  return_many(w, Source::kMalloc, 64, [call, told, alignment](void* block) { call(block, alignment, told); });
}

void call_mismatch(World& w, const Params& params) {
  const Source source = static_cast<Source>(params.how);
  const Source sink = w.misuse() ? static_cast<Source>(params.count) : source;
  return_many(w, source, 0, [sink](void* block) { release(block, sink); });
}

// The count of an array of objects with destructors stands in front of it. `delete` of such an array frees a pointer
// eight bytes into the block; `delete[]` of a single object frees one eight bytes before it.
void cookie(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take(w.size() + 8, Source::kNewArray);
  w.disregard(block);
  poke(block, w.size() / 8);
  w.fault();
  if (w.misuse()) {
    w.forget(block);
    if (params.how == 0) {
      ::operator delete(opaque(block + 8));
    } else {
      ::operator delete[](at<Byte>(address_of(block) - 8));
    }
  } else {
    w.give(block, Source::kNewArray);
  }
  w.past();
  w.aftermath();
}

constexpr int kM = static_cast<int>(Source::kMalloc);
constexpr int kN = static_cast<int>(Source::kNew);
constexpr int kA = static_cast<int>(Source::kNewArray);

const Case kCases[] = {
    {"sized_delete_half", kAll, "operator delete told half the size", sized_delete, {0, kHalf}},
    {"sized_delete_double", kAll, "operator delete told twice the size", sized_delete, {0, kDouble}},
    {"sized_delete_less_16", kAll, "operator delete told 16 bytes less", sized_delete, {0, kLess16}},
    {"sized_delete_more_16", kAll, "operator delete told 16 bytes more", sized_delete, {0, kMore16}},
    {"sized_delete_one", kAll, "operator delete told 1 byte", sized_delete, {0, kOne}},
    {"sized_delete_zero", kAll, "operator delete told 0 bytes", sized_delete, {0, kZero}},
    {"sized_delete_million", kSlab, "operator delete told 1,000,000 bytes", sized_delete, {0, kMillion}},
    {"sized_delete_array_half", kAll, "operator delete[] told half the size", sized_delete_array, {0, kHalf}},
    {"sized_delete_array_double", kAll, "operator delete[] told twice the size", sized_delete_array, {0, kDouble}},
    {"sized_aligned_delete_half", kAll, "aligned operator delete told half the size", sized_aligned_delete, {0, kHalf}},
    {"sized_aligned_delete_double",
     kAll,
     "aligned operator delete told twice the size",
     sized_aligned_delete,
     {0, kDouble}},
    {"aligned_new_plain_delete", kAll, "new with alignment 64, delete without", aligned_delete, {64, 0, 0}},
    {"plain_new_aligned_delete", kAll, "new without alignment, delete with 64", aligned_delete, {0, 0, 64}},
    {"aligned_delete_larger", kAll, "new with alignment 64, delete with 4096", aligned_delete, {64, 0, 4096}},
    {"free_sized_half", kAll, "free_sized told half the size", free_sized, {0, kHalf}},
    {"free_sized_double", kAll, "free_sized told twice the size", free_sized, {0, kDouble}},
    {"free_aligned_sized_half", kAll, "free_aligned_sized told half the size", free_aligned_sized, {0, kHalf}},
    {"free_aligned_sized_alignment",
     kAll,
     "free_aligned_sized told 4096 for an alignment of 64",
     free_aligned_sized,
     {4096}},
    {"malloc_delete", kAll, "malloc, operator delete", call_mismatch, {0, kM, kN}},
    {"malloc_delete_array", kAll, "malloc, operator delete[]", call_mismatch, {0, kM, kA}},
    {"new_free", kAll, "operator new, free", call_mismatch, {0, kN, kM}},
    {"new_delete_array", kAll, "operator new, operator delete[]", call_mismatch, {0, kN, kA}},
    {"new_array_free", kAll, "operator new[], free", call_mismatch, {0, kA, kM}},
    {"new_array_delete", kAll, "operator new[], operator delete", call_mismatch, {0, kA, kN}},
    {"new_array_objects_delete", kAll, "an array of objects, deleted as one object", cookie},
    {"new_object_delete_array", kAll, "one object, deleted as an array of objects", cookie, {0, 1}},
};

}  // namespace

const Family kMismatch = {"mismatch", "no block is handed out that overlaps a live one, and no live block changes",
                          kCases, sizeof kCases / sizeof kCases[0]};

}  // namespace attack
