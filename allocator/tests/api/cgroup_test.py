"""Limits as shares of a control group's memory, and the reaction to its pressure.

Some tests make up a group's files; others run in a real group.
"""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from support import harness

PROBE = harness.PROBES / "api_probe"
MIB = 1 << 20


def figures(conf: str, *command: str) -> dict[str, int]:
    """The figures at the exit of the probe."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.json"
        done = harness.run([PROBE, *command], conf=f"{conf},stats_file:{path}")
        assert (done.status, done.err) == (0, ""), done
        result: dict[str, int] = json.loads(path.read_text())["figures"]
        return result


def make_real_group(limit: int) -> Path | None:
    """A new memory group with a limit, or None where this machine does not allow it."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    for mount, group, file in (
        (Path("/sys/fs/cgroup/memory"), own.get("memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), own.get(""), "memory.max"),
    ):
        if group is None:
            continue
        for parent in (mount / group.lstrip("/"), mount):
            folder = parent / f"freestone-test-{os.getpid()}"
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                (folder / file).write_text(str(limit))
                if (swap := folder / "memory.swap.max").exists():
                    swap.write_text("0")
                elif len(Path("/proc/swaps").read_text().splitlines()) > 1:
                    raise OSError("what is above the limit would be swapped out")
                return folder
            except OSError:
                folder.rmdir()
    return None


class MadeUpGroup(harness.FreestoneTest):
    def put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def test_a_percentage_is_of_the_groups_limit(self) -> None:
        self.put("memory.max", f"{100 * MIB}\n")
        conf = f"cgroup:{self.folder},limit_hard:50%,limit_soft:25%"
        s = figures(conf, "fill", "200")
        self.assertAlmostEqual(s["limit_hard_bytes"], 50 * MIB, delta=100)
        self.assertAlmostEqual(s["limit_soft_bytes"], 25 * MIB, delta=100)
        self.assertLessEqual(s["peak_bytes"], 50 * MIB)
        self.assertGreater(s["failed_allocations"], 0)

    def test_half_is_of_version_ones_limit_or_without_one_of_the_machine(self) -> None:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for name, text, half, delta in (
            ("memory.limit_in_bytes", f"{80 * MIB}\n", 40 * MIB, 100),
            ("memory.max", "max\n", total / 2, total / 50),
        ):
            self.put(name, text)
            found = figures(f"cgroup:{self.folder},limit_hard:50%", "fill", "1")["limit_hard_bytes"]
            self.assertAlmostEqual(found, half, delta=delta)
            (self.folder / name).unlink()

    def test_nearing_memory_high_gives_back_with_the_option_alone(self) -> None:
        self.put("memory.high", f"{100 * MIB}\n")
        for current, option, reacts in ((99, ",pressure:true", True), (50, ",pressure:true", False), (100, "", False)):
            self.put("memory.current", f"{current * MIB}\n")
            found = figures(f"cgroup:{self.folder}{option}", "churn", "600")
            self.assertEqual(found["pressure_reactions"] > 0, reacts, (current, option))

    def test_stalls_give_back(self) -> None:
        self.put("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
        assert harness.LIBRARY is not None
        path = self.folder / "s.json"
        conf = f"cgroup:{self.folder},pressure:true,stats_file:{path}"
        environment = harness.environment([harness.LIBRARY], {"FREESTONE_CONF": conf})
        running = subprocess.Popen([str(PROBE), "churn", "1500"], env=environment)
        stall = 0
        while running.poll() is None:
            stall += 50_000
            self.put("draft", f"some avg10=9.00 avg60=0.00 avg300=0.00 total={stall}\n")
            (self.folder / "draft").replace(self.folder / "memory.pressure")
            time.sleep(0.05)
        self.assertGreater(json.loads(path.read_text())["figures"]["pressure_reactions"], 0)

    def test_limits_that_contradict_each_other_are_one_line(self) -> None:
        done = harness.run([PROBE, "fill", "1"], conf="limit_soft:2g,limit_hard:1g")
        self.assertEqual(done.status, 0)
        self.assertEqual(len(done.err.splitlines()), 1, done.err)
        self.assertIn("limit_soft", done.err)


class RealGroup(harness.FreestoneTest):
    """A program that would be killed at its group's limit is refused memory instead."""

    def test_a_share_of_the_limit_keeps_the_program_alive(self) -> None:
        folder = make_real_group(128 * MIB)
        if folder is None:
            self.skipTest("no memory group can be made here")
        assert harness.LIBRARY is not None
        try:
            without = self.fill_in(folder, "")
            self.assertIsNone(without, "without a limit the kernel ends it: the test would prove nothing")
            got = self.fill_in(folder, "limit_hard:80%")
            assert got is not None, "the program was killed"
            # The hardened build also charges for the guards between blocks.
            self.assertTrue((40 if harness.IS_HARDENED else 85) <= got <= 103, f"{got} MiB of 102")
        finally:
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)

    @staticmethod
    def fill_in(folder: Path, conf: str) -> int | None:
        """The MiB that the probe got in the group; None when it was killed."""
        assert harness.LIBRARY is not None
        settings = f'LD_PRELOAD="{harness.LIBRARY}" FREESTONE_CONF="{conf}"'
        script = f"echo $$ > {folder}/cgroup.procs && exec env {settings} {PROBE} fill 400"
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
        return int(done.stdout) if done.returncode == 0 else None


if __name__ == "__main__":
    harness.main()
