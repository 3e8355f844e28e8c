"""The shared library as a file: what it exports, what it needs, how it may be loaded."""

import re
import subprocess
import unittest

from support import harness, versions

C_NAMES = """malloc free calloc realloc reallocarray aligned_alloc posix_memalign memalign valloc pvalloc
malloc_usable_size free_sized free_aligned_sized malloc_trim mallopt mallinfo mallinfo2 malloc_info malloc_stats
cfree""".split()
# glibc's other names for them.
C_NAMES += [f"__libc_{name}" for name in "malloc free calloc realloc memalign valloc pvalloc mallopt mallinfo".split()]

# operator new/delete: plain, array, nothrow, aligned, aligned nothrow; delete also sized and sized aligned.
ALIGNED, NOTHROW = "St11align_val_t", "RKSt9nothrow_t"
CXX_NAMES = [f"_Zn{form}m{end}" for form in "wa" for end in ("", NOTHROW, ALIGNED, ALIGNED + NOTHROW)]
CXX_NAMES += [
    f"_Zd{form}Pv{end}" for form in "la" for end in ("", "m", NOTHROW, ALIGNED, f"m{ALIGNED}", ALIGNED + NOTHROW)
]

# What compilers call in their place.
NEWS = [name + hint for name in CXX_NAMES if name.startswith("_Zn") for hint in ("", "12__hot_cold_t")]
SIZED_NEWS = [f"__size_returning_new{form}" for form in ("", "_aligned", "_hot_cold", "_aligned_hot_cold")]
TOKEN_NAMES = "malloc calloc realloc reallocarray aligned_alloc memalign posix_memalign valloc pvalloc".split()
COMPILER_NAMES = [f"__alloc_token_{name}" for name in [*TOKEN_NAMES, *NEWS, *SIZED_NEWS]]
COMPILER_NAMES += [*SIZED_NEWS, *(name for name in NEWS if name.endswith("__hot_cold_t"))]

# How libraries register fork handlers (libc's pthread_atfork calls it), and how they are loaded.
LIBC_NAMES = ["__register_atfork", "dlopen", "dlmopen"]

# What the hardened library checks of libc's memory functions (FREESTONE_CHECK_LIBC).
MEMORY_NAMES = ["memcpy", "memmove", "mempcpy", "memset", "strcpy", "stpcpy", "strncpy", "stpncpy", "strcat", "strncat"]
MEMORY_NAMES += "explicit_bzero wmemcpy wmemmove wmemset read pread pread64 recv recvfrom fread fread_unlocked".split()
MEMORY_NAMES += ["getcwd", "readlink"]
MEMORY_NAMES += [f"__{name}_chk" for name in MEMORY_NAMES]
MEMORY_NAMES += ["bcopy", "bzero", "fgets", "fgets_unlocked", "memccpy"]

# What freestone.h declares, and jemalloc's way to ask: docs/STABILITY.md promises each.
OWN_NAMES = """conf version is_active good_size trim get_stats stats_write stats_report set_callbacks set_limits
get_limits option_get option_set on_pages_leaving thread_never_purges flush_thread validate walk request attention
caches leak_check prof_start prof_stop prof_is_active prof_dump heap_create heap_destroy heap_allocate
heap_allocate_zeroed heap_allocate_aligned heap_reallocate heap_deallocate heap_usable_size heap_get_stats
heap_validate heap_walk""".split()
OWN_NAMES = [f"freestone_{name}" for name in OWN_NAMES]
OWN_NAMES += ["mallctl", "mallctlnametomib", "mallctlbymib", "malloc_stats_print"]
OWN_NAMES += "mallocx rallocx xallocx sallocx dallocx sdallocx nallocx".split()

# Names of other allocators that may be offered for compatibility; anything else must begin with freestone_.
OTHER_NAMES = re.compile(
    r"^(freestone_\w+|mallctl\w*|[mrsxdn]allocx|sallocx|sdallocx|malloc_\w+|__libc_\w+|__posix_memalign|_?_?malloc_\w+)$"
)

STATIC_TLS_BYTES = 512

# A program maps the code around what it runs. The start, the slow paths and a fork, by their mangled names, and what
# only reports, options and repairs need.
EVERY_PROGRAM = """malloc free calloc realloc __register_atfork _ZN9freestone12place_regionEv
_ZN9freestone12commit_unitsEmm _ZN9freestone11take_blocksEjRNS_8SlabUserEjjPPvNS_10BlockPlaceE
_ZN9freestone13return_blocksEjRNS_8SlabUserEPKPvj _ZN9freestone8pop_slowERNS_5CacheEj
_ZN9freestone9push_slowERNS_5CacheEjPv _ZN9freestone12create_cacheEv _ZN9freestone13allocate_slowEm
_ZN9freestone16remove_live_pageEv _ZN9freestone17guard_before_forkEv""".split()
FEW_PROGRAMS = """_ZN9freestone13parse_optionsEPKcPFvPKNS_10OptionInfoES1_mS1_E
_ZN9freestone18collect_statisticsERNS_10StatisticsENS_14ProcessFiguresE _ZN9freestone9map_blockEmm
_ZN9freestone21repair_spans_in_childENS_3CutE _ZN9freestone15slabs_are_validEv""".split()
NEAR_BYTES = {False: 96 * 1024, True: 128 * 1024}  # the fast library's, the hardened one's


