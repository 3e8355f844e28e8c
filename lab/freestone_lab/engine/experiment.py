"""The experiment engine: rounds of fresh processes in random order, a control, proof first, and when to stop.

A round runs every peer once, in a seeded random order, the baseline twice under two names (the A/A control). Round 0
warms the file cache, proves who serves malloc, and learns the program's true output; its good samples are discarded.
Comparisons are made within rounds (`analysis/claims.py`), so a slow drift of the machine cancels out.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from freestone_lab.analysis.paired import estimate
from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, Peer, Sample, control_name
from freestone_lab.engine.plan import PADDING, Plan, Progress, Report, Task, base_environment, peer_environment
from freestone_lab.engine.sampling import Sampler
from freestone_lab.engine.surroundings import available_kib, names_in, open_folder, shell
from freestone_lab.measure import counts, proof, recognise, server
from freestone_lab.measure import process as measure
from freestone_lab.measure.process import Placement, Request, Run
from freestone_lab.measure.recognise import Look, Watcher
from freestone_lab.measure.samples import PROCESS_SPECS

PADDING_LIMIT = 4096
SPARE = 1.25  # a margin on the foreseen time of runs, because no two take the same
WARM_UP_TIMEOUT_S = 600.0
WATCHED_LINGER_MS = 2_500  # long enough to see what a program that forks away leaves behind
WATCH_EVERY_S = 0.05


class Interrupted(Exception):
    """Ctrl-C: `experiment` holds what was measured until then."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__("interrupted")
        self.experiment = experiment


