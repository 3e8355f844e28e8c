"""Lost blocks are found exactly, reachable ones are never named, and an empty report says why it is empty."""

import json
import tempfile
from pathlib import Path
from typing import Any

from support import harness


def run(case: str, conf: str) -> tuple[harness.Finished, dict[str, Any]]:
    """The run that reports to standard error, and the report of another that writes a file."""
    done = harness.run([harness.PROBES / "leak_probe", case], conf=conf)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "leaks.json"
        other = harness.run([harness.PROBES / "leak_probe", case], conf=f"{conf},leak_file:{path}")
        assert (other.status, other.out, other.err) == (done.status, done.out, ""), other
        return done, json.loads(path.read_text())


def sites(report: dict[str, Any]) -> list[tuple[int, int]]:
    return sorted((site["blocks"], site["bytes"]) for site in report["sites"])


class Exact(harness.FreestoneTest):
    def test_every_lost_block_is_named_with_its_place_and_no_other(self) -> None:
        # A circle and a chain are lost as a whole.
        lost = [(1, 72), (1, 72), (1, 300000), (1, 50 << 20), (3, 90000), (5, 3500), (7, 861), (10, 400)]
        for case, places in (("lost", lost), ("outlived", [(7, 861)]), ("reachable", []), ("freed", [])):
            done, report = run(case, "leak:exact")
            self.assertEqual((done.status, sites(report)), (0, places), (case, done.err))
            if case == "lost":
                self.assertIn("freestone: leaks of process", done.err)
                self.assertIn(" lose_chain+0x", done.err)
                self.assertIn("7", [line.split()[3] for line in done.err.splitlines() if " 861 bytes in " in line])
            if case == "outlived":  # after the end of the first thread the report is the same
                self.assertIn("libc", str(report["mappings"]))
            if case == "reachable":
                self.assertIn("every live block is reachable", done.err)
                self.assertEqual(report["reason"], "every live block is reachable")
                self.assertGreaterEqual(report["reachable"]["blocks"], 109)

    def test_lost_among_reachable(self) -> None:
        _, report = run("all", "leak:exact")
        self.assertEqual(
            report["lost"], {"blocks": 29, "bytes": 7 * 123 + 90000 + 300000 + (50 << 20) + 144 + 400 + 3500}
        )

    def test_no_search_waits_for_threads_that_end(self) -> None:
        conf = "prof:true,prof_final:off,leak_file:/dev/null"
        done = harness.run([harness.PROBES / "leak_probe", "ending"], conf=conf)
        self.assertEqual((done.status, done.out), (0, "slow searches: 0\n"), done.err)

    def test_the_exit_status_is_for_ci_and_output_is_not_lost(self) -> None:
        for case, status in (("lost", 23), ("reachable", 0)):
            done, _ = run(case, "leak:exact,leak_error:23")
            self.assertEqual((done.status, done.out), (status, "text that exit must still write\n"))

    def test_off_by_default(self) -> None:
        done = harness.run([harness.PROBES / "leak_probe", "lost"])
        self.assertEqual((done.status, done.err), (0, ""))

    def test_real_programs_run_and_are_clean_of_false_reports(self) -> None:
        code = "import json;print(len(json.dumps([{'a':i,'b':[i]*3} for i in range(300)])))"
        python = ["/usr/bin/python3", "-I", "-c", code]
        done = harness.run(python, conf="leak:exact", extra={"PYTHONMALLOC": "malloc"})
        self.assertEqual(done.status, 0)
        self.assertIn("leaks of process", done.err)


class Sampled(harness.FreestoneTest):
    def test_estimates_what_is_lost(self) -> None:
        done, report = run("many", "leak:report,prof_sample_bytes:65536")
        self.assertEqual(done.status, 0)
        # 10 MB lost, sampled every 64 KiB: 153 samples, a standard error of 8 %.
        self.assertAlmostEqual(report["lost"]["bytes"], 10_000_000, delta=10_000_000 * 0.4)
        self.assertAlmostEqual(report["reachable"]["bytes"], 10_000_000, delta=10_000_000 * 0.4)
        self.assertEqual(report["mode"], "sampled")
        self.assertIn("about ", done.err)

    def test_an_empty_report_says_why(self) -> None:
        done, report = run("freed", "leak:report,prof_sample_bytes:1g")
        self.assertIn("none found: nothing was sampled (mean 1073741824 bytes between samples, 0 samples)", done.err)
        self.assertIn("nothing was sampled", report["reason"])


if __name__ == "__main__":
    harness.main()