def tool(*command: str) -> str:
    return subprocess.run([*command, str(harness.LIBRARY)], capture_output=True, text=True, check=True).stdout


@unittest.skipUnless(harness.IS_FREESTONE, "a promise of libfreestone")
class SharedLibrary(unittest.TestCase):
    def exported(self) -> set[str]:
        return {line.split()[-1].split("@")[0] for line in tool("nm", "-D", "--defined-only").splitlines()}

    def test_exports_every_name(self) -> None:
        for names in (C_NAMES, CXX_NAMES, COMPILER_NAMES, OWN_NAMES):
            self.assertEqual(sorted(set(names) - self.exported()), [])

    def test_is_linked_by_the_name_that_stays_stays_loaded_and_makes_relocations_read_only(self) -> None:
        form = "-hardened" if harness.IS_HARDENED else ""
        for said, option in ((f"[libfreestone{form}.so.1]", "-dW"), ("NODELETE", "-dW"), ("GNU_RELRO", "-lW")):
            self.assertIn(said, tool("readelf", option))

    def test_exports_nothing_that_could_collide_with_a_program(self) -> None:
        memory = set(MEMORY_NAMES) if harness.IS_HARDENED else set()
        self.assertIn(memory & self.exported(), [set(), memory])  # all or, by FREESTONE_CHECK_LIBC=OFF, none
        known = set(C_NAMES) | set(CXX_NAMES) | set(COMPILER_NAMES) | set(LIBC_NAMES) | memory
        self.assertEqual([name for name in sorted(self.exported() - known) if not OTHER_NAMES.match(name)], [])

    def test_needs_only_the_c_library(self) -> None:
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-dW")))
        self.assertEqual({name for name in needed if not re.match(r"libc\.so|ld-linux", name)}, set())

    def test_loads_with_glibc_2_28(self) -> None:
        self.assertEqual(versions.above_ceiling(harness.LIBRARY), [])

    def test_static_thread_storage_fits_a_late_dlopen(self) -> None:
        sizes = [int(row.split()[5], 16) for row in tool("readelf", "-lW").splitlines() if row.split()[:1] == ["TLS"]]
        self.assertLessEqual(sum(sizes), STATIC_TLS_BYTES)

    def test_has_no_executable_stack_and_no_writable_code(self) -> None:
        for row in tool("readelf", "-lW").splitlines():
            words = row.split()
            if words and words[0] in ("LOAD", "GNU_STACK"):
                flags = "".join(words[6:-1])
                self.assertFalse("W" in flags and "E" in flags, row)
        self.assertNotIn("TEXTREL", tool("readelf", "-dW"))

    def test_large_arrays_lie_behind_the_variables(self) -> None:
        sizes = dict(re.findall(r"(\.bss\S*) +NOBITS +\S+ +\S+ +(\S+)", tool("readelf", "-SW")))
        self.assertEqual(list(sizes), [".bss", ".bss.far"])
        self.assertLess(8 * int(sizes[".bss"], 16), int(sizes[".bss.far"], 16))

    def test_what_every_program_runs_lies_in_front(self) -> None:
        rows = [row.split() for row in tool("nm", "--defined-only").splitlines()]
        at = {name: int(address, 16) for address, kind, name in rows if kind in "tTW"}
        (text,) = re.findall(r" \.text +PROGBITS +(\S+)", tool("readelf", "-SW"))
        start = int(text, 16)
        near = EVERY_PROGRAM + (["dlsym"] if "dlsym" in at else [])
        self.assertEqual([name for name in near if at[name] - start > NEAR_BYTES[harness.IS_HARDENED]], [])
        last = max(at[name] for name in near)
        self.assertEqual([name for name in FEW_PROGRAMS if at[name] < last], [])

    def test_read_only_data_lies_with_the_symbols(self) -> None:
        segments = [row.split()[1:] for row in tool("readelf", "-lW").splitlines() if re.match(r" +0\d +\.", row)]
        (first,) = [sections for sections in segments if ".dynsym" in sections]
        self.assertIn(".rodata.near", first)
        self.assertNotIn(".eh_frame", first)
        self.assertNotIn(".rodata", {name for sections in segments for name in sections})


if __name__ == "__main__":
    harness.main()
