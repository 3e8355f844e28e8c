// The attack suite: the table of kinds.
#include <cstdlib>
#include <cstring>
#include <new>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

#if !defined(__GLIBC__)
extern "C" int malloc_trim(std::size_t bytes);  // musl has none: the library's
#endif

namespace enumerated {

namespace {

char* many[kFlushBlocksMax];
// So many blocks of the size that every allocator has to empty its caches.
std::size_t count_of(std::size_t bytes) {
  const std::size_t fit = (std::size_t{12} << 20) / (bytes + 64);
  return fit < 8 ? 8 : fit > flush_blocks ? flush_blocks : fit;
}
void take_many(const Attack& attack) {
  const std::size_t bytes = attack.bytes;
  for (std::size_t i = 0; i < count_of(bytes); ++i) {
    many[i] = static_cast<char*>(attack.state == State::aligned ? std::aligned_alloc(64, bytes) : std::malloc(bytes));
    if (many[i] != nullptr) *static_cast<volatile char*>(many[i]) = 'm';
  }
}
void free_many(std::size_t bytes) {
  for (std::size_t i = 0; i < count_of(bytes); ++i) std::free(many[i]);
}

void in_thread(void* (*body)(void*), void* argument) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, body, argument) != 0) _exit(kNotApplicable);
  pthread_join(thread, nullptr);
}

// The program goes on until the moment by which the misuse must have been seen.
void go_on(const Attack& attack) {
  switch (attack.moment) {
    case Moment::at_reuse:
      for (int round = 0; round < 3; ++round) {
        take_many(attack);
        free_many(attack.bytes);
      }
      break;
    case Moment::at_flush: free_many(attack.bytes); break;
    case Moment::at_trim: malloc_trim(0); break;
    case Moment::at_exit: std::exit(kNothingSeen);
    case Moment::in_child: {
      const pid_t child = fork();
      if (child == 0) {
        take_many(attack);
        free_many(attack.bytes);
        std::exit(kNothingSeen);
      }
      int status = 0;
      waitpid(child, &status, 0);
      if (WIFSIGNALED(status)) std::abort();
      break;
    }
    default: break;
  }
}
void prepare(const Attack& attack) {
  if (attack.moment == Moment::at_flush) take_many(attack);
}

// Where a write of the attack's offset lies: past the end by so many bytes, or before the start.
void write_across(const Attack& attack, bool alone) {
  prepare(attack);
  char* const block = take(attack);
  const std::size_t reach = static_cast<std::size_t>(attack.offset < 0 ? -attack.offset : attack.offset);
  std::size_t length = alone ? 1 : reach;
  if (length < least_of(attack.means)) length = least_of(attack.means);
  // A string's last byte is zero, and where it lands there is a zero already: one character more.
  const bool is_string =
      attack.means == Means::strcpy_call || attack.means == Means::strcat_call || attack.means == Means::snprintf_call;
  const long first_past =
      static_cast<long>(attack.bytes) + attack.offset + (is_string ? 1 : 0) - static_cast<long>(length);
  char* from = opaque_at(block, attack.offset > 0 ? first_past : attack.offset);
  if (attack.offset > 0 && first_past < 0) from = block, length = attack.bytes + reach;
  if (attack.twin) {
    from = block;
    if (length > attack.bytes) length = attack.bytes;
    if (length < least_of(attack.means)) _exit(kNotApplicable);
  }
  misuse_begins();
  write_by(attack.means, from, length);
  if (attack.moment == Moment::at_free) give(attack, block);
  if (attack.moment == Moment::at_realloc) std::free(std::realloc(opaque(block), 2 * attack.bytes + 64));
  go_on(attack);
}
void write_linear(const Attack& attack) { write_across(attack, false); }
void write_stray(const Attack& attack) { write_across(attack, true); }

// A zero right behind the end.
void string_without_end(const Attack& attack) {
  char* const block = take(attack);
  std::memset(block, 'x', attack.bytes);
  if (attack.twin) block[attack.bytes - 1] = '\0';
  misuse_begins();
  std::size_t length = 0;
  while (static_cast<volatile char*>(opaque(block))[length] != '\0') ++length;
  if (!attack.twin) _exit(length == attack.bytes ? kHeld : kNothingSeen);
}

