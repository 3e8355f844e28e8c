"""What the libraries need of libc: each name has a reason here. Others may define these names too, and theirs may
allocate, lock or be missing, so whatever can be done by a system call or by code of our own is done so.

    imports_test.py LIBRARY...
"""

import subprocess
import sys
import unittest

# Names of libc that the libraries call, each at a point where a call of the allocator from inside does no harm.
CALLED = {
    "abort": "the program's own handlers of SIGABRT run by it",
    "dl_iterate_phdr": "finds what glibc moved or lacks (late_libc.cc); it holds no lock under which anybody allocates",
    "fflush": "output is not lost when leak_error ends the program by its status",
    "fwrite": "malloc_info writes to a FILE",
    "getauxval": "only where libc does not say where the kernel left these values",
    "madvise": "if somebody watches pages leave (platform/leaving.h), as the next ones",
    "mremap": "leaving",
    "munmap": "leaving",
    "memcpy": "what realloc copies; the fast build only, with no lock held",
    "memset": "what calloc clears; as memcpy",
    "pthread_setcancelstate": "once in a thread, while its cache is made",
    "pthread_attr_destroy": "of the background thread, as the next ones",
    "pthread_attr_init": "background",
    "pthread_attr_setdetachstate": "background",
    "sigfillset": "background: blocks every signal",
    "sigaction": "for options that name a signal, and guards: libraries that chain handlers must see it",
    "__libc_current_sigrtmax": "a signal that libc does not keep for itself, as the next one",
    "__libc_current_sigrtmin": "leaks",
    "strlen": "checked string functions of the hardened build, on the program's strings",
    "strnlen": "as strlen",
    "memchr": "how much memccpy copies, as strlen",
    "__chk_fail": "what libc does about a destination that is too small",
    "__cxa_begin_catch": "C++ programs: the nothrow forms of operator new catch, as the next ones",
    "__cxa_end_catch": "C++",
    "__gxx_personality_v0": "C++",
    "_ZSt15get_new_handlerv": "C++",
    "_ZSt17__throw_bad_allocv": "C++",
    "PyGILState_GetThisThreadState": "Python programs: whose frame it is",
}
# Variables, and what the compiler's own start-up files refer to.
NOT_CALLED = {
    "__environ", "environ", "__errno_location", "__libc_stack_end",
    "PyCode_Type", "PyUnicode_Type", "Py_Version", "malloc_conf",
    "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize",
}  # fmt: skip


def imports(library: str) -> set[str]:
    done = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}


class Imports(unittest.TestCase):
    def test_every_name_has_a_reason(self) -> None:
        for library in LIBRARIES:
            self.assertEqual(imports(library) - CALLED.keys() - NOT_CALLED, set(), library)

    def test_every_reason_is_needed(self) -> None:
        needed = set().union(*map(imports, LIBRARIES))
        self.assertEqual((CALLED.keys() | NOT_CALLED) - needed, set())


if __name__ == "__main__":
    LIBRARIES = sys.argv[1:]
    unittest.main(argv=sys.argv[:1], verbosity=2)
