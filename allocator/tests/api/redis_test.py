"""Redis is built for jemalloc: preloaded with Freestone it asks mallctl, and gets this heap's figures."""

import re
import shutil
import subprocess
import time
import unittest

from support import harness

SERVER = shutil.which("redis-server") if shutil.which("redis-cli") else None


@unittest.skipUnless(SERVER, "redis-server and redis-cli are not installed")
class Redis(harness.FreestoneTest):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "socket"
        assert harness.LIBRARY is not None and SERVER is not None
        command = [SERVER, "--port", "0", "--unixsocket", str(self.path), "--save", "", "--daemonize", "no"]
        environment = harness.environment([harness.LIBRARY])
        self.server = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=subprocess.DEVNULL)
        self.addCleanup(self.stop)
        while not self.path.exists():
            self.assertIsNone(self.server.poll(), "it ended before it listened")
            time.sleep(0.05)
        if "jemalloc" not in self.ask("INFO", "memory"):
            self.skipTest("this Redis was not built for jemalloc")

    def stop(self) -> None:
        self.server.terminate()
        self.server.wait()

    def ask(self, *words: str) -> str:
        command = ["redis-cli", "-s", str(self.path), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def fill(self, value_bytes: int) -> None:
        """2,000 values of this length."""
        self.ask("EVAL", "for i = 1, 2000 do redis.call('set', i, string.rep('x', ARGV[1])) end", "0", str(value_bytes))

    def memory(self, least: int = 0) -> dict[str, int]:
        """What Redis says of its memory, once that is so much: it looks at its allocator ten times a second."""
        while True:
            lines = re.findall(r"^(\w+):(\d+)\r?$", self.ask("INFO", "memory"), re.MULTILINE)
            found = {name: int(value) for name, value in lines}
            if found["allocator_allocated"] >= least:
                return found
            time.sleep(0.05)

    def test_info_memory_shows_this_heap(self) -> None:
        before = self.memory()
        self.fill(5000)
        after = self.memory(before["allocator_allocated"] + 2000 * 5000)
        grown = after["allocator_allocated"] - before["allocator_allocated"]
        self.assertGreater(grown, 2000 * 5000)
        self.assertLess(grown, 2000 * 5000 * 1.3 + (1 << 20))
        self.assertGreaterEqual(after["allocator_active"], after["allocator_allocated"])
        self.assertGreaterEqual(after["allocator_resident"], after["allocator_active"])

    def test_purge_and_statistics_are_answered(self) -> None:
        self.fill(20000)
        self.ask("FLUSHALL")
        self.assertEqual(self.ask("MEMORY", "PURGE"), "OK")
        self.assertIn("live: handed out and not yet freed", self.ask("MEMORY", "MALLOC-STATS"))
        self.assertEqual(self.ask("CONFIG", "SET", "jemalloc-bg-thread", "yes"), "OK")


if __name__ == "__main__":
    harness.main()