void write_freed(const Attack& attack) {
  prepare(attack);
  char* const block = take(attack);
  const std::size_t length = least_of(attack.means);
  if (attack.offset + static_cast<long>(length) > static_cast<long>(attack.bytes)) _exit(kNotApplicable);
  if (attack.twin) write_by(attack.means, block + attack.offset, length);
  give(attack, block);
  misuse_begins();
  if (!attack.twin) write_by(attack.means, opaque_at(block, attack.offset), length);
  go_on(attack);
}

// A copy whose source, not whose target, leaves the block or is freed.
void copy_from(const Attack& attack) {
  static char target[1 << 21];
  char* const block = take(attack);
  const bool freed = attack.offset == 1;
  if (freed && !attack.twin) give(attack, block);
  const std::size_t bytes =
      attack.twin || freed ? attack.bytes : attack.bytes + static_cast<std::size_t>(attack.offset);
  misuse_begins();
  if (attack.seed % 2 == 0) {
    ::memcpy(opaque(target), opaque(block), bytes);
  } else {
    ::memmove(opaque(target), opaque(block), bytes);
  }
}

// After it left the thread's cache, or all of the heap's.
void write_flushed(const Attack& attack) {
  take_many(attack);
  char* const block = take(attack);
  const std::size_t length = least_of(attack.means);
  if (attack.offset + static_cast<long>(length) > static_cast<long>(attack.bytes)) _exit(kNotApplicable);
  give(attack, block);
  for (std::size_t i = 0; i < count_of(attack.bytes); i += 2) std::free(many[i]);
  misuse_begins();
  if (!attack.twin) write_by(attack.means, opaque_at(block, attack.offset), length);
  if (attack.moment == Moment::at_flush) {
    for (std::size_t i = 1; i < count_of(attack.bytes); i += 2) std::free(many[i]);
  } else {
    go_on(attack);
  }
}

void* give_in_thread(void* block) {
  std::free(block);
  return nullptr;
}
void write_freed_by_thread(const Attack& attack) {
  char* const block = take(attack);
  in_thread(give_in_thread, block);
  misuse_begins();
  if (!attack.twin) write_by(attack.means, opaque_at(block, attack.offset), 1);
  // The next thread takes over what the first one left. Without one, the block is not reused.
  const auto go_on_in_thread = [](void* next) -> void* {
    go_on(*static_cast<const Attack*>(next));
    return nullptr;
  };
  if (attack.moment == Moment::at_reuse) in_thread(go_on_in_thread, const_cast<Attack*>(&attack));
  go_on(attack);
}

void read_secret(const Attack& attack) {
  char* const block = take(attack);
  if (attack.bytes < 24) _exit(kNotApplicable);
  for (std::size_t i = 0; i < attack.bytes; ++i) block[i] = static_cast<char>('A' + i % 23);
  char before[16];
  const std::size_t at = static_cast<std::size_t>(attack.offset) % (attack.bytes - 16);
  std::memcpy(before, block + at, 16);
  if (!attack.twin) give(attack, block);
  misuse_begins();
  bool same = true;
  for (std::size_t i = 0; i < 16; ++i) same = same && static_cast<volatile char*>(opaque(block))[at + i] == before[i];
  if (attack.twin) std::exit(same ? kNothingSeen : 1);
  _exit(same ? kNothingSeen : kHeld);
}

// A previous owner's bytes in a block that was not written.
void read_uninitialised(const Attack& attack) {
  const std::size_t count = count_of(attack.bytes) / 4 + 1;
  for (std::size_t i = 0; i < count; ++i) {
    many[i] = static_cast<char*>(std::malloc(attack.bytes));
    std::memset(opaque(many[i]), 'S', attack.bytes);
  }
  for (std::size_t i = 0; i < count; ++i) std::free(many[i]);
  misuse_begins();
  for (std::size_t i = 0; i < count; ++i) {
    many[i] = static_cast<char*>(attack.twin ? std::calloc(1, attack.bytes) : std::malloc(attack.bytes));
    for (std::size_t k = 0; k < attack.bytes; ++k)
      if (opaque(many[i])[k] == 'S') _exit(attack.twin ? 1 : kNothingSeen);
  }
  _exit(attack.twin ? 0 : kHeld);
}

