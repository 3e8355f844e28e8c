"""The programs whose instructions tests of sampling count."""

from __future__ import annotations

import shutil
import unittest
from pathlib import Path

from sampling import sampling_cost
from support import harness


def counted_program(test: unittest.TestCase, name: str) -> tuple[Path, list[str]]:
    """The build and the short form of a program whose instructions `test` counts. Skips it where they cannot be."""
    harness.require_freestone("a promise of libfreestone")
    assert harness.LIBRARY is not None
    if harness.IS_HARDENED:
        test.skipTest("promised of the fast build")
    build = harness.LIBRARY.parent
    command = sampling_cost.commands(build, short=True)[name]
    for needed in ("valgrind", command[0]):
        if shutil.which(needed) is None:
            test.skipTest(f"there is no {needed}")
    return build, command
