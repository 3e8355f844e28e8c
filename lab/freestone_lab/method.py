"""The experiment engine: rounds of fresh processes in random order, a control, proof first, and when to stop.

A round runs every peer once, in a seeded random order, the baseline twice under two names (the A/A control). Round 0
warms the file cache, proves who serves malloc, and learns the program's true output; its good samples are discarded.
Comparisons are made within rounds (`compare.py`), so a slow drift of the machine cancels out.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from freestone_lab import counts, measure, proof
from freestone_lab.compare import control_name, estimate
from freestone_lab.errors import UserError
from freestone_lab.measure import Placement, Run
from freestone_lab.model import Experiment, FigureSpec, Peer, Sample, Status
from freestone_lab.samples import PROCESS_SPECS, digest, process_figures, read_workload, significant, thin

PADDING = "FREESTONE_PADDING"
PADDING_LIMIT = 4096
STEAL_LIMIT = 0.05
SERIES_ROUNDS = 3  # the memory curve of this many rounds is kept
SERIES_POINTS = 120
WORKLOAD_SERIES_POINTS = 160  # as many as a drawing shows
OVERHEAD_POINTS = 700  # its worst points must survive
WARM_UP_TIMEOUT_S = 600.0
LEAST_ROUNDS = 6  # with fewer pairs no signed-rank test can reach 5 %

Check = Callable[[Path, Path], str | None]


@dataclass(frozen=True)
class Task:
    """One program with fixed input. `read` says whether stdout is output to be compared or a workload's JSON.

    `check` gets the stdout file and the working folder, and returns what is wrong with them, or None.
    """

    id: str
    workload: str
    argv: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path()
    stdin: Path | None = None
    output_files: tuple[Path, ...] = ()
    expect_exit: int = 0
    timeout_s: float | None = None
    linger_ms: int = 0
    read: Literal["output", "workload"] = "output"
    check: Check | None = None
    caveats: tuple[str, ...] = ()
    seconds: float = 1.0  # about what one run takes under the baseline: for estimates only
    unfit: Mapping[str, str] = field(default_factory=dict)  # allocators that cannot get through by nature, and why


@dataclass(frozen=True)
class Plan:
    """When to stop and where to run. Without a budget and a precision, exactly `max_rounds` rounds are run."""

    min_rounds: int = 10
    max_rounds: int = 60
    budget_s: float | None = 60.0
    budget_share: int = 1  # how many experiments divide the budget among them
    precision: float | None = 0.01
    seed: int = 0
    cpus: tuple[int, ...] | None = None  # None: chosen after the warm-up
    counts: bool = False
    control_rounds: int | None = None  # controls besides the A/A control run in this many rounds only; None: in all
    series_rounds: int = SERIES_ROUNDS


@dataclass(frozen=True)
class Progress:
    """Where an experiment stands; `remaining_s` is None while it cannot be known."""

    task: str
    peer: str
    round: int
    done: int
    expected: int
    remaining_s: float | None


Report = Callable[[Progress], None]


class Interrupted(Exception):
    """Ctrl-C: `experiment` holds what was measured until then."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__("interrupted")
        self.experiment = experiment


@dataclass
class _Golden:
    """What the program prints and writes under the baseline; empty until known, `usable` while two runs agreed."""

    digests: dict[str, str] = field(default_factory=dict)
    usable: bool = True


def base_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what would change the allocator under test, plus `extra`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LD_") and k not in ("FREESTONE_ROOT", PADDING)}
    library_path = os.environ.get("LD_LIBRARY_PATH")
    if library_path:
        env["LD_LIBRARY_PATH"] = library_path
    env.update(extra)
    return env


def peer_environment(peer: Peer) -> dict[str, str]:
    """The variables that put `peer` in charge of malloc."""
    env = dict(peer.env)
    if peer.path:
        if re.search(r"[\s:]", peer.path):
            raise UserError(f"'{peer.path}': the dynamic linker cannot preload a path with blanks or colons")
        env["LD_PRELOAD"] = peer.path
    return env


def available_kib() -> int:
    """MemAvailable of this machine."""
    match = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(match[1]) if match else 1 << 20


