"""Python's calls among the frames of C: the right functions and lines, in the right order, for each CPython here."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import unittest
from functools import cache
from pathlib import Path

from sampling import profiles
from support import harness

PROGRAM = Path(__file__).with_name("python_frames_program.py")
# Each of the blocks looked for is sampled: 1 in 3 million is not.
EVERY = "prof:true,prof_sample_bytes:200,prof_view:cumulative"
PATTERNS = ("/usr/bin/python3.1?", "/usr/local/bin/python3.1?", str(Path.home() / ".pyenv/versions/*/bin/python3"))
VERSIONS = ("3.11", "3.12", "3.13")
LINES = {
    m[1]: number
    for number, text in enumerate(PROGRAM.read_text().splitlines(), 1)
    if (m := re.search(r"# line: (\S+)", text))
}


@cache
def interpreters() -> tuple[tuple[str, Path], ...]:
    """One of each version, by its own word."""
    known: dict[str, Path] = {}
    for path in [
        Path(sys.executable),
        *(p for pattern in PATTERNS for p in sorted(Path("/").glob(pattern.removeprefix("/")))),
    ]:
        code = (
            "import sys, sysconfig; "
            "print(sys.version_info[1], sysconfig.get_config_var('Py_GIL_DISABLED') or 0, sys.implementation.name)"
        )
        found = subprocess.run(
            [path, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
        ).stdout.split()
        version = f"3.{found[0]}" if len(found) == 3 and found[1:] == ["0", "cpython"] else ""
        if version in VERSIONS and version not in known:
            known[version] = path
    return tuple(known.items())


def place(function: str, line: str) -> str:
    return f"{function} ({PROGRAM}:{LINES[line]})"


class PythonFrames(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def setUpClass(cls) -> None:
        harness.require_freestone("a promise of libfreestone")
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def profile(self, python: Path, conf: str) -> Path:
        """Made once for each interpreter and way."""
        path = Path(self.folder.name) / re.sub(r"\W", "_", f"{python} {conf}")
        if not path.exists():
            extra = {"PYTHONMALLOC": "malloc", "FREESTONE_CONF": f"{EVERY},{conf},prof_file:{path}"}
            done = harness.run([python, "-I", "-S", PROGRAM], extra=extra)
            self.assertEqual((done.status, done.err), (0, ""), done)
        return path

    def stacks(self, python: Path, conf: str) -> list[list[str]]:
        """The stacks that this program is in, outermost call first."""
        lines = self.profile(python, f"prof_format:collapsed,{conf}").read_text().splitlines()
        return [found for line in lines if str(PROGRAM) in line for found in [line.rpartition(" ")[0].split(";")]]

    def python_only(self, stack: list[str]) -> list[str]:
        return [
            frame for frame in stack if str(PROGRAM) in frame and "<listcomp>" not in frame and "<genexpr>" not in frame
        ]

    def test_every_path_through_the_interpreter_shows_functions_and_lines(self) -> None:
        main = [place("<module>", "module")]
        wanted = [
            [*main, place("outer", "outer.fill"), place("Store.fill", "fill")],
            [*main, place("outer", "outer.by_c"), place("by_c", "by_c")],
            [*main, place("outer", "outer.generated"), place("generated", "generated")],
            [*main, place("outer", "outer.größe"), place("größe", "größe")],
        ]
        for version, python in interpreters():
            with self.subTest(version=version):
                stacks = self.stacks(python, "prof_unwind:tables")
                found = [self.python_only(stack) for stack in stacks]
                for one in wanted:
                    self.assertIn(one, found)
                self.assertTrue(
                    any("<lambda>" in frame for stack in stacks for frame in stack), "the thread's own function"
                )

    def test_they_stand_between_the_evaluator_and_what_it_called(self) -> None:
        for version, python in interpreters():
            with self.subTest(version=version):
                [stack] = [
                    s
                    for s in self.stacks(python, "prof_unwind:tables")
                    if s[-1] != place("by_c", "by_c") and place("by_c", "by_c") in s
                ][:1]
                evaluators = [k for k, frame in enumerate(stack) if "_PyEval_EvalFrameDefault" in frame]
                module, inner = stack.index(place("<module>", "module")), stack.index(place("by_c", "by_c"))
                self.assertEqual((module - 1 in evaluators, inner - 1 in evaluators), (True, True), stack)
                self.assertIn("main", " ".join(stack[: evaluators[0]]).lower(), "C that runs the program")
                between = stack[stack.index(place("outer", "outer.by_c")) + 1 : inner - 1]
                self.assertTrue(
                    between and not any(str(PROGRAM) in frame for frame in between), "sorted() calls back through C"
                )

    def test_a_deep_recursion_keeps_its_innermost_calls(self) -> None:
        for version, python in interpreters():
            with self.subTest(version=version):
                deepest = max(
                    self.python_only(stack).count(place("deep", "deep"))
                    for stack in self.stacks(python, "prof_unwind:tables")
                )
                self.assertEqual(deepest, 41)

    def test_without_the_stack_of_c_they_are_there_all_the_same(self) -> None:
        for version, python in interpreters():
            with self.subTest(version=version):
                found = [self.python_only(stack) for stack in self.stacks(python, "prof_unwind:frame_pointer")]
                self.assertIn(
                    [place("<module>", "module"), place("outer", "outer.fill"), place("Store.fill", "fill")], found
                )

    def test_pprof_names_functions_and_files_itself(self) -> None:
        for version, python in interpreters():
            with self.subTest(version=version):
                named = profiles.read_pprof(self.profile(python, "prof_format:pprof")).calls
                self.assertIn(("Store.fill", str(PROGRAM), LINES["fill"]), named)
                self.assertIn(("größe", str(PROGRAM), LINES["größe"]), named)


if __name__ == "__main__":
    harness.main()
