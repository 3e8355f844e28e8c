"""No deadlock and no crash while all that takes the loader's, the unwinder's or the profiler's locks happens at once.

Each storm lasts until every kind of trouble came a few times, and for FREESTONE_STORM_SECONDS at least (1; the long
mode is 600).
"""

import os
import signal

from sampling import profiles
from support import harness

SECONDS = int(os.environ.get("FREESTONE_STORM_SECONDS", "1"))
SIGNALS = f"prof_signal:{int(signal.SIGUSR2)},prof_toggle_signal:{int(signal.SIGUSR1)}"


class Storm(harness.FreestoneTest):
    def rage(self, conf: str) -> None:
        path = self.folder / "p"
        done = harness.run(
            [harness.PROBES / "storm_probe", str(SECONDS), str(harness.PROBES / "storm_guest.so")],
            conf=f"prof:true,{SIGNALS},prof_file:{path},{conf}",
            timeout=SECONDS + harness.HANG_SECONDS,
        )
        self.assertEqual((done.status, done.err), (0, ""), done.err[-2000:])
        print(conf, dict(line.split() for line in done.out.splitlines()))
        if "collapsed" not in conf:
            self.assertGreater(profiles.read_pprof(path).total("alloc_objects"), 0)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["p"], "unfinished files stay behind")

    def test_with_tables(self) -> None:
        self.rage("prof_sample_bytes:65536")

    def test_with_frame_pointers_with_every_block_tracked_and_symbols_read_and_with_guards(self) -> None:
        self.rage("prof_sample_bytes:65536,prof_unwind:frame_pointer")
        self.rage("prof_sample_bytes:1000,prof_format:collapsed")
        self.rage("prof_sample_bytes:65536,guard_sample:20000,guard_slots:256")


if __name__ == "__main__":
    harness.main()
