"""Plug-ins loaded with RTLD_DEEPBIND, as PHP loads its extensions: they would find libc's free before the library's."""

from __future__ import annotations

import unittest

from support import harness
from support.harness import PROBES, run

FINDER = PROBES / "deepbind_finder.so"
PLUGIN = "deepbind_plugin.so"  # only in the folder that the finder's RUNPATH names


class Deepbind(unittest.TestCase):
    def setUp(self) -> None:
        harness.require_freestone("a promise of libfreestone")

    def test_a_plugin_exchanges_blocks_with_the_program(self) -> None:
        done = run([PROBES / "deepbind_probe", str(FINDER), PLUGIN, "exchange"])
        self.assertEqual((done.status, done.out, done.err), (0, "dlopen: program\ndlmopen: program\n", ""))

    def test_the_option_keeps_the_flag(self) -> None:
        done = run(
            [PROBES / "deepbind_probe", str(FINDER), PLUGIN, "look"], extra={"FREESTONE_CONF": "drop_deepbind:false"}
        )
        self.assertEqual((done.status, done.out, done.err), (0, "dlopen: plugin\ndlmopen: plugin\n", ""))

    def test_a_disabled_library_keeps_the_flag(self) -> None:
        done = run([PROBES / "deepbind_probe", str(FINDER), PLUGIN, "look"], extra={"FREESTONE_DISABLE": "1"})
        self.assertEqual((done.status, done.out, done.err), (0, "dlopen: plugin\ndlmopen: plugin\n", ""))


class WithoutTheLibrary(unittest.TestCase):
    def test_the_flag_matters(self) -> None:
        done = run([PROBES / "deepbind_probe", str(FINDER), PLUGIN, "exchange"], library=None)
        self.assertEqual((done.status, done.out, done.err), (0, "dlopen: plugin\ndlmopen: plugin\n", ""))


if __name__ == "__main__":
    harness.main()