void double_free(const Attack& attack) {
  prepare(attack);
  char* others[68];
  const std::size_t between = static_cast<std::size_t>(attack.offset);
  for (std::size_t i = 0; i < between; ++i) others[i] = static_cast<char*>(std::malloc(attack.bytes));
  char* const block = take(attack);
  give(attack, block);
  for (std::size_t i = 0; i < between; ++i) std::free(others[i]);
  if (attack.moment == Moment::at_flush) free_many(attack.bytes);
  if (attack.moment == Moment::at_trim) malloc_trim(0);
  misuse_begins();
  if (!attack.twin) give(attack, block);
  if (attack.moment == Moment::at_exit) go_on(attack);
}
void double_free_other_thread(const Attack& attack) {
  char* const block = take(attack);
  if (attack.seed % 2 == 0) {
    std::free(block);
    misuse_begins();
    if (!attack.twin) in_thread(give_in_thread, opaque(block));
  } else {
    in_thread(give_in_thread, block);
    misuse_begins();
    if (!attack.twin) std::free(opaque(block));
  }
}
// The address was given out again and freed by its new owner.
void double_free_after_reuse(const Attack& attack) {
  char* const block = take(attack);
  std::free(block);
  char* again = nullptr;
  std::size_t taken = 0;
  for (; taken < count_of(attack.bytes) && again != block; ++taken)
    again = many[taken] = static_cast<char*>(std::malloc(attack.bytes));
  if (again != block) {
    for (std::size_t i = 0; i < taken; ++i) std::free(many[i]);
  } else {
    std::free(again);
  }
  misuse_begins();
  if (!attack.twin) std::free(opaque(block));
}

