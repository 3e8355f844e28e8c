// Room 1, base: the macros that tell the compiler how to treat code.
#pragma once

#define FREESTONE_LIKELY(x) __builtin_expect(!!(x), 1)
#define FREESTONE_UNLIKELY(x) __builtin_expect(!!(x), 0)

// A fast path: always inlined into the exported function, which then builds no frame.
#define FREESTONE_INLINE inline __attribute__((always_inline))

// A slow path: out of line and away from the hot text, so that the fast path needs neither stack nor spills.
#define FREESTONE_SLOW __attribute__((noinline, cold))

// Out of line like a slow path, but not rare. It has its own frame, so its caller needs none.
#define FREESTONE_APART __attribute__((noinline))

// Inlined like a fast path. It reads what another thread may be writing and uses it only as a hint, so the thread
// sanitizer ignores it.
#if defined(__SANITIZE_THREAD__)
#define FREESTONE_RACES __attribute__((noinline, no_sanitize_thread))
#else
#define FREESTONE_RACES __attribute__((always_inline))
#endif

#define FREESTONE_EXPORT __attribute__((visibility("default")))
// For variables that the fast paths read: the code then reaches them by a fixed distance.
#define FREESTONE_HIDDEN __attribute__((visibility("hidden")))
#define FREESTONE_HOT __attribute__((hot, section(".text.hot.freestone")))
// What every process runs at its start, at a fork or at its end, of files whose other code is seldom needed.
#define FREESTONE_AT_START __attribute__((section(".text.startup")))

// For zero-initialised arrays of a page or more. They lie behind all other variables, which then fill a few pages: a
// small program touches only those, and each page that it touches is a fault.
#define FREESTONE_FAR __attribute__((section(".bss.far")))
// For an array of which a small program uses only the beginning: it lies between the variables and the far arrays.
#define FREESTONE_EDGE __attribute__((section(".bss.edge")))

// Zero-initialised thread-local state that code reaches without a call. A library that is loaded late may use it,
// because all of it together stays below the 512 spare bytes that ld.so keeps.
#define FREESTONE_THREAD_LOCAL constinit thread_local __attribute__((tls_model("initial-exec")))

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FREESTONE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FREESTONE_SANITIZED 1
#endif
#endif
#ifndef FREESTONE_SANITIZED
#define FREESTONE_SANITIZED 0
#endif

// clang's thread-safety analysis. Its findings are errors in every build with clang; gcc has no counterpart.
// ASSERTS: the lock counts as held from the call on.
#if defined(__clang__)
#define FREESTONE_CAPABILITY __attribute__((capability("mutex")))
#define FREESTONE_SCOPED_CAPABILITY __attribute__((scoped_lockable))
#define FREESTONE_GUARDED_BY(lock) __attribute__((guarded_by(lock)))
#define FREESTONE_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define FREESTONE_EXCLUDES(...) __attribute__((locks_excluded(__VA_ARGS__)))
#define FREESTONE_ASSERTS(...) __attribute__((assert_capability(__VA_ARGS__)))
#define FREESTONE_ACQUIRES(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define FREESTONE_TRY_ACQUIRES(...) __attribute__((try_acquire_capability(__VA_ARGS__)))
#define FREESTONE_RELEASES(...) __attribute__((release_capability(__VA_ARGS__)))
#define FREESTONE_NO_ANALYSIS __attribute__((no_thread_safety_analysis))
#else
#define FREESTONE_CAPABILITY
#define FREESTONE_SCOPED_CAPABILITY
#define FREESTONE_GUARDED_BY(lock)
#define FREESTONE_REQUIRES(...)
#define FREESTONE_EXCLUDES(...)
#define FREESTONE_ASSERTS(...)
#define FREESTONE_ACQUIRES(...)
#define FREESTONE_TRY_ACQUIRES(...)
#define FREESTONE_RELEASES(...)
#define FREESTONE_NO_ANALYSIS
#endif
