"""Counts what the hit paths execute: it single-steps the call and looks each instruction up in the disassembly.

It compares the counts with golden/gcc.txt or golden/clang.txt and fails for a count above the table's. The bounds of
LIMITS hold whatever the table says. `fast_path_test.py --write` writes the table anew; look at it before you commit it.
`fast_path_test.py --print` only prints the counts, of a hardened library too.
"""

import os
import re
import subprocess
import sys
import unittest
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from support import harness

COMPILER = os.environ.get("FREESTONE_COMPILER", "gcc")
TABLE = Path(__file__).with_name(f"{COMPILER}.txt")
# By the longest prefix of the name. The aligned forms may take six more than malloc. A malloc above 4 KiB computes its
# class.
LIMITS = {"malloc": 16, "malloc_16000": 22, "new": 16, "posix_memalign": 26}
LIMITS |= {"aligned_alloc": 22, "memalign": 22, "aligned_new": 22}
LIMITS |= {"free": 18, "delete": 18, "sized_delete": 18, "aligned_delete": 18, "sized_aligned_delete": 18, "usable": 12}
# realloc that keeps the block's place. calloc multiplies, and ends in a jump to the function that clears; that function
# is not counted.
LIMITS |= {"realloc": 25, "reallocarray": 30, "calloc": 28, "calloc_16000": 34}

# Instructions that read and write their first operand, that only read it, and that touch no memory in spite of their
# brackets.
READ_MODIFY_WRITE = "add sub inc dec and or xor not neg shl shr sar adc sbb bts btr btc xchg cmpxchg xadd".split()
READ_ONLY = {"cmp", "test", "bt", "push", "jmp", "call"}
NO_ACCESS = {"lea", "nop", "endbr64", "prefetcht0", "prefetchw"}


@dataclass
class Counts:
    instructions: int = 0
    loads: int = 0
    stores: int = 0
    branches: int = 0
    calls: int = 0
    locks: int = 0

    def add(self, text: str) -> None:
        """Count one instruction in Intel syntax, such as `mov QWORD PTR [rdx+0x8],rax`."""
        words = text.split(None, 1)
        locked = words[0] == "lock"
        if words[0] in ("lock", "bnd", "notrack", "rep", "repz", "data16", "cs"):
            words = words[1].split(None, 1)
        name, operands = words[0], words[1] if len(words) > 1 else ""
        self.instructions += 1
        self.locks += locked or (name == "xchg" and "[" in operands)
        self.calls += name == "call"
        self.branches += name.startswith("j")
        self.stores += name in ("push", "call")
        self.loads += name in ("pop", "ret")
        memory = "[" in operands or re.search(r"\b[fg]s:", operands) is not None
        if not memory or name in NO_ACCESS:
            return
        destination = operands.split(",")[0]
        writes_memory = (
            "[" in destination or re.search(r"\b[fg]s:", destination) is not None
        ) and name not in READ_ONLY
        self.stores += writes_memory
        self.loads += not writes_memory or name in READ_MODIFY_WRITE


def disassembly() -> dict[int, str]:
    """Address -> instruction, of the whole library."""
    out = subprocess.run(
        ["objdump", "-d", "-M", "intel", "--no-show-raw-insn", str(harness.LIBRARY)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    result: dict[int, str] = {}
    for line in out.splitlines():
        match = re.match(r"\s*([0-9a-f]+):\t(.*)", line)
        if match:
            result[int(match[1], 16)] = re.sub(r"\s+[#<].*", "", match[2]).strip()
    return result


def traced() -> dict[str, list[str]] | None:
    """Scenario -> executed addresses; None where single-stepping is not allowed."""
    done = harness.run([harness.PROBES / "trace_probe"], extra={"FREESTONE_EXPECT_LIBRARY": str(harness.LIBRARY)})
    if done.status == harness.SKIPPED:
        return None
    assert done.status == 0, done
    return {words[0]: words[1:] for words in (line.split() for line in done.out.splitlines())}


def counted() -> tuple[dict[str, Counts], dict[str, list[str]]] | None:
    traces = traced()
    if traces is None:
        return None
    code = disassembly()
    counts: dict[str, Counts] = {}
    listing: dict[str, list[str]] = {}
    for name, addresses in traces.items():
        counts[name] = Counts()
        listing[name] = []
        for before, address in zip(["", *addresses], addresses, strict=False):
            if address == "outside":
                listing[name] += [] if before == "outside" else ["outside"]
                continue
            counts[name].add(code[int(address, 16)])
            listing[name].append(f"{address:>8}  {code[int(address, 16)]}")
    return counts, listing


def table() -> dict[str, Counts]:
    rows = [line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    return {row[0]: Counts(*(int(word) for word in row[1:])) for row in rows}


def written(counts: dict[str, Counts]) -> str:
    names = [field.name for field in fields(Counts)]
    lines = ["# " + f"{'hit path':<18}" + "".join(f"{name:>14}" for name in names)]
    lines += [f"{name:<20}" + "".join(f"{value:>14}" for value in astuple(row)) for name, row in counts.items()]
    return "\n".join(lines) + "\n"


class FastPaths(unittest.TestCase):
    counts: dict[str, Counts]
    listing: dict[str, list[str]]

    @classmethod
    def setUpClass(cls) -> None:
        harness.require_freestone("a promise of libfreestone")
        if harness.IS_HARDENED:
            raise unittest.SkipTest("the hardened build has checks on these paths")
        if os.environ.get("FREESTONE_BUILD_TYPE", "Release") not in ("Release", "RelWithDebInfo"):
            raise unittest.SkipTest("counts are those of an optimised build")
        result = counted()
        if result is None:
            raise unittest.SkipTest("no single-stepping here")
        cls.counts, cls.listing = result
        print(written(cls.counts))

    def explain(self, name: str) -> str:
        return f"{name}: {self.counts[name]}\n" + "\n".join(self.listing[name])

    def test_stay_within_the_limits(self) -> None:
        for name, row in self.counts.items():
            with self.subTest(name):
                self.assertGreater(row.instructions, 5, "the hit path was not seen")
                limit = LIMITS[max((prefix for prefix in LIMITS if name.startswith(prefix)), key=len)]
                self.assertLessEqual(row.instructions, limit, self.explain(name))

    def test_make_no_calls_and_use_no_locked_instructions(self) -> None:
        for name, row in self.counts.items():
            with self.subTest(name):
                self.assertEqual((row.calls, row.locks), (0, 0), self.explain(name))
                self.assertEqual("outside" in self.listing[name], name.startswith("calloc"), self.explain(name))

    def test_are_no_longer_than_the_table_says(self) -> None:
        golden = table()
        self.assertEqual(sorted(golden), sorted(self.counts))
        for name, row in self.counts.items():
            with self.subTest(name):
                worse = [
                    field.name
                    for field in fields(Counts)
                    if getattr(row, field.name) > getattr(golden[name], field.name)
                ]
                self.assertEqual(worse, [], f"{TABLE.name} says {golden[name]}\n{self.explain(name)}")


if __name__ == "__main__":
    if "--write" in sys.argv or "--print" in sys.argv:
        measured = counted()
        assert measured is not None, "no single-stepping here"
        if "--write" in sys.argv:
            TABLE.write_text(written(measured[0]))
        else:
            print(written(measured[0]), end="")
    else:
        harness.main()