void free_interior(const Attack& attack) {
  char* const block = take(attack);
  if (attack.offset == 0 || attack.offset >= static_cast<long>(attack.bytes)) _exit(kNotApplicable);
  misuse_begins();
  std::free(attack.twin ? opaque(block) : opaque_at(block, attack.offset));
  go_on(attack);
}
char static_bytes[8192];
void free_elsewhere(const Attack& attack) {
  char stack_bytes[512];
  char* places[] = {
      opaque(stack_bytes) + 64,
      opaque(static_bytes) + 1024,
      static_cast<char*>(mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
      reinterpret_cast<char*>(0x10),
      reinterpret_cast<char*>(&std::exit),
      opaque(stack_bytes) + 65};
  Random random{attack.seed};
  char* const place = places[random.below(6)];
  std::free(std::malloc(attack.bytes));
  misuse_begins();
  std::free(attack.twin ? nullptr : opaque(place));
}
void reallocate_wrongly(const Attack& attack) {
  char* const block = take(attack);
  const bool freed = attack.offset == 0;
  if (attack.offset >= static_cast<long>(attack.bytes)) _exit(kNotApplicable);
  if (freed && !attack.twin) std::free(block);
  misuse_begins();
  char* const moved =
      static_cast<char*>(std::realloc(attack.twin ? block : opaque_at(block, attack.offset), attack.bytes + 40));
  if (attack.twin) std::free(moved);
}
void usable_size_of_freed(const Attack& attack) {
  char* const block = take(attack);
  if (!attack.twin) give(attack, block);
  misuse_begins();
  if (malloc_usable_size(opaque(block)) == 0) _exit(attack.twin ? 1 : kHeld);
}

using FreeSized = void (*)(void*, std::size_t);
using FreeAlignedSized = void (*)(void*, std::size_t, std::size_t);
void wrong_size(const Attack& attack) {
  const std::size_t wrong = attack.twin ? attack.bytes : attack.bytes + static_cast<std::size_t>(attack.offset);
  const auto free_sized = reinterpret_cast<FreeSized>(dlsym(RTLD_DEFAULT, "free_sized"));
  const auto free_aligned_sized = reinterpret_cast<FreeAlignedSized>(dlsym(RTLD_DEFAULT, "free_aligned_sized"));
  const unsigned call = attack.seed % 4;
  if (wrong == 0 || (call == 2 && free_sized == nullptr) || (call == 3 && free_aligned_sized == nullptr))
    _exit(kNotApplicable);
  void* const block = call == 0   ? ::operator new(attack.bytes)
                      : call == 1 ? ::operator new[](attack.bytes)
                      : call == 2 ? std::malloc(attack.bytes)
                                  : std::aligned_alloc(64, attack.bytes);
  misuse_begins();
  if (call == 0) return ::operator delete(opaque(block), wrong);
  if (call == 1) return ::operator delete[](opaque(block), wrong);
  if (call == 2) return free_sized(opaque(block), wrong);
  free_aligned_sized(opaque(block), 64, wrong);
}
void wrong_alignment(const Attack& attack) {
  const auto free_aligned_sized = reinterpret_cast<FreeAlignedSized>(dlsym(RTLD_DEFAULT, "free_aligned_sized"));
  if (attack.seed % 2 == 0) {
    if (free_aligned_sized == nullptr) _exit(kNotApplicable);
    void* block = std::aligned_alloc(64, attack.bytes);
    misuse_begins();
    // Neither is a power of two, or the block does not lie there.
    return free_aligned_sized(opaque(block), attack.twin ? 64 : 48, attack.bytes);
  }
  void* block = ::operator new(attack.bytes, std::align_val_t{64});
  misuse_begins();
  if (attack.twin) return ::operator delete(opaque(block), attack.bytes, std::align_val_t{64});
  ::operator delete(opaque(block), attack.bytes, std::align_val_t{96});
}
void wrong_family(const Attack& attack) {
  if (attack.twin) return ::operator delete[](::operator new[](attack.bytes));
  const bool is_array = attack.seed % 2 == 1;
  void* const block = is_array ? ::operator new[](attack.bytes) : ::operator new(attack.bytes);
  misuse_begins();
  if (attack.seed % 4 < 2) return std::free(opaque(block));
  is_array ? ::operator delete(opaque(block)) : ::operator delete[](opaque(block));
}
void zero_size(const Attack& attack) {
  char* const block = static_cast<char*>(std::malloc(0));
  if (block == nullptr) _exit(kNotApplicable);
  if (attack.twin) return std::free(block);
  misuse_begins();
  if (attack.seed % 2 == 0) {
    write_by(attack.means, opaque(block), least_of(attack.means));
  } else if (*static_cast<volatile char*>(opaque(block)) == 'z') {
    _exit(kHeld);
  }
  std::free(block);
}
void too_large(const Attack& attack) {
  const std::size_t sizes[] = {SIZE_MAX, SIZE_MAX - 8, SIZE_MAX - 4096, SIZE_MAX / 2 + 1, std::size_t{1} << 48};
  Random random{attack.seed};
  const std::size_t bytes = attack.twin ? attack.bytes : sizes[random.below(5)];
  misuse_begins();
  void* block = nullptr;
  switch (attack.seed % 5) {
    case 0: block = std::malloc(bytes); break;
    case 1: block = std::calloc(attack.twin ? 1 : bytes / 2 + 2, attack.twin ? bytes : 2); break;
    case 2: block = std::realloc(std::malloc(40), bytes); break;
    case 3: block = reallocarray(nullptr, attack.twin ? 1 : bytes / 4 + 1, attack.twin ? bytes : 8); break;
    default: block = aligned_alloc(64, bytes); break;
  }
  if (attack.twin) _exit(block != nullptr ? 0 : 1);
  _exit(block == nullptr ? kHeld : kNothingSeen);
}

template <class T>
constexpr unsigned bits() { return (1U << static_cast<unsigned>(T::count)) - 1; }
template <class... T>
constexpr unsigned some(T... values) { return ((1U << static_cast<unsigned>(values)) | ...); }

constexpr unsigned kAllStates = bits<State>();
constexpr unsigned kPlain = kAllStates & ~some(State::by_new);
constexpr unsigned kSmallWrites = some(Means::store, Means::memcpy_call, Means::memmove_call, Means::memset_call,
                                       Means::vector_store, Means::read_call);
constexpr unsigned kCheckedEverywhere =
    some(Means::memcpy_call, Means::memmove_call, Means::memset_call, Means::strcpy_call, Means::strcat_call);
#if defined(__GLIBC__)
constexpr unsigned kChecked = kCheckedEverywhere | some(Means::read_call);
#else
constexpr unsigned kChecked = kCheckedEverywhere;  // the program is static
#endif
constexpr unsigned kOnce = some(Moment::at_once);

}  // namespace

