"""Redis is built for jemalloc: preloaded with Freestone it asks mallctl, and gets this heap's figures."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
import unittest
from pathlib import Path

from support import harness

SERVER = shutil.which("redis-server")


class Client:
    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")

    def ask(self, *words: str) -> str:
        self.socket.sendall(
            b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words)])
        )
        line = self.file.readline()
        if line[:1] == b"$":
            return self.file.read(int(line[1:]) + 2)[:-2].decode()
        return line.strip().decode()

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@unittest.skipUnless(SERVER, "redis-server is not installed")
class Redis(harness.FreestoneTest):
    def setUp(self) -> None:
        super().setUp()
        path = self.folder / "socket"
        assert harness.LIBRARY is not None and SERVER is not None
        command = [SERVER, "--port", "0", "--unixsocket", str(path), "--save", "", "--daemonize", "no"]
        environment = harness.environment([harness.LIBRARY])
        self.server = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=subprocess.DEVNULL)
        self.addCleanup(self.stop)
        while not path.exists():
            self.assertIsNone(self.server.poll(), "it ended before it listened")
            time.sleep(0.05)
        self.client = Client(path)
        self.addCleanup(self.client.close)
        if "jemalloc" not in self.client.ask("INFO", "memory"):
            self.skipTest("this Redis was not built for jemalloc")

    def stop(self) -> None:
        self.server.terminate()
        self.server.wait()

    def memory(self, least: int = 0) -> dict[str, int]:
        """What Redis says of its memory, once that is so much: it looks at its allocator ten times a second."""
        while (found := self.figures())["allocator_allocated"] < least:
            time.sleep(0.05)
        return found

    def figures(self) -> dict[str, int]:
        return {
            m[1]: int(m[2]) for m in re.finditer(r"^(\w+):(\d+)\r?$", self.client.ask("INFO", "memory"), re.MULTILINE)
        }

    def test_info_memory_shows_this_heap(self) -> None:
        before = self.memory()
        for i in range(2000):
            self.client.ask("SET", f"key{i}", "x" * 5000)
        after = self.memory(before["allocator_allocated"] + 2000 * 5000)
        grown = after["allocator_allocated"] - before["allocator_allocated"]
        self.assertGreater(grown, 2000 * 5000)
        self.assertLess(grown, 2000 * 5000 * 1.3 + (1 << 20))
        self.assertGreaterEqual(after["allocator_active"], after["allocator_allocated"])
        self.assertGreaterEqual(after["allocator_resident"], after["allocator_active"])

    def test_purge_and_statistics_are_answered(self) -> None:
        for i in range(2000):
            self.client.ask("SET", f"key{i}", "x" * 20000)
        self.client.ask("FLUSHALL")
        self.assertEqual(self.client.ask("MEMORY", "PURGE"), "+OK")
        self.assertIn("live: handed out and not yet freed", self.client.ask("MEMORY", "MALLOC-STATS"))
        self.assertIn(self.client.ask("CONFIG", "SET", "jemalloc-bg-thread", "yes"), ("+OK",))


if __name__ == "__main__":
    harness.main()
