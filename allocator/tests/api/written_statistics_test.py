"""Statistics that the library writes by itself: at exit, to a file, at intervals, on a signal, and on the live page."""

import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from support import harness

PROBE = harness.PROBES / "api_probe"
HEADER = struct.Struct("<8sIIQ")
SAMPLE = re.compile(r'^freestone_(\w+)\{pid="(\d+)",program="([^"]*)"(?:,(\w+)="([^"]*)")?\} (\d+(?:\.\d+)?)$')


def start(conf: str, *command: str) -> subprocess.Popen[str]:
    assert harness.LIBRARY is not None
    return subprocess.Popen(
        [str(PROBE), *command],
        env=harness.environment([harness.LIBRARY], {"FREESTONE_CONF": conf}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, running: subprocess.Popen[str]) -> bool:  # type: ignore[no-untyped-def]
    """Whether the condition comes true while the program runs, or at its end."""
    while running.poll() is None:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def page_of(pid: int) -> tuple[int, dict[str, object]]:
    """The sequence number and the JSON of a process's live page, read as the header says."""
    for _ in range(100):
        raw = Path(f"/dev/shm/freestone-{pid}").read_bytes()
        magic, sequence, length, _updated = HEADER.unpack_from(raw)
        again = HEADER.unpack_from(Path(f"/dev/shm/freestone-{pid}").read_bytes())[1]
        if magic == b"FREESTN1" and sequence % 2 == 0 and sequence == again:
            return sequence, json.loads(raw[64 : 64 + length])
    raise AssertionError("the live page never stood still")


class Reports(harness.FreestoneTest):
    def run_probe(self, conf: str, milliseconds: int = 50) -> harness.Finished:
        done = harness.run([PROBE, "churn", str(milliseconds)], conf=conf)
        self.assertEqual(done.status, 0, done)
        return done

    def report(self, name: str) -> str:
        """The text of a file that is written at the end."""
        path = self.folder / name
        self.run_probe(f"stats_file:{path}")
        return path.read_text()

    def ready(self, conf: str, mebibytes: int) -> subprocess.Popen[str]:
        """A running program that holds so much and waits."""
        running = start(conf, "hold", str(mebibytes))
        assert running.stdout is not None
        self.assertEqual(running.stdout.readline(), "ready\n")
        return running

    def metrics(self, text: str) -> dict[tuple[str, str], float]:
        """The samples of an OpenMetrics text by family and extra label; every line is checked against the format."""
        lines = text.split("\n")
        self.assertEqual(lines[-2:], ["# EOF", ""])
        types: dict[str, str] = {}
        samples: dict[tuple[str, str], float] = {}
        for line in lines[:-2]:
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:4]
                self.assertIn(kind, ("gauge", "counter"))
                self.assertNotIn(name, types, "a family is described once")
                types[name] = kind
            elif line.startswith(("# HELP ", "# UNIT ")):
                self.assertIn(line.split()[2], types)
            else:
                match = SAMPLE.match(line)
                self.assertIsNotNone(match, line)
                assert match is not None
                name = "freestone_" + match[1]
                family = name.removesuffix("_total") if name.removesuffix("_total") in types else name
                self.assertIn(family, types, line)
                self.assertEqual(types[family] == "counter", name.endswith("_total"), line)
                self.assertNotIn((match[1], match[5] or ""), samples, "a sample is given once")
                samples[match[1], match[5] or ""] = float(match[6])
        return samples

    def test_stats_print_ends_with_the_table_which_adds_up(self) -> None:
        text = self.run_probe("stats_print:true").err
        self.assertIn("live: handed out and not yet freed", text)
        self.assertIn("size classes in use", text)
        rows = re.findall(r"^([ +=]) +(\d+) \(", text, re.MULTILINE)[:9]
        *parts, charged, clean, accessible = (int(number) for _, number in rows)
        self.assertEqual([sign for sign, _ in rows], [" ", "+", "+", "+", "+", "+", "=", "+", "="])
        self.assertEqual((sum(parts), charged + clean), (charged, accessible))
        self.assertEqual(self.run_probe("stats_print:false").err, "")

    def test_malloc_info_is_well_formed(self) -> None:
        script = "import ctypes; c = ctypes.CDLL(None); c.malloc_info(0, ctypes.c_void_p.in_dll(c, 'stdout'))"
        root = ElementTree.fromstring(harness.run(["/usr/bin/python3", "-I", "-c", script]).out)
        self.assertEqual((root.tag, "version" in root.attrib), ("malloc", True))

    def test_only_the_owner_may_read_what_holds_addresses(self) -> None:
        self.addCleanup(os.umask, os.umask(0o022))
        reports = {"stats_file:{}": 0o644, "prof:true,prof_file:{}": 0o600, "leak:exact,leak_file:{}": 0o600}
        for conf, rights in reports.items():
            path = self.folder / "report"
            self.run_probe(conf.format(path))
            self.assertEqual(path.stat().st_mode & 0o777, rights, conf)
            path.unlink()

    def test_a_device_is_written_into_and_stays_a_device(self) -> None:
        null = self.folder / "null"
        try:
            os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            null.write_text("x")
        except OSError:
            self.skipTest("devices cannot be made here")
        for conf in ("stats_file:{}", "prof:true,prof_file:{}"):
            self.assertEqual(self.run_probe(conf.format(null)).err, "")
            self.assertEqual([p.name for p in self.folder.iterdir()], ["null"])
            self.assertTrue(stat.S_ISCHR(null.stat().st_mode), conf)

    def test_the_file_is_written_at_exit_in_the_format_of_its_ending(self) -> None:
        for ending, check in (
            ("om", lambda text: self.metrics(text)),
            ("json", lambda text: json.loads(text)["figures"]["live_bytes"]),
            ("xml", lambda text: ElementTree.fromstring(text)),
            ("log", lambda text: self.assertIn("live: handed out", text)),
        ):
            check(self.report(f"at-exit.{ending}"))
            self.assertEqual(list(self.folder.glob("*.new")), [], "no draft is left")

    def test_the_process_stands_in_the_name(self) -> None:
        running = start(f"stats_file:{self.folder}/s-%p.om,stats_interval_ms:20", "churn", "300")
        running.communicate()
        path = self.folder / f"s-{running.pid}.om"
        samples = self.metrics(path.read_text())
        self.assertGreater(samples["committed_bytes", ""], 0)
        self.assertIn(("system_calls_total", "mmap"), samples)
        self.assertTrue([name for name, size in samples if name == "class_live_bytes"])

    def test_the_child_of_a_fork_does_not_write_over_its_parents_file(self) -> None:
        for name, of_child in (
            ("both.om", "both-{}.om"),
            ("plain", "plain-{}"),
            ("with.dot.json", "with.dot-{}.json"),
            ("named-%p.om", "named-{}.om"),
        ):
            running = start(f"stats_file:{self.folder}/{name}", "fork", "5")
            child = running.communicate()[0].strip()
            self.assertEqual(running.returncode, 0)
            own = self.folder / name.replace("%p", str(running.pid))
            self.assertTrue(own.exists(), own)
            self.assertIn(of_child.format(child), [path.name for path in self.folder.iterdir()])

    def test_openmetrics_agree_with_themselves(self) -> None:
        s = {name: value for (name, label), value in self.metrics(self.report("m.om")).items() if not label}
        parts = ("live", "thread_cached", "run_cached", "slab_free", "dirty", "clean")
        self.assertEqual(sum(s[f"{part}_bytes"] for part in parts), s["committed_bytes"] + s["mapped_bytes"])
        self.assertAlmostEqual(s["fragmentation_ratio"], 1 - s["live_bytes"] / s["charged_bytes"], delta=0.0011)

    def test_the_text_format_of_prometheus_explains_and_types_every_sample(self) -> None:
        text = self.report("m.prom")
        families: dict[str, set[str]] = {"HELP": set(), "TYPE": set()}
        for line in text.splitlines():
            words = line.split()
            if words[0] == "#":
                families[words[1]].add(words[2])
                if words[1] == "TYPE":
                    self.assertEqual(words[3] == "counter", words[2].endswith("_total"), line)
            else:
                name = line.partition("{")[0]
                self.assertTrue(name in families["HELP"] and name in families["TYPE"], line)
        if shutil.which("promtool"):
            check = ["promtool", "check", "metrics"]
            done = subprocess.run(check, input=text, capture_output=True, text=True, check=False)
            promised = ("purge_cost_ns", "worked_ms")  # by docs/STABILITY.md, which keeps the names of 1.0
            ours = [f"freestone_{n}_total metric names should not contain abbreviated units" for n in promised]
            self.assertEqual((done.stdout, sorted(done.stderr.splitlines())), ("", ours))

    def test_the_interval_renews_the_file_while_the_program_allocates(self) -> None:
        path = self.folder / "i.json"
        running = start(f"stats_file:{path},stats_interval_ms:30", "churn", "2000")
        self.assertTrue(wait_for(path.exists, running))
        seen = set()

        def renewed() -> bool:
            seen.add(json.loads(path.read_text())["time_ms"])
            return len(seen) >= 4

        self.assertTrue(wait_for(renewed, running), f"only {len(seen)} versions")
        running.communicate()

    def test_without_an_interval_nothing_is_written_before_the_end_and_without_the_option_there_is_no_page(
        self,
    ) -> None:
        path = self.folder / "n.json"
        running = self.ready(f"stats_file:{path}", 1)
        self.assertFalse(path.exists())
        self.assertFalse(Path(f"/dev/shm/freestone-{running.pid}").exists())
        running.communicate()
        self.assertTrue(path.exists())

    def test_a_signal_writes_statistics_of_an_idle_process(self) -> None:
        path = self.folder / "s.json"
        running = self.ready(f"stats_file:{path},stats_signal:{signal.SIGUSR2.value}", 10)
        running.send_signal(signal.SIGUSR2)
        self.assertTrue(wait_for(path.exists, running))
        self.assertGreaterEqual(json.loads(path.read_text())["figures"]["live_bytes"], 10 << 20)
        running.communicate()
        self.assertEqual(running.returncode, 0)

    def test_a_storm_of_signals_does_no_harm(self) -> None:
        path = self.folder / "storm.json"
        running = self.ready(f"stats_file:{path},stats_signal:{signal.SIGUSR2.value}", 1)
        assert running.stdin is not None
        running.stdin.write(15 * "x")  # it works for 1.5 seconds
        running.stdin.close()
        while running.poll() is None:
            running.send_signal(signal.SIGUSR2)
            time.sleep(0.0005)
        self.assertEqual(running.returncode, 0)
        json.loads(path.read_text())

    def test_an_unwritable_file_is_one_line_and_no_harm(self) -> None:
        for interval in ("", ",stats_interval_ms:10"):
            said = self.run_probe(f"stats_file:/no/such/folder/x.prom{interval}", 200).err
            (line,) = [line for line in said.splitlines() if "freestone" in line]
            self.assertIn("/no/such/folder/x.prom", line)

    def test_the_live_page_shows_a_running_process_and_goes_with_it(self) -> None:
        if not os.access("/dev/shm", os.W_OK):
            self.skipTest("no /dev/shm here")
        running = self.ready("live_page:true", 20)
        assert running.stdin is not None
        page = Path(f"/dev/shm/freestone-{running.pid}")
        self.assertEqual(page.stat().st_mode & 0o777, 0o600)
        first, shown = page_of(running.pid)
        self.assertEqual(shown["pid"], running.pid)
        running.stdin.write("xxxxxxxx")  # it works for 0.8 seconds
        running.stdin.flush()
        self.assertTrue(wait_for(lambda: page_of(running.pid)[0] > first, running), "the page is not renewed")
        self.assertGreaterEqual(page_of(running.pid)[1]["figures"]["live_bytes"], 20 << 20)  # type: ignore[index]
        running.communicate()
        self.assertFalse(page.exists())

    @unittest.skipUnless(len(sys.argv) > 1, "judges seconds: api.live_page_cost")
    def test_the_live_page_costs_little_processor_time(self) -> None:
        def used(conf: str) -> float:
            before = os.times()
            start(conf, "churn", "1500").communicate()
            after = os.times()
            return after.children_user + after.children_system - before.children_user - before.children_system

        with_page, without = used("live_page:true"), used("")
        self.assertLess(with_page - without, 0.15, "more than a tenth of a core")