const Kind kKinds[] = {
    {"write past the end", write_linear, Offsets::past, bits<Means>(), kAllStates, some(Moment::at_free)},
    {"write past the end, then realloc", write_linear, Offsets::past, bits<Means>(), kPlain, some(Moment::at_realloc)},
    {"libc call writes past the end, seen at once", write_linear, Offsets::just_past, kChecked, kAllStates, kOnce},
    {"libc call writes after free, seen at once", write_freed, Offsets::inside, kChecked, kAllStates, kOnce},
    {"libc call reads past the end or after free", copy_from, Offsets::strays, 0, kAllStates, kOnce},
    {"write before the start", write_linear, Offsets::before, bits<Means>(), kAllStates, some(Moment::at_free)},
    {"write one byte up to 8 before the start", write_stray, Offsets::just_before, some(Means::store), kAllStates,
     some(Moment::at_free)},
    {"write one byte up to 32 before the start", write_stray, Offsets::before, some(Means::store), kAllStates,
     some(Moment::at_free, Moment::at_exit), 0.3},
    {"write a page past the end", write_linear, Offsets::page, bits<Means>(), kAllStates, some(Moment::at_free)},
    {"write past the end of what stays", write_linear, Offsets::past, bits<Means>(), kAllStates,
     some(Moment::at_trim, Moment::at_exit)},
    {"write one byte up to 8 past the end", write_stray, Offsets::just_past, some(Means::store), kAllStates,
     some(Moment::at_free, Moment::at_exit)},
    {"write one byte up to 64 past the end", write_stray, Offsets::strays, some(Means::store), kAllStates,
     some(Moment::at_free, Moment::at_exit), 0.3},
    {"string without an end", string_without_end, Offsets::none, 0, kAllStates, kOnce},
    {"write after free, seen at reuse", write_freed, Offsets::inside, bits<Means>(), kAllStates,
     some(Moment::at_reuse)},
    {"write after free, seen at flush", write_freed, Offsets::inside, bits<Means>(), kAllStates,
     some(Moment::at_flush)},
    {"write after free, seen at trim", write_freed, Offsets::inside, bits<Means>(), kAllStates, some(Moment::at_trim)},
    {"write after free, seen at exit", write_freed, Offsets::inside, bits<Means>(), kAllStates, some(Moment::at_exit)},
    {"write after free, seen by a child", write_freed, Offsets::inside, kSmallWrites, kAllStates,
     some(Moment::in_child)},
    {"write after flush", write_flushed, Offsets::inside, kSmallWrites, kAllStates,
     some(Moment::at_reuse, Moment::at_trim, Moment::at_exit)},
    {"write after free by an ended thread", write_freed_by_thread, Offsets::inside,
     some(Means::store, Means::memset_call), kPlain, some(Moment::at_reuse, Moment::at_exit)},
    {"read after free", read_secret, Offsets::inside, 0, kAllStates, kOnce},
    {"read of what was never written", read_uninitialised, Offsets::none, 0, some(State::alone), kOnce},
    {"double free", double_free, Offsets::strays, 0, kAllStates, kOnce},
    {"double free, seen by the end", double_free, Offsets::strays, 0, kAllStates, some(Moment::at_exit)},
    {"double free after a flush", double_free, Offsets::just_past, 0, kAllStates,
     some(Moment::at_flush, Moment::at_trim)},
    {"double free by two threads", double_free_other_thread, Offsets::none, 0, kPlain, kOnce},
    {"double free after reuse", double_free_after_reuse, Offsets::none, 0, kPlain, kOnce},
    {"free of an interior address", free_interior, Offsets::inside, 0, kPlain, kOnce},
    {"free of an interior address, seen by the end", free_interior, Offsets::inside, 0, kPlain, some(Moment::at_exit)},
    {"free of a foreign address", free_elsewhere, Offsets::none, 0, some(State::alone), kOnce},
    {"realloc of a freed or interior address", reallocate_wrongly, Offsets::inside, 0, kPlain, kOnce},
    {"usable size of a freed block", usable_size_of_freed, Offsets::none, 0, kAllStates, kOnce},
    {"wrong size given", wrong_size, Offsets::strays, 0, some(State::alone), kOnce},
    {"wrong alignment given", wrong_alignment, Offsets::none, 0, some(State::alone), kOnce},
    {"wrong family of functions", wrong_family, Offsets::none, 0, some(State::alone), kOnce},
    {"use of a zero-size block", zero_size, Offsets::none, some(Means::store, Means::memset_call, Means::memcpy_call),
     some(State::alone), kOnce},
    {"size too large", too_large, Offsets::none, 0, some(State::alone), kOnce},
};
const std::size_t kKindCount = sizeof kKinds / sizeof kKinds[0];
static_assert(sizeof kKinds / sizeof kKinds[0] <= kKindsMax);

}  // namespace enumerated
