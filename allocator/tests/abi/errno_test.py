"""What each call returns and leaves in errno is what it is on the C library's malloc, for every size and alignment."""

import re
import unittest

from support import harness


def differs_knowingly(line: str) -> bool:
    """Of the table `What differs from glibc` in docs/COMPATIBILITY.md."""
    call = re.match(r".*: aligned_alloc\((\d+), ", line)
    if call is None:
        return False
    alignment = int(call[1])
    return alignment & (alignment - 1) != 0 or alignment == 0


class Errno(unittest.TestCase):
    def test_every_call_answers_as_the_c_library(self) -> None:
        base = harness.run([harness.PROBES / "errno_probe"], library=None)
        ours = harness.run([harness.PROBES / "errno_probe"])
        if base.status == harness.SKIPPED:
            self.skipTest("no limit can be set")
        self.assertEqual((base.status, ours.status), (0, 0), ours.err)
        expected, seen = base.out.splitlines(), ours.out.splitlines()
        wrong = [
            f"{line}, the C library: {other.rpartition('): ')[2]}"
            for line, other in zip(seen, expected, strict=True)
            if line != other and not differs_knowingly(line)
        ]
        print(f"{len(seen)} calls")
        self.assertGreater(len(seen), 1000)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    harness.main()
