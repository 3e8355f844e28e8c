"""The torture run itself: its stand-in refuses what it is told to, and the program notices a broken promise."""

import re
import unittest
from pathlib import Path

from torture.axes import TOLD_APART, Axis, axes, killed, points
from torture.run import PASSED, Row, not_met, play

HERE = Path(__file__).parent


class Notices(unittest.TestCase):
    def outcome(self, rules: str, build: str = "fast") -> str:
        return play(Axis("a", rules), build, 1).outcome

    def test_memory_that_is_said_to_be_zero_and_is_not(self) -> None:
        for build in ("fast", "hardened"):
            self.assertRegex(self.outcome("madvise_dontneed=LIE madvise_guard_install=LIE", build), "not zero|of 0x")

    def test_a_death(self) -> None:
        self.assertIn("stand-in: killed for mmap", self.outcome("mmap=KILL"))

    def test_a_rule_that_cannot_be_read(self) -> None:
        for rule in ("nonsense=EPERM", "mmap=EWHAT", "mmap", "mmap=EPERM!3"):
            self.assertIn("stand-in: cannot read the rule", self.outcome(rule))


class Axes(unittest.TestCase):
    def test_a_rule_refuses_its_calls_and_no_others(self) -> None:
        self.assertEqual(play(Axis("peace"), "fast", 1).refused, {})
        row = play(Axis("a", "madvise_dontneed=EINVAL"), "fast", 1)
        self.assertEqual((row.outcome, list(row.refused)), (PASSED, ["madvise_dontneed"]))

    def test_a_call_that_is_never_refused_is_named(self) -> None:
        row = Row("a", "fast", PASSED, 1.0, {point.name: 1 for point in points() if point.name != "lseek"})
        self.assertEqual(not_met([row]), ["lseek"])

    def test_every_call_of_the_source_has_a_row_and_an_axis(self) -> None:
        table = set(re.findall(r"SYS_\w+", (HERE / "points.def").read_text()))
        sources = (HERE.parents[1] / "src").rglob("*.cc")
        made = {call for path in sources for call in re.findall(r"invoke\((SYS_\w+)", path.read_text())}
        self.assertLessEqual({"SYS_mmap", "SYS_lseek"}, made)
        self.assertEqual(table, made)
        names = [axis.name for axis in axes()]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual({point.name for point in points() if point.need != "needed"}, set(names))
        for point in points():
            self.assertEqual(f"{point.name}=KILL" in killed().rules.split(), point.need == "optional")

    def test_the_errors_that_the_source_tells_apart_are_known(self) -> None:
        sources = (HERE.parents[1] / "src").rglob("*.cc")
        told = {
            (path.name, error)
            for path in sources
            for error in re.findall(r"(?:\.error|\bgot|\bdone|\bresult) [=!]= -?(E[A-Z]+)", path.read_text())
        }
        # Two callers of os::populate; the advice that tells what is mapped, and a thread that has ended; map_at makes
        # EEXIST itself; the other two calls are needed.
        populate = {("frames.cc", "EINVAL"), ("region.cc", "EINVAL")}
        self.assertEqual(
            told,
            populate
            | {("os.cc", "ENOMEM"), ("os.cc", "ESRCH"), ("file.cc", "EINTR")}
            | {("region.cc", "EEXIST"), ("mapping.cc", "EEXIST")},
        )
        self.assertEqual(TOLD_APART, {"madvise_populate": ("EINVAL",), "madvise_unknown": ("ENOMEM",)})


if __name__ == "__main__":
    unittest.main()
