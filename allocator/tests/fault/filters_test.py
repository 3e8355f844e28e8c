"""Sandboxes that kill: the heap works on when the program has given up every system call but those of a common filter.

The filters are data, fault/filters/*.txt. Each is put in force right at the start of main, and again after the heap was
in use; then follow all calls, sizes, threads, growth, purges, what the C library says about its heap, and the end of
the program with its handlers.
"""

import errno
import functools
import signal
import struct
import subprocess
import tempfile
import unittest
from dataclasses import dataclass, field
from pathlib import Path

from support import harness
from support.harness import PROBES, run

FOLDER = Path(__file__).parent / "filters"
ALLOW, ERRNO, TRAP, KILL = 0x7FFF0000, 0x00050000, 0x00030000, 0x80000000
LOAD, EQUAL, ANY_BIT, JUMP, RETURN = 0x20, 0x15, 0x45, 0x05, 0x06


@functools.cache
def numbers() -> dict[str, int]:
    """The system calls of this machine's processor."""
    command = [harness.COMPILER, "-E", "-dM", "-x", "c", "-"]
    text = subprocess.check_output(command, input="#include <asm/unistd.h>\n", text=True)
    words = [line.split() for line in text.splitlines() if line.startswith("#define __NR_")]
    return {word[1].removeprefix("__NR_"): int(word[2]) for word in words if word[2].isdigit()}


def action(words: list[str]) -> int:
    if words[0] == "errno":
        return ERRNO | int(getattr(errno, words[1]))
    return {"allow": ALLOW, "kill": KILL, "trap": TRAP}[" ".join(words)]


@dataclass
class Filter:
    """A list of rules in the order of the file; the first that names a call decides. Line by line:

    default kill|trap         what happens to a call that is not named
    threads no                the program that this filter comes from starts no thread
    allow | errno NAME        what happens to the calls on the next lines
    when argument N has only bits of MASK else ACTION
    when argument N is VALUE... else ACTION
    """

    path: Path
    default: int = KILL
    threads: bool = True
    program: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.add(LOAD, 0)
        condition: list[str] = []
        for line in self.path.read_text().splitlines():
            match line.split():
                case ["#", *_] | []:
                    pass
                case ["default", *words]:
                    self.default = action(words)
                case ["threads", "no"]:
                    self.threads = False
                case ["allow"] | ["errno", _] | ["when", "argument", *_] as words:
                    condition = words
                case names:
                    for name in names:
                        if name in numbers():
                            self.rule(numbers()[name], condition)

    def add(self, code: int, k: int, yes: int = 0, no: int = 0) -> None:
        self.program.append(struct.pack("=HBBI", code, yes, no, k))

    def rule(self, number: int, condition: list[str]) -> None:
        if condition[0] != "when":
            self.add(EQUAL, number, 0, 1)
            return self.add(RETURN, action(condition))
        otherwise = condition.index("else")
        refused = action(condition[otherwise + 1 :])
        load = (LOAD, 16 + 8 * int(condition[2]))  # the lower half, which holds all that is asked about
        if condition[3] == "is":
            values = [int(word, 0) for word in condition[4:otherwise]]
            self.add(EQUAL, number, 0, len(values) + 3)
            self.add(*load)
            for k, value in enumerate(values):
                self.add(EQUAL, value, len(values) - k, 0)
            self.add(RETURN, refused)
        else:
            self.add(EQUAL, number, 0, 4)
            self.add(*load)
            self.add(ANY_BIT, ~int(condition[otherwise - 1], 0) & 0xFFFFFFFF, 0, 1)
            self.add(RETURN, refused)
        self.add(RETURN, ALLOW)

    def write(self, file: Path, default: int) -> None:
        file.write_bytes(b"".join([*self.program, struct.pack("=HBBI", RETURN, 0, 0, default)]))


FILTERS = sorted(FOLDER.glob("*.txt"))


class Confined(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="freestone-")
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "filter"

    def confine(self, path: Path, default: int, *parts: str, conf: str = "") -> harness.Finished:
        rules = Filter(path)
        rules.write(self.file, default)
        parts = (*parts, "threads") if rules.threads else parts
        return run([PROBES / "calls_probe", self.file, *parts], extra={"FREESTONE_CONF": conf})

    def test_the_heap_works_on(self) -> None:
        for path in FILTERS:
            if path.stem == "libc-malloc" and not harness.IS_FREESTONE:
                continue  # glibc's malloc opens a file
            for default in {KILL, Filter(path).default}:
                for parts in ((), ("warm",)):
                    with self.subTest(filter=path.stem, default=hex(default), parts=parts):
                        done = self.confine(path, default, *parts)
                        self.assertEqual((done.status, done.out), (0, "done\n"), done)

    def test_reports_that_somebody_asked_for_are_written(self) -> None:
        harness.require_freestone("a promise of libfreestone")
        for path in FILTERS:
            if path.stem == "libc-malloc":  # it ends a program that opens a file
                continue
            with self.subTest(filter=path.stem):
                done = self.confine(path, KILL, conf="stats_print:true")
                self.assertEqual((done.status, done.out), (0, "done\n"), done)
                self.assertIn("live: handed out and not yet freed", done.err)

    def test_a_filter_kills_what_it_does_not_name(self) -> None:
        for path in FILTERS:
            done = self.confine(path, KILL, "forbidden")
            self.assertEqual((done.status, done.out), (-signal.SIGSYS, ""), (path.stem, done))


if __name__ == "__main__":
    harness.main()
