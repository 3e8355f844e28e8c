"""Python's calls among the frames of C: the right functions and lines, in the right order, for each CPython here."""

import re
import subprocess
import sys
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
    found = [Path(sys.executable), *(p for pattern in PATTERNS for p in sorted(Path("/").glob(pattern.lstrip("/"))))]
    code = (
        "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], "
        "sysconfig.get_config_var('Py_GIL_DISABLED') or 0, sys.implementation.name)"
    )
    for path in found:
        words = subprocess.run([path, "-I", "-S", "-c", code], capture_output=True, text=True, check=False).stdout
        version, *rest = words.split() or [""]
        if version in VERSIONS and rest == ["0", "cpython"]:
            known.setdefault(version, path)
    return tuple(known.items())


def place(function: str, line: str) -> str:
    return f"{function} ({PROGRAM}:{LINES[line]})"


def python_only(stack: list[str]) -> list[str]:
    return [f for f in stack if str(PROGRAM) in f and "<listcomp>" not in f and "<genexpr>" not in f]


class PythonFrames(harness.FreestoneTest):
    def profile(self, python: Path, conf: str) -> Path:
        path = self.folder / "profile"
        extra = {"PYTHONMALLOC": "malloc", "FREESTONE_CONF": f"{EVERY},{conf},prof_file:{path}"}
        done = harness.run([python, "-I", "-S", PROGRAM], extra=extra)
        self.assertEqual((done.status, done.err), (0, ""), done)
        return path

    def stacks(self, python: Path, conf: str) -> list[list[str]]:
        """The stacks that this program is in, outermost call first."""
        lines = self.profile(python, f"prof_format:collapsed,{conf}").read_text().splitlines()
        return [line.rpartition(" ")[0].split(";") for line in lines if str(PROGRAM) in line]

    def test_each_interpreter_shows_functions_and_lines(self) -> None:
        for version, python in interpreters():
            with self.subTest(version=version):
                by_tables = self.stacks(python, "prof_unwind:tables")
                self.expect_every_path_through_the_interpreter(by_tables)
                self.expect_them_between_the_evaluator_and_what_it_called(by_tables)
                deep = place("deep", "deep")
                self.assertEqual(max(stack.count(deep) for stack in by_tables), 41, "the innermost calls are kept")
                # Without the stack of C they are there all the same.
                wanted = [place("<module>", "module"), place("outer", "outer.fill"), place("Store.fill", "fill")]
                self.assertIn(wanted, map(python_only, self.stacks(python, "prof_unwind:frame_pointer")))
                # pprof names functions and files itself.
                named = profiles.read_pprof(self.profile(python, "prof_format:pprof")).calls
                for function, line in (("Store.fill", "fill"), ("größe", "größe")):
                    self.assertIn((function, str(PROGRAM), LINES[line]), named)

    def expect_every_path_through_the_interpreter(self, stacks: list[list[str]]) -> None:
        found = [python_only(stack) for stack in stacks]
        for function in ("Store.fill", "by_c", "generated", "größe"):
            line = function.rpartition(".")[2]
            outer = [place("<module>", "module"), place("outer", f"outer.{line}")]
            self.assertIn([*outer, place(function, line)], found)
        self.assertTrue(any("<lambda>" in frame for stack in stacks for frame in stack), "the thread's own function")

    def expect_them_between_the_evaluator_and_what_it_called(self, stacks: list[list[str]]) -> None:
        by_c = place("by_c", "by_c")
        stack = next(stack for stack in stacks if stack[-1] != by_c and by_c in stack)
        evaluators = [k for k, frame in enumerate(stack) if "_PyEval_EvalFrameDefault" in frame]
        module, inner = stack.index(place("<module>", "module")), stack.index(by_c)
        self.assertEqual((module - 1 in evaluators, inner - 1 in evaluators), (True, True), stack)
        self.assertIn("main", " ".join(stack[: evaluators[0]]).lower(), "C that runs the program")
        between = stack[stack.index(place("outer", "outer.by_c")) + 1 : inner - 1]
        self.assertTrue(between, "sorted() calls back through C")
        self.assertEqual([frame for frame in between if str(PROGRAM) in frame], [])


if __name__ == "__main__":
    harness.main()
