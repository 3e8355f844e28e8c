"""The handlers of our signals do with an alternate stack of 8 KiB, or what the kernel needs and 2 KiB more."""

import signal
import tempfile
import unittest
from pathlib import Path

from support import harness

STATISTICS = ("txt", "om", "prom", "json", "xml", "log")
PROFILES = ("pprof", "collapsed", "heap_v2")


class SmallStack(unittest.TestCase):
    def setUp(self) -> None:
        harness.require_freestone("its own signals")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def raise_on_small_stacks(self, number: int, conf: str, written: str) -> None:
        for size in (8192, 0):
            for file in self.folder.iterdir():
                file.unlink()
            command = [harness.PROBES / "small_stack_probe", str(number), str(size)]
            done = harness.run(command, extra={"FREESTONE_CONF": conf})
            if done.status == harness.SKIPPED:
                continue
            self.assertEqual(done.status, 0, (conf, size, done.out, done.err))
            if written:
                files = [file for file in self.folder.glob(written) if file.stat().st_size > 0]
                self.assertTrue(files, (conf, size))

    def test_statistics_are_written(self) -> None:
        for ending in STATISTICS:
            conf = f"stats_signal:{signal.SIGUSR1},stats_file:{self.folder}/statistics.{ending}"
            self.raise_on_small_stacks(signal.SIGUSR1, conf, f"statistics.{ending}")

    def test_profiles_are_written(self) -> None:
        for form in PROFILES:
            conf = (
                f"prof:true,prof_signal:{signal.SIGUSR2},prof_format:{form},prof_sample_bytes:500,prof_final:false,"
                f"prof_file:{self.folder}/profile.%n"
            )
            self.raise_on_small_stacks(signal.SIGUSR2, conf, "profile.*")

    def test_sampling_is_switched(self) -> None:
        conf = f"prof:true,prof_toggle_signal:{signal.SIGHUP},prof_sample_bytes:500,prof_final:false"
        self.raise_on_small_stacks(signal.SIGHUP, conf, "")


if __name__ == "__main__":
    harness.main()