class Engine:
    """Runs one task under all peers. Call `measure()` only once.

    `proven` holds the (program, allocator) pairs that this sitting has warmed up and proven. A workload program reads
    no files and says in every run who serves malloc, so a proven pair goes straight to its rounds.
    """

    def __init__(
        self, task: Task, peers: Sequence[Peer], baseline: str, plan: Plan, report: Report,
        proven: set[tuple[str, str]] | None = None, image: str | None = None,
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
        self.random = random.Random(f"{plan.seed}/{task.id}".encode(errors="surrogateescape"))
        self.experiment = Experiment(
            task.id, task.workload, dict(task.params), dict(PROCESS_SPECS), list(dict.fromkeys(task.caveats)), []
        )
        self.sampler = Sampler(task, plan, self.experiment, base.name)
        for peer in others:
            if peer.name in task.unfit:
                self.caveat(f"{peer.name} is left out: {task.unfit[peer.name]}")
        self.placement = Placement(target=plan.cpus or ())
        self.timeout_s = task.timeout_s or WARM_UP_TIMEOUT_S
        self.dropped: set[str] = set()
        self.started = time.monotonic()
        self.runs = 0
        self.round_s = 0.0
        self.longest_s = 0.0
        self.granted_s = 0.0  # beyond the limit
        self.image = image or task.argv[0]
        self.look: Look | None = None
        self.not_run = self.experiment.not_run  # allocators that there was no time for
        if os.environ.get("LD_PRELOAD"):
            self.caveat(f"LD_PRELOAD={os.environ['LD_PRELOAD']} of the calling shell was left out")

    def caveat(self, text: str) -> None:
        self.sampler.caveat(text)

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
        self.sampler.closing_caveats(self.round_s)
        return self.experiment

    def _request(self, peer: Peer, extra: Mapping[str, str]) -> Request:
        padding = {PADDING: "x" * self.random.randrange(PADDING_LIMIT)}
        left = self.left()
        return Request(
            argv=self.task.argv,
            env={**base_environment(self.task.env), **peer_environment(peer), **padding, **extra},
            cwd=self.task.cwd,
            stdin=self.task.stdin,
            timeout_s=self.timeout_s if left is None else max(1.0, min(self.timeout_s, left * 1.05)),
            placement=self.placement,
            library=os.path.realpath(peer.path) if peer.path else None,
            address_space_kib=available_kib() * 6 // 10 if peer.kind == "control" and peer.path else 0,
            linger_ms=self.task.linger_ms,
        )

    def left(self) -> float | None:
        """Seconds until the limit; None when there is none."""
        if self.plan.limit_s is None:
            return None
        return self.plan.limit_s + self.granted_s - (time.monotonic() - self.started)

    def _once(
        self, peer: Peer, round_: int, scratch: Path, extra: Mapping[str, str], watcher: Watcher | None = None,
        proving: bool = False,
    ) -> tuple[Sample, Run]:  # fmt: skip
        """One run, from --prepare to --cleanup."""
        shell(self.task.prepare, "--prepare", self.task.cwd)
        request = self._request(peer, extra)
        self.sampler.timeout_s = request.timeout_s
        self.sampler.age_outputs()
        begun = time.monotonic()
        try:
            if self.task.server is not None:
                loaded = not proving or peer is self.baseline
                served = server.measure(self.task.server, request, scratch, loaded=loaded, idle=round_ == 1)
                sample, run = self.sampler.served(peer, round_, served), served.run
            else:
                if watcher is not None:
                    request = replace(request, linger_ms=max(request.linger_ms, WATCHED_LINGER_MS))
                run = measure.run(request, scratch / "stdout", scratch / "stderr", watcher, WATCH_EVERY_S)
                sample = self.sampler.sample(peer, round_, run, scratch)
        except server.ServerFailed as error:
            raise UserError(str(error)) from None
        self.longest_s = max(self.longest_s, time.monotonic() - begun)
        shell(self.task.cleanup, "--cleanup", self.task.cwd)
        return sample, run

    def _warm_up(self, scratch: Path) -> None:
        """Round 0: what the program is, proof of who serves malloc, the golden output, and what there is time for."""
        begun = time.monotonic()
        self._first(scratch)
        first_s = time.monotonic() - begun
        self._leave_out(first_s)
        control, skipped, spent = self.peers[1], 0, first_s
        for peer in self.peers[1:]:
            known = (self.task.argv[0], peer.name) in self.proven
            if known or (self.task.server is not None and peer is control):
                skipped += 1
                if peer is control:
                    self._say_started()
                continue
            begun = time.monotonic()
            for _ in range(self.plan.warmup):
                self._once(peer, 0, scratch, {})
            if peer is control:
                self._second(peer, scratch)
            else:
                self._prove(peer, scratch)
            spent += time.monotonic() - begun
            if peer is control:
                self._say_started()
        self.round_s = spent * len(self.peers) / (len(self.peers) - skipped) if self.task.server is None else spent

    def _say_started(self) -> None:
        if self.plan.started is not None and self.look is not None:
            self.plan.started(self.look)

    def _first(self, scratch: Path) -> None:
        """The baseline's first run: watched, proven, and the measure of all others."""
        self._tell(self.baseline, 0)
        for _ in range(self.plan.warmup):
            self._once(self.baseline, 0, scratch, {})
        folder = open_folder(scratch)
        watched = self.task.watched and self.task.server is None
        watcher = Watcher(self.task.argv, self.image) if watched else None
        before = names_in(self.task.cwd) if watched else set()
        sample, run = self._once(self.baseline, 0, scratch, proof.environment(folder), watcher, proving=True)
        account = proof.read_account(folder, self.task.cwd)
        shutil.rmtree(folder, ignore_errors=True)
        if watcher is not None:
            self.look = watcher.finish(run.wall_s, run.threads)
        else:
            self.look = Look(Path(self.task.argv[0]).name, "server" if self.task.server else "batch", run.wall_s)
            self.look.threads, self.look.processes = run.threads, run.processes
        self._learn(run, sample)
        left = sorted(names_in(self.task.cwd) - before - {str(f) for f in self.task.output_files}) if watched else []
        if left:
            self.look.remarks.append(f"leaves {', '.join(left[:3])}{' and more' if left[3:] else ''} in its folder")
        if run.exit_status:
            self.look.remarks.append(f"ends with status {run.exit_status}")
        refusal, notes = proof.judge(account, self.baseline)
        if refusal:
            raise UserError(f"'{self.task.argv[0]}': {refusal}")
        own = next((p for p in account.serving("malloc") if not proof.is_libc(p)), None)
        if own is not None:
            self.look.own = own
        if own is not None and self.plan.name_own:
            self._rename_baseline(recognise.allocator_name(own), account)
        else:
            for note in notes:
                self.caveat(note)
        self.proven.add((self.task.argv[0], self.baseline.name))

    def _rename_baseline(self, family: str, account: proof.Account) -> None:
        """The program brings an allocator. Its row gets that name, and glibc's malloc is preloaded like the others."""
        name = f"its own {family}"
        libc = next((p for p in account.serving("fopen") or account.serving("malloc") if proof.is_libc(p)), None)
        libc = libc or proof.libc_path()
        self.caveat(f"the baseline is the program's own allocator, {self.look.own if self.look else family}")
        old = self.baseline
        self.baseline = replace(old, name=name, version="", origin="the program's own", build_id="", exports=())
        self.peers[:2] = [self.baseline, replace(self.baseline, name=control_name(name), kind="control")]
        self.sampler.baseline = name
        if libc is not None and all(p.name != old.name for p in self.peers):
            self.peers.append(replace(old, path=libc, kind="preload"))

    def _second(self, control: Peer, scratch: Path) -> None:
        """Runs the baseline again. A program that leaves state behind fails now; one with changing output differs."""
        self._tell(control, 0)
        sample, run = self._once(control, 0, scratch, {})
        if sample.status == "wrong_output":
            self.sampler.golden.usable = False
            self.caveat(f"the output differs between two runs under {self.baseline.name}, so it is not compared")
            if self.look:
                self.look.remarks.append("its output differs from run to run")
        elif sample.status == "failed" and self.task.watched:
            raise UserError(
                f"'{' '.join(self.task.argv)}' leaves state behind: it ran once and then failed under the same "
                f"{self.baseline.name}: {sample.detail}; undo what it leaves with --prepare 'CMD' or --cleanup 'CMD'"
            )
        elif sample.status != "ok":
            self.experiment.samples.append(sample)
        elif self.look:
            self.look.seconds = run.wall_s  # the first run was slowed by its proof

    def _prove(self, peer: Peer, scratch: Path) -> None:
        """Runs another allocator under the dynamic linker's account. An allocator that fails is out."""
        self._tell(peer, 0)
        folder = open_folder(scratch)
        sample, _ = self._once(peer, 0, scratch, proof.environment(folder), proving=True)
        if sample.status in ("ok", "wrong_output"):
            refusal, notes = proof.judge(proof.read_account(folder, self.task.cwd), peer)
            for note in notes:
                self.caveat(note)
            if refusal:
                sample = Sample(peer.name, 0, "not_loaded", refusal)
        shutil.rmtree(folder, ignore_errors=True)
        if sample.status == "ok":
            self.proven.add((self.task.argv[0], peer.name))
            return
        self.experiment.samples.append(sample)
        if sample.status in ("not_loaded", "timeout"):
            self.dropped.add(peer.name)

    def _leave_out(self, first_s: float) -> None:
        """Keeps as many allocators, in order, as the limit has time for. Each needs a proof and LEAST_ROUNDS."""
        left = self.left()
        if left is None:
            return
        rows = 2 if self.plan.control else 1
        first_s *= SPARE
        fixed = (1 + rows * LEAST_ROUNDS) * first_s  # the baseline's second run, and its rounds
        each = (1 + LEAST_ROUNDS) * first_s
        if left < fixed + each and self.plan.borrow is not None:
            granted = self.plan.borrow(fixed + each - left)
            self.granted_s, left = self.granted_s + granted, left + granted
        affordable = max(1, int((left - fixed) / each))
        kept, out = self.peers[2 : 2 + affordable], self.peers[2 + affordable :]
        self.peers = [*self.peers[:2], *kept]
        for peer in out:
            self.not_run[peer.name] = f"no time within {self.plan.limit_s:.0f} s"

    def _learn(self, run: Run, sample: Sample) -> None:
        """Takes limits from the baseline's first run. If that fails, there is nothing to compare."""
        if sample.status == "timeout" and self.plan.limit_s is not None:
            raise UserError(
                f"one run takes longer than the {self.plan.limit_s:.0f} s that there are: after {run.wall_s:.0f} s "
                f"{self.baseline.name} held {run.rss_kib / 1024:.0f} MiB; a comparison takes at least "
                f"{2 * (1 + LEAST_ROUNDS)} runs"
            )
        if sample.status != "ok":
            raise UserError(f"'{' '.join(self.task.argv)}' fails under {self.baseline.name}: {sample.detail}")
        if self.task.timeout_s is None:
            self.timeout_s = max(10.0, 10 * run.wall_s)
        if self.task.server is not None:
            return
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
            order = self._active(round_)
            self.random.shuffle(order)
            for peer in order:
                if self._no_time():
                    return
                self._tell(peer, round_)
                sample, _ = self._once(peer, round_, scratch, {})
                self.experiment.samples.append(sample)
                self.runs += 1
                failures = sum(s.peer == peer.name and s.status != "ok" for s in self.experiment.samples)
                if failures >= 2 or sample.status == "timeout":
                    self.dropped.add(peer.name)
            spent.append(time.monotonic() - begun)
            self.round_s = sum(spent[1:]) / len(spent[1:])
            names = [p.name for p in self._active(round_ + 1)]
            if self.plan.settled is not None and self.plan.settled(self.experiment, names):
                return

    def _no_time(self) -> bool:
        """Whether the next run would end after the limit if it took as long as the longest so far."""
        left = self.left()
        if left is None or left >= self.longest_s:
            return False
        granted = self.plan.more() if self.plan.more else 0.0
        self.granted_s += granted
        return granted <= 0

    def _active(self, round_: int) -> list[Peer]:
        return [p for p in self.peers if p.name not in self.dropped and not self._enough_of(p, round_)]

    def _enough_of(self, peer: Peer, round_: int) -> bool:
        limit = self.plan.control_rounds
        second = peer.name == control_name(self.baseline.name)
        if second and not self.plan.control:
            return True
        return limit is not None and round_ > limit and peer.kind == "control" and not second

    def _enough(self, rounds: int, spent: Sequence[float]) -> bool:
        plan = self.plan
        if rounds >= plan.max_rounds:
            return True
        if plan.precision is not None and rounds >= plan.min_rounds and self._precise(plan.precision):
            return True
        if plan.budget_s is None or rounds == 0:
            return False
        over = time.monotonic() - self.started + self.round_s - plan.budget_s - self.granted_s
        if over > 0 and plan.more is not None:
            self.granted_s += (granted := plan.more())
            return granted < over
        return over > 0

    def _precise(self, precision: float) -> bool:
        for peer in self.peers:
            if peer.name in self.dropped or peer.name == self.baseline.name or peer.kind == "control":
                continue
            found = estimate(self.experiment, peer.name, self.baseline.name, "wall")
            if found and found.half_width > precision:
                return False
        return True

    def _tell(self, peer: Peer, round_: int) -> None:
        active = len(self.peers) - len(self.dropped)
        elapsed = time.monotonic() - self.started
        remaining: float | None = None
        rounds = self.plan.max_rounds
        if self.plan.budget_s is not None:
            remaining = max(0.0, self.plan.budget_s + self.granted_s - elapsed)
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