class Engine:
    """Runs one task under all peers. `measure()` may be called once.

    `proven` holds (program, allocator) pairs whose warm-up and proof were made in this sitting: a workload program
    reads no files and says in every run who serves malloc, so a pair once proven goes straight to its rounds.
    """

    def __init__(
        self, task: Task, peers: Sequence[Peer], baseline: str, plan: Plan, report: Report,
        proven: set[tuple[str, str]] | None = None,
    ) -> None:  # fmt: skip
        base = next((p for p in peers if p.name == baseline), None)
        if base is None:
            raise UserError(
                f"the baseline '{baseline}' is not among the allocators: {', '.join(p.name for p in peers)}"
            )
        again = replace(base, name=control_name(baseline), kind="control")
        if not task.cwd.is_dir():
            raise UserError(f"{task.id}: its working folder '{task.cwd}' does not exist")
        self.task, self.plan, self.report, self.baseline = task, plan, report, base
        self.proven = proven if proven is not None and task.read == "workload" else set()
        others = [p for p in peers if p.name not in (baseline, again.name)]
        self.peers = [base, again, *(p for p in others if p.name not in task.unfit)]
        self.random = random.Random(f"{plan.seed}/{task.id}")
        self.experiment = Experiment(
            task.id, task.workload, dict(task.params), dict(PROCESS_SPECS), list(dict.fromkeys(task.caveats)), []
        )
        for peer in others:
            if peer.name in task.unfit:
                self.caveat(f"{peer.name} is left out: {task.unfit[peer.name]}")
        self.golden = _Golden()
        self.placement = Placement(target=plan.cpus or ())
        self.timeout_s = task.timeout_s or WARM_UP_TIMEOUT_S
        self.dropped: set[str] = set()
        self.started = time.monotonic()
        self.runs = 0
        self.round_s = 0.0
        if os.environ.get("LD_PRELOAD"):
            self.caveat(f"LD_PRELOAD={os.environ['LD_PRELOAD']} of the calling shell was left out")

    def caveat(self, text: str) -> None:
        if text not in self.experiment.caveats:
            self.experiment.caveats.append(text)

    def measure(self) -> Experiment:
        """Warm-up, rounds until the plan says stop, counts. Raises Interrupted on Ctrl-C."""
        try:
            with tempfile.TemporaryDirectory(prefix="freestone-") as scratch:
                self._warm_up(Path(scratch))
                self._rounds(Path(scratch))
                if self.plan.counts:
                    self._counts(Path(scratch))
        except KeyboardInterrupt:
            raise Interrupted(self.experiment) from None
        self._closing_caveats()
        return self.experiment

    def _run(self, peer: Peer, scratch: Path, extra: Mapping[str, str]) -> Run:
        padding = {PADDING: "x" * self.random.randrange(PADDING_LIMIT)}
        env = {**base_environment(self.task.env), **peer_environment(peer), **padding, **extra}
        request = measure.Request(
            argv=self.task.argv,
            env=env,
            cwd=self.task.cwd,
            stdin=self.task.stdin,
            timeout_s=self.timeout_s,
            placement=self.placement,
            library=os.path.realpath(peer.path) if peer.path else None,
            address_space_kib=available_kib() * 6 // 10 if peer.kind == "control" and peer.path else 0,
            linger_ms=self.task.linger_ms,
        )
        self._age_outputs()
        return measure.run(request, scratch / "stdout", scratch / "stderr")

    def _outputs(self, scratch: Path, workload: Mapping[str, Any] | None) -> dict[str, str]:
        if workload is not None:
            return {"checksum": str(workload.get("checksum", ""))}
        found = {"stdout": digest(scratch / "stdout")}
        for path in self.task.output_files:
            full = self.task.cwd / path
            written = full.is_file() and full.stat().st_mtime_ns != 0
            found[str(path)] = digest(full) if written else "absent"
        return found

    def _age_outputs(self) -> None:
        """Dates earlier outputs to the epoch, so that a file which this run did not write is seen as absent."""
        for path in self.task.output_files:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self.task.cwd / path, ns=(0, 0))

    def _sample(self, peer: Peer, round_: int, run: Run, scratch: Path) -> Sample:
        """Turns a finished run into a sample: failures first, figures only for a run beyond doubt."""
        sample = Sample(peer.name, round_, "ok", gauges={k: significant(v, 3) for k, v in run.gauges.items()})

        def bad(status: Status, detail: str) -> Sample:
            sample.status, sample.detail = status, detail
            return sample

        said = measure.tail(scratch / "stderr")
        if run.timed_out:
            return bad("timeout", f"no end within {self.timeout_s:.0f} s")
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
        if run.exit_status != self.task.expect_exit:
            return bad("failed", f"exit status {run.exit_status}" + (f": {said}" if said else ""))
        owner = workload.get("malloc_owner") if workload else None
        if peer.path and (run.mapped == 0 or (owner and os.path.realpath(owner) != os.path.realpath(peer.path))):
            return bad("not_loaded", f"malloc was served by {owner}" if owner else f"{peer.path} was not mapped")
        wrong = self._wrong_output(scratch, workload)
        if wrong is None and self.task.check:
            wrong = self.task.check(scratch / "stdout", self.task.cwd)
        if wrong is not None:
            return bad("wrong_output", wrong)
        sample.figures = {name: significant(value) for name, value in process_figures(run).items()}
        if round_ <= self.plan.series_rounds:
            sample.series["rss"] = thin(run.rss_series, SERIES_POINTS)
        if workload:
            self._take_workload(sample, workload)
        return sample

    def _wrong_output(self, scratch: Path, workload: Mapping[str, Any] | None) -> str | None:
        found = self._outputs(scratch, workload)
        if not self.golden.digests:
            self.golden.digests = found
        differing = [name for name, value in found.items() if self.golden.digests[name] != value]
        return (
            f"{', '.join(differing)} differs from {self.baseline.name}'s" if differing and self.golden.usable else None
        )

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

    def _warm_up(self, scratch: Path) -> None:
        """Round 0: proof of who serves malloc, the golden output, the time limit, and whether one CPU is enough."""
        skipped = 0
        for peer in self.peers:
            if (self.task.argv[0], peer.name) in self.proven and peer is not self.baseline:
                skipped += 1
                continue
            self._tell(peer, 0)
            folder = Path(tempfile.mkdtemp(dir=scratch))
            proving = peer.name != control_name(self.baseline.name)
            begun = time.monotonic()
            run = self._run(peer, scratch, proof.environment(folder) if proving else {})
            self.round_s += time.monotonic() - begun
            sample = self._sample(peer, 0, run, scratch)
            if peer is self.baseline:
                self._learn(run, sample)
            elif not proving and sample.status == "wrong_output":
                self.golden.usable = False
                self.caveat(f"the output differs between two runs under {self.baseline.name}, so it is not compared")
                continue
            if proving and sample.status in ("ok", "wrong_output"):
                refusal, notes = proof.judge(proof.read_account(folder, self.task.cwd), peer)
                for note in notes:
                    self.caveat(note)
                if refusal:
                    sample = Sample(peer.name, 0, "not_loaded", refusal)
            shutil.rmtree(folder, ignore_errors=True)
            if sample.status != "ok":
                self.experiment.samples.append(sample)
                if sample.status in ("not_loaded", "timeout"):
                    self.dropped.add(peer.name)
            else:
                self.proven.add((self.task.argv[0], peer.name))
        self.round_s *= len(self.peers) / (len(self.peers) - skipped)

    def _learn(self, run: Run, sample: Sample) -> None:
        """The baseline's first run is the measure of the others; if it fails there is nothing to compare."""
        if sample.status != "ok":
            raise UserError(f"'{' '.join(self.task.argv)}' fails under {self.baseline.name}: {sample.detail}")
        if self.task.timeout_s is None:
            self.timeout_s = max(10.0, 10 * run.wall_s)
        allowed = sorted(os.sched_getaffinity(0))
        if self.plan.cpus is None and len(allowed) > 1 and run.threads <= 1 and run.processes <= 1:
            self.placement = Placement((allowed[-1],), tuple(allowed[:-1]))
            self.experiment.params.setdefault("pinned_to_cpu", allowed[-1])
        elif self.plan.cpus:
            rest = tuple(c for c in allowed if c not in self.plan.cpus)
            self.placement = Placement(self.plan.cpus, rest)

    def _rounds(self, scratch: Path) -> None:
        round_ = 0
        spent: list[float] = [self.round_s]
        while not self._enough(round_, spent):
            round_ += 1
            begun = time.monotonic()
            order = [p for p in self.peers if p.name not in self.dropped and not self._enough_of(p, round_)]
            self.random.shuffle(order)
            for peer in order:
                self._tell(peer, round_)
                sample = self._sample(peer, round_, self._run(peer, scratch, {}), scratch)
                self.experiment.samples.append(sample)
                self.runs += 1
                failures = sum(s.peer == peer.name and s.status != "ok" for s in self.experiment.samples)
                if failures >= 2 or sample.status == "timeout":
                    self.dropped.add(peer.name)
            spent.append(time.monotonic() - begun)
            self.round_s = sum(spent[1:]) / len(spent[1:])

    def _enough_of(self, peer: Peer, round_: int) -> bool:
        limit = self.plan.control_rounds
        second = peer.name == control_name(self.baseline.name)
        return limit is not None and round_ > limit and peer.kind == "control" and not second

    def _enough(self, rounds: int, spent: Sequence[float]) -> bool:
        plan = self.plan
        if rounds >= plan.max_rounds:
            return True
        if plan.precision is not None and rounds >= plan.min_rounds and self._precise(plan.precision):
            return True
        if plan.budget_s is None or rounds == 0:
            return False
        return time.monotonic() - self.started + self.round_s > plan.budget_s

    def _precise(self, precision: float) -> bool:
        for peer in self.peers:
            if peer.name in self.dropped or peer.name == self.baseline.name or peer.kind == "control":
                continue
            found = estimate(self.experiment, peer.name, self.baseline.name, "wall", self.plan.seed)
            if found and found.half_width > precision:
                return False
        return True

    def _tell(self, peer: Peer, round_: int) -> None:
        active = len(self.peers) - len(self.dropped)
        elapsed = time.monotonic() - self.started
        remaining: float | None = None
        rounds = self.plan.max_rounds
        if self.plan.budget_s is not None:
            remaining = max(0.0, self.plan.budget_s - elapsed)
            if self.round_s and round_:
                left = remaining / self.round_s
                rounds = min(rounds, max(round_, round_ + int(left)))
                remaining = min(remaining, (rounds - round_ + 1) * self.round_s)
        elif self.round_s and round_:
            remaining = (rounds - round_ + 1) * self.round_s
        self.report(Progress(self.task.id, peer.name, round_, self.runs, active * rounds, remaining))

    def _counts(self, scratch: Path) -> None:
        """One run under callgrind and one under strace for every peer that works; their times are not figures."""
        self.experiment.specs.update(counts.SPECS)
        for peer in self.peers:
            if peer.name in self.dropped or peer.name == control_name(self.baseline.name):
                continue
            self._tell(peer, -1)
            env = {**base_environment(self.task.env), **peer_environment(peer)}
            figures = {}
            for name, counter in (("instructions", counts.instructions), ("syscalls", counts.syscalls)):
                value = counter(self.task.argv, env, self.task.cwd, self.task.stdin, scratch)
                if value is None:
                    self.caveat(f"{name} under {peer.name} could not be counted")
                else:
                    figures[name] = float(value)
            self.experiment.samples.append(Sample(peer.name, -1, "ok", figures=figures))

    def _closing_caveats(self) -> None:
        samples = [s for s in self.experiment.samples if s.round > 0]
        stolen = sum(s.gauges.get("steal", 0) > STEAL_LIMIT for s in samples)
        if stolen:
            self.caveat(f"in {stolen} of {len(samples)} runs the host took more than {STEAL_LIMIT:.0%} of the CPU time")
        rounds = max((s.round for s in samples), default=0)
        if 0 < rounds < LEAST_ROUNDS:
            advice = f"{LEAST_ROUNDS} are the least, {Plan.min_rounds} are usual"
            if self.plan.budget_s is not None:
                need = self.round_s * (Plan.min_rounds + 2) * self.plan.budget_share
                advice = f"--budget {need:.0f}s would allow {Plan.min_rounds}"
            counted = "1 round is" if rounds == 1 else f"{rounds} rounds are"
            self.caveat(f"{counted} too few for a verdict; {advice}")
