"""From a finished run to a sample: failures first, figures only for a run beyond doubt."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Sample, Status
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.measure import load
from freestone_lab.measure import process as measure
from freestone_lab.measure.process import Run
from freestone_lab.measure.samples import PROCESS_SPECS, digest, process_figures, read_workload, significant, thin
from freestone_lab.measure.server import Served

SERIES_POINTS = 120
WORKLOAD_SERIES_POINTS = 160  # as many as a drawing shows
OVERHEAD_POINTS = 700  # its worst points must survive
STEAL_LIMIT = 0.05
SERVER_SPECS = {
    "rss_after": FigureSpec("KiB", "lower", "memory after the load"),
    "rss_idle": FigureSpec("KiB", "lower", "memory after idling"),
}


@dataclass
class Golden:
    """What the program prints and writes under the baseline; empty until known, `usable` while two runs agreed."""

    digests: dict[str, str] = field(default_factory=dict)
    usable: bool = True


@dataclass
class Sampler:
    """Judges the runs of one experiment and gathers what it learns about the figures."""

    task: Task
    plan: Plan
    experiment: Experiment
    baseline: str
    timeout_s: float = 0.0
    golden: Golden = field(default_factory=Golden)
    withheld: list[tuple[Sample, dict[str, float]]] = field(default_factory=list)  # the figures of wrong outputs

    def caveat(self, text: str) -> None:
        if text not in self.experiment.caveats:
            self.experiment.caveats.append(text)

    def served(self, peer: Peer, round_: int, found: Served) -> Sample:
        """The sample of a server under load."""
        for note in found.notes:
            self.caveat(f"under {peer.name}, {note}")
        gauges = {k: significant(v, 3) for k, v in found.run.gauges.items()}
        if found.failure:
            return Sample(peer.name, round_, "failed", found.failure, gauges=gauges)
        if found.mapped is False:
            said = f"{peer.path} was not mapped in every process"
            return Sample(peer.name, round_, "not_loaded", said, gauges=gauges)
        sample = Sample(peer.name, round_, "ok", gauges=gauges)
        figures = {**process_figures(found.run), **found.figures, "wall": found.load_s}
        figures |= {"rss_after": found.after_kib or 0.0, "rss_idle": found.idle_kib or 0.0}
        if requests := figures.get(load.RATE, 0.0) * found.load_s:
            figures[load.PER_REQUEST] = figures["cpu"] / requests
        sample.figures = {n: significant(value) for n, value in figures.items() if value > 0 or "rss_" not in n}
        known = {**load.SPECS, **SERVER_SPECS}
        self.experiment.specs.update({n: known[n] for n in sample.figures if n in known})
        if round_ <= self.plan.series_rounds:
            sample.series["rss"] = thin(found.run.rss_series, SERIES_POINTS)
        return sample

    def outputs(self, scratch: Path, workload: Mapping[str, Any] | None) -> dict[str, str]:
        if workload is not None:
            return {"checksum": str(workload.get("checksum", ""))}
        found = {"stdout": digest(scratch / "stdout")}
        for path in self.task.output_files:
            full = self.task.cwd / path
            written = full.is_file() and full.stat().st_mtime_ns != 0
            found[str(path)] = digest(full) if written else "absent"
        return found

    def age_outputs(self) -> None:
        """Dates earlier outputs to the epoch, so a file that this run did not write counts as absent."""
        for path in self.task.output_files:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self.task.cwd / path, ns=(0, 0))

    def sample(self, peer: Peer, round_: int, run: Run, scratch: Path) -> Sample:
        """Turns a finished run into a sample: failures first, figures only for a run beyond doubt."""
        sample = Sample(peer.name, round_, "ok", gauges={k: significant(v, 3) for k, v in run.gauges.items()})

        def bad(status: Status, detail: str) -> Sample:
            sample.status, sample.detail = status, detail
            return sample

        said = measure.tail(scratch / "stderr")
        if run.timed_out:
            return bad("timeout", f"no end within {self.timeout_s:.3g} s")
        if run.failure:
            return bad("failed", run.failure + (f": {said}" if said else ""))
        workload: dict[str, Any] | None = None
        if self.task.read == "workload":
            workload, problem = read_workload(scratch / "stdout")
            if workload is None:
                return bad("failed", f"exit status {run.exit_status}, {problem}" + (f": {said}" if said else ""))
            sample.counts["failures"] = int(workload.get("failures", 0))
            if run.exit_status == 3 or sample.counts["failures"]:
                return bad("failed", f"{sample.counts['failures']} allocations failed or lost their content")
        if run.exit_status != self.task.expect_exit and not self.task.ignore_failure:
            return bad("failed", f"exit status {run.exit_status}" + (f": {said}" if said else ""))
        owner = workload.get("malloc_owner") if workload else None
        if peer.path and (run.mapped == 0 or (owner and os.path.realpath(owner) != os.path.realpath(peer.path))):
            return bad("not_loaded", f"malloc was served by {owner}" if owner else f"{peer.path} was not mapped")
        wrong = self._wrong_output(scratch, workload)
        if wrong is None and self.task.check:
            wrong = self.task.check(scratch / "stdout", self.task.cwd)
        sample.figures = {name: significant(value) for name, value in process_figures(run).items()}
        if round_ <= self.plan.series_rounds:
            sample.series["rss"] = thin(run.rss_series, SERIES_POINTS)
        if workload:
            self._take_workload(sample, workload)
        if wrong is not None:
            self.withheld.append((sample, sample.figures))
            sample.figures = {}
            return bad("wrong_output", wrong)
        return sample

    def _wrong_output(self, scratch: Path, workload: Mapping[str, Any] | None) -> str | None:
        found = self.outputs(scratch, workload)
        if not self.golden.digests:
            self.golden.digests = found
        differing = [name for name, value in found.items() if self.golden.digests[name] != value]
        return f"{', '.join(differing)}{self.differs}" if differing and self.golden.usable else None

    @property
    def differs(self) -> str:
        """The end of what is said of a run with another output than the baseline's first run."""
        return f" differs from {self.baseline}'s"

    def _take_workload(self, sample: Sample, workload: Mapping[str, Any]) -> None:
        for name, figure in workload.get("figures", {}).items():
            if name in sample.figures:
                sample.figures[f"process_{name}"] = sample.figures[name]
                self.experiment.specs.setdefault(f"process_{name}", PROCESS_SPECS[name])
            if figure.get("value") is None:
                continue
            sample.figures[name] = significant(float(figure["value"]))
            sample.counts[name] = int(figure.get("samples", 0))
            self.experiment.specs[name] = FigureSpec(figure["unit"], figure["better"], figure.get("label", ""))
        for name, series in workload.get("series", {}).items():
            if sample.round <= self.plan.series_rounds:
                most = OVERHEAD_POINTS if "overhead" in name else WORKLOAD_SERIES_POINTS
                sample.series[name] = [[significant(x) for x in point] for point in thin(series, most)]
        for text in workload.get("caveats", []):
            self.caveat(text)

    def closing_caveats(self) -> None:
        """After all rounds: what a reader of the figures must know."""
        samples = [s for s in self.experiment.samples if s.round > 0]
        stolen = sum(s.gauges.get("steal", 0) > STEAL_LIMIT for s in samples)
        if stolen:
            self.caveat(f"in {stolen} of {len(samples)} runs the host took more than {STEAL_LIMIT:.0%} of the CPU time")
        rounds = max((s.round for s in samples), default=0)
        if 0 < rounds < LEAST_ROUNDS:
            counted = "1 round is" if rounds == 1 else f"{rounds} rounds are"
            self.caveat(f"{counted} too few for a verdict; {LEAST_ROUNDS} are the least")