class ClosedStandardError(harness.FreestoneTest):
    """`ls` and many others close standard error in an exit handler, which runs before the library's."""

    def test_reports_are_printed_and_those_that_cannot_be_written_are_named(self) -> None:
        for conf, said in (
            ("stats_print:true", "live: handed out and not yet freed"),
            ("leak:exact", "freestone: leaks of process"),
            ("prof:true,prof_file:/nowhere/x", "freestone: the profile cannot be written to /nowhere/x"),
            ("leak:exact,leak_file:/nowhere/x", "freestone: the leak report cannot be written to /nowhere/x"),
            ("stats_file:/nowhere/x", "freestone: statistics cannot be written to /nowhere/x"),
            ("stats_file:/tmp", "cannot be written to /tmp; expected a file in a writable folder"),
        ):
            done = harness.run(["/bin/ls", "/"], conf=conf)
            self.assertEqual(done.status, 0, done)
            self.assertIn(said, done.err)

    def test_one_copy_is_kept_open_if_there_is_anything_to_report_and_exec_does_not_inherit_it(self) -> None:
        exec_ls = "import os; os.execve('/bin/ls', ['ls', '/proc/self/fd'], {})"
        for conf, command, kept in (
            ("stats_print:true", ["/bin/ls", "/proc/self/fd"], 1),
            ("confirm:false", ["/bin/ls", "/proc/self/fd"], 0),
            ("stats_print:true", ["/usr/bin/python3", "-I", "-c", exec_ls], 0),
        ):
            done = harness.run(command, conf=conf)
            self.assertEqual(sum(int(number) >= 10 for number in done.out.split()), kept, done)

    def test_a_file_that_took_the_number_is_not_written_to(self) -> None:
        own = self.folder / "own"
        script = (
            "import os\n"
            "kept = [int(n) for n in os.listdir('/proc/self/fd') if int(n) >= 10]\n"
            f"own = os.open({str(own)!r}, os.O_WRONLY | os.O_CREAT)\n"
            "for number in kept: os.dup2(own, number)\n"
            "os.write(1, b'%d' % len(kept))\n"
            "os.close(2)\n"
        )
        done = harness.run(["/usr/bin/python3", "-I", "-c", script], conf="stats_print:true")
        self.assertEqual((done.out, own.read_text()), ("1", ""), done)


if __name__ == "__main__":
    harness.main()
