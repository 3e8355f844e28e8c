"""The line that a detected misuse writes: as text, and as one JSON object with on_error_format:json."""

import json
import signal
import sys
import unittest

from support import harness
from support.harness import Finished

START = """
import ctypes
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
for call in (c.malloc, c.free): call.argtypes = [ctypes.c_size_t if call is c.malloc else ctypes.c_void_p]
def block(n): return c.malloc(n)
def store(p, at, byte): (ctypes.c_ubyte * (at + 1)).from_address(p)[at] = byte
"""


def misuse(code: str, conf: str = "on_error_format:json") -> Finished:
    return harness.run([sys.executable, "-S", "-c", START + code], conf=conf, extra={"PYTHONMALLOC": "pymalloc"})


class MisuseLine(harness.FreestoneTest):
    def line_of(self, code: str) -> dict[str, object]:
        done = misuse(code)
        self.assertEqual(done.status, -signal.SIGABRT, done)
        lines = [line for line in done.err.splitlines() if line]
        self.assertEqual(len(lines), 1, done.err)
        told = json.loads(lines[0])
        self.assertEqual(told["freestone"], "misuse")
        self.assertGreater(told["process"], 1)
        self.assertGreater(int(told["address"], 16), 0)
        return dict(told)

    def test_a_double_free_says_the_size_of_the_block(self) -> None:
        # A run that no cache has room for yet is no block any more when it was freed.
        told = self.line_of("for n in range(20): c.free(block(40000))\np = block(40000); c.free(p); c.free(p)")
        self.assertEqual(told["kind"], "double free")
        self.assertGreaterEqual(int(str(told["block_bytes"])), 40000)

    def test_the_class_goes_with_the_size_of_the_block(self) -> None:
        # One class for each size of blocks, a higher one for larger blocks.
        seen: dict[int, int] = {}
        for size in (24, 40, 100, 1000, 5000, 20000, 60000):
            # A thread's first frees go past its cache, and a run then is no block any more.
            told = self.line_of(f"for n in range(20): c.free(block({size}))\np = block({size}); c.free(p); c.free(p)")
            seen[int(str(told["block_bytes"]))] = int(str(told["class"]))
        self.assertEqual(sorted(seen.values()), [seen[size] for size in sorted(seen)])
        self.assertEqual(len(set(seen.values())), len(seen))
        self.assertNotIn(0, seen.values())

    def test_an_address_inside_a_block_says_how_far(self) -> None:
        for size, at in ((100, 16), (1000, 40), (5000, 4999)):
            with self.subTest(size=size, at=at):
                # The others keep the slab until the free is looked at, at the latest at exit.
                told = self.line_of(f"p = [block({size}) for n in range(20)][-1]; c.free(p + {at})")
                self.assertEqual((told["kind"], told["inside"]), ("invalid free", at))
                self.assertGreaterEqual(int(str(told["block_bytes"])), size)
                self.assertGreater(int(str(told["class"])), 0)

    def test_a_foreign_address_says_what_is_wrong_with_it(self) -> None:
        told = self.line_of("c.free(16)")
        self.assertEqual((told["kind"], told["address"]), ("invalid free", "0x10"))
        if "detail" in told:
            self.assertIn("address", str(told["detail"]))

    def test_text_is_what_is_written_without_the_option(self) -> None:
        done = misuse("c.free(16)", conf="")
        self.assertEqual(done.status, -signal.SIGABRT, done)
        self.assertTrue(done.err.startswith("freestone: invalid free of 0x10 ("), done.err)

    @unittest.skipUnless(harness.IS_HARDENED, "a check of the hardened build")
    def test_an_overflow_says_what_was_asked_for_and_the_first_wrong_byte(self) -> None:
        for size, at in ((33, 33), (33, 35), (100, 103), (3000, 3000), (50000, 50000), (50000, 50020)):
            with self.subTest(size=size, at=at):
                told = self.line_of(f"p = block({size}); store(p, {at}, 0x41); c.free(p)")
                self.assertEqual(told["kind"], "heap overflow")
                self.assertEqual((told["asked_bytes"], told["wrong_byte"]), (size, at))
        done = misuse("p = block(33); store(p, 35, 0x41); c.free(p)", conf="")
        self.assertIn("33 asked for, wrong from byte 35)", done.err)

    @unittest.skipUnless(harness.IS_HARDENED, "a check of the hardened build")
    def test_a_checked_copy_says_where_it_leaves_the_block(self) -> None:
        told = self.line_of("p = block(100); ctypes.memset(p + 90, 65, 30)")
        self.assertEqual((told["kind"], told["asked_bytes"], told["wrong_byte"]), ("heap overflow", 100, 100))


if __name__ == "__main__":
    harness.main()
