"""The walks of docs/ARCHITECTURE.md enter the files that the page lists, in that order.

It single-steps the two calls and looks each address up in the library's line table. Every .cc file whose code ran has
its place in the page's list. A header in the list has code that ran, and so has each function that an item names. The
room base is left out: the compiler decides what of it is a call.
"""

import os
import re
import subprocess
import unittest
from pathlib import Path

from support import harness

PAGE = Path(__file__).resolve().parents[3] / "docs/ARCHITECTURE.md"
ITEM = re.compile(r"\[(\w+/\w+\.(?:cc|h))\]\([^)]*\)([^\[]*)")
# No tick passes meanwhile.
SETTINGS = "dirty_decay_ms:3600000"

Frame = tuple[str, str]  # file below src/, function with its arguments


def listed(page: str, call: str) -> list[tuple[str, list[str]]]:
    """The files of the page's walk of that call, each with the functions that stand behind it."""
    found = re.search(rf"^[^\n]*`{call}`[^\n]*:\n\n((?:(?:\d+\.|   ) ?\S.*\n)+)", page, re.MULTILINE)
    assert found is not None, f"{PAGE}: no walk of {call}"
    return [(file, re.findall(r"`([\w:]+)`", text)) for file, text in ITEM.findall(found[1])]


def stepped() -> dict[str, list[str]] | None:
    """Call -> addresses that it executed; None where single-stepping is not allowed."""
    extra = {"FREESTONE_EXPECT_LIBRARY": str(harness.LIBRARY), "FREESTONE_CONF": SETTINGS}
    done = harness.run([harness.PROBES / "trace_probe", "walks"], extra=extra)
    if done.status == harness.SKIPPED:
        return None
    assert done.status == 0, done
    lines = [line.split() for line in done.out.splitlines()]
    return {name: [a for a in addresses if a != "outside"] for name, *addresses in lines}


def frames(addresses: list[str]) -> list[list[Frame]]:
    """For each address what runs there, inlined calls included, the innermost first."""
    command = ["addr2line", "-a", "-f", "-i", "-C", "-e", str(harness.LIBRARY)]
    asked = subprocess.run(command, input="\n".join(addresses), capture_output=True, text=True, check=True)
    chains: list[list[Frame]] = []
    lines = iter(asked.stdout.splitlines())
    for line in lines:
        if line.startswith("0x"):
            chains.append([])
        else:
            chains[-1].append((next(lines).partition(":")[0].rpartition("/src/")[2], line))
    return chains


class Walks(unittest.TestCase):
    walks: dict[str, list[str]]

    @classmethod
    def setUpClass(cls) -> None:
        harness.require_freestone("the page is about libfreestone")
        if os.environ.get("FREESTONE_BUILD_TYPE", "Release") != "Release":
            raise unittest.SkipTest("a build with checks enters more")
        found = stepped()
        if found is None:
            raise unittest.SkipTest("no single-stepping here")
        cls.walks = found

    def check(self, call: str) -> None:
        chains = frames(list(dict.fromkeys(self.walks[call])))
        ran = {frame for chain in chains for frame in chain}
        own = [chain[-1][0] for chain in chains if chain[-1][0].endswith(".cc")]
        entered = [file for file in dict.fromkeys(own) if not file.startswith("base/")]
        items = listed(PAGE.read_text(encoding="utf-8"), call)
        # Each eighth miss looks there; which one it is depends on the misses before.
        eighth = ("purge_cold_pages", "coarse_milliseconds")
        items = [(file, names) for file, names in items if file in entered or not set(eighth) & set(names)]
        self.assertEqual([file for file, _ in items if file.endswith(".cc")], entered)
        for file, functions in items:
            self.assertIn(file, {name for name, _ in ran})
            for function in functions:
                # Of two names for one address addr2line may give the hidden one.
                word = re.compile(rf"\b(freestone_own_)?{function.rpartition(':')[2]}\b")
                self.assertTrue(any(name == file and word.search(text) for name, text in ran), f"{file}: {function}")

    def test_malloc_for_which_the_heap_grows(self) -> None:
        self.check("malloc")

    def test_free_after_which_memory_goes_back(self) -> None:
        self.check("free")


if __name__ == "__main__":
    harness.main()
