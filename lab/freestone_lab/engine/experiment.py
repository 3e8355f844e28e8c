"""The experiment engine: rounds of fresh processes in random order, a control, proof first, and when to stop.

A round runs every peer once, in a seeded random order, the baseline twice under two names (the A/A control). Round 0
warms the file cache, proves who serves malloc, and learns the program's true output; its good samples are discarded.
Comparisons are made within rounds (`analysis/claims.py`), so a slow drift of the machine cancels out.
"""

import math
import os
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from freestone_lab.analysis import claims
from freestone_lab.analysis.decision import Decision, Evidence, decide, evidence_of, racing
from freestone_lab.analysis.sequential import LEAST_ROUNDS, next_look
from freestone_lab.core import outputs, units
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, Peer, Sample, control_name
from freestone_lab.core.result_file import INTERRUPTED
from freestone_lab.engine import plan as plans
from freestone_lab.engine.budget import Budget
from freestone_lab.engine.plan import PADDING, Plan, Progress, Report, Task, base_environment
from freestone_lab.engine.sampling import Sampler
from freestone_lab.measure import counts, fingerprint, native, proof, provenance, recognise, server, share
from freestone_lab.measure import process as measure
from freestone_lab.measure.process import Placement, Request, Run
from freestone_lab.measure.recognise import Look, Watcher
from freestone_lab.measure.samples import PROCESS_SPECS
from freestone_lab.peers.discover import preload_environment

PADDING_LIMIT = 4096
SPARE = 1.25  # a margin on the foreseen time of runs, because no two take the same
WARM_UP_TIMEOUT_S = 600.0
WATCHED_LINGER_MS = 2_500  # long enough to see what a program that forks away leaves behind
WATCH_EVERY_S = 0.05


class Engine:
    """Runs one task under all peers: `begin`, then `round` until it is `decided`, then `close`.

    `proven` holds the (program, allocator) pairs that this sitting has warmed up and proven. A workload program reads
    no files and says in every run who serves malloc, so a proven pair goes straight to its rounds.
    """

    def __init__(
        self, task: Task, peers: Sequence[Peer], baseline: str, plan: Plan, report: Report,
        proven: set[tuple[str, str]] | None = None, image: str | None = None, budget: Budget | None = None,
    ) -> None:  # fmt: skip
        base = next((p for p in peers if p.name == baseline), None)
        if base is None:
            names = ", ".join(p.name for p in peers)
            raise UserError(f"the baseline '{baseline}' is not among the allocators: {names}")
        again = replace(base, name=control_name(baseline), kind="control")
        if not task.cwd.is_dir():
            raise UserError(f"{task.id}: its working folder '{task.cwd}' does not exist")
        self.task, self.plan, self.report, self.baseline = task, plan, report, base
        self.proven = proven if proven is not None and task.read == "workload" else set()
        others = [p for p in peers if p.name not in (baseline, again.name)]
        self.peers = [base, again, *(p for p in others if p.name not in task.unfit)]
        self.random = random.Random(f"{plan.seed}/{task.id}".encode(errors="surrogateescape"))
        self.experiment = Experiment(
            task.id, task.workload, dict(task.params), dict(PROCESS_SPECS), list(dict.fromkeys(task.caveats)), [],
            list(task.judged), rounds_fixed=not plan.decide and (budget is None or budget.seconds is None),
        )  # fmt: skip
        self.sampler = Sampler(task, plan, self.experiment, base.name)
        for peer in others:
            if peer.name in task.unfit:
                self.caveat(f"{peer.name} is left out: {task.unfit[peer.name]}")
        self.placement = Placement(target=plan.cpus or ())
        self.timeout_s = task.timeout_s or WARM_UP_TIMEOUT_S
        self.budget = budget or Budget()
        self.dropped: set[str] = set()  # failed
        self.resting: set[str] = set()  # who has lost, or is known well enough
        self.look_at = 0  # the round after which the evidence is looked at next
        self.started: Callable[[Engine, Look], None] = lambda *_: None  # told what the program is
        self.decided = self.idles = False
        self.standing: tuple[Evidence, Decision] | None = None
        self.rounds = 0
        self.runs = 0
        self.round_s = 0.0
        self.longest_s = 0.0
        self.image = image or task.argv[0]
        self.look: Look | None = None
        self.nothing_to_win = False  # malloc is so small a part of the program that nothing is measured
        self.not_run = self.experiment.not_run  # allocators that there was no time for
        if os.environ.get("LD_PRELOAD"):
            self.caveat(f"LD_PRELOAD={os.environ['LD_PRELOAD']} of the calling shell was left out")

    def caveat(self, text: str) -> None:
        self.sampler.caveat(text)

    def measure(self) -> Experiment:
        """All of it, where nothing else shares the time."""
        try:
            self.begin()
            while not self.decided and self.round():
                pass
            self.count()
        finally:
            self.close(False)
        return self.experiment

    def begin(self) -> None:
        """Round 0: what the program is, proof of who serves malloc, the golden output."""
        given = [self.task.stdin] if self.task.stdin else []
        self.experiment.made_of = provenance.of(self.task.argv, self.task.cwd, [*given, *self.task.inputs])
        self._folder = outputs.Scratch("experiment")
        self.scratch = Path(self._folder.name)
        self._warm_up(self.scratch)

    def round(self) -> bool:
        """One run of everybody who is still in the race, in random order. False if the time was up before its end."""
        begun = time.monotonic()
        number = self.rounds + 1
        order = self._active(number)
        self.random.shuffle(order)
        for peer in order:
            if self.budget.left() < self.longest_s:
                return self._end_early(number)
            self._tell(peer, number)
            sample, _ = self._once(peer, number, self.scratch, {})
            if self._was_cut(sample):
                return self._end_early(number)
            self.experiment.samples.append(sample)
            self.runs += 1
            if sample.status == "wrong_output" and peer in self.peers[:2]:
                self._output_changes()
            failures = [s.peer for s in self.experiment.samples if s.status != "ok"]
            if failures.count(peer.name) >= 2 or sample.status == "timeout":
                self.dropped.add(peer.name)
        self.rounds = number
        if number == 2 and claims.lasts_a_time(self.experiment):
            raise UserError(
                f"--load: it lasts {self.experiment.samples[-1].figures['wall']:.0f} s in every run and does not say "
                "how much it did, so no time can be judged; expected a load of fixed work, or --requests-from REGEX"
            )
        self.round_s += (time.monotonic() - begun - self.round_s) / number
        if self.plan.decide and number >= self.look_at:
            self._judge()
            self.look_at = next_look(number)
        self.decided = self.decided or number >= self.plan.rounds
        return True

    def _output_changes(self) -> None:
        """The program's output differs between runs under the baseline: it says nothing about an allocator."""
        self.sampler.golden.usable = False
        self.caveat(f"the output differs between two runs under {self.baseline.name}, so it is not compared")
        if self.look:
            self.look.remarks.append("its output differs from run to run")
        for sample, figures in self.sampler.withheld:
            if sample.detail.endswith(self.sampler.differs):
                sample.status, sample.detail, sample.figures = "ok", "", figures
        self.dropped &= {s.peer for s in self.experiment.samples if s.status != "ok"}

    def _was_cut(self, sample: Sample) -> bool:
        """Whether the limit ended the run, which says nothing about the allocator."""
        return sample.status == "timeout" and self.budget.left() <= 0

    def _end_early(self, number: int) -> bool:
        """The time is up. Who has no figure by then was not measured."""
        if number == 1:
            measured = {s.peer for s in self.experiment.samples}
            for peer in self.peers:
                if peer.name not in measured and peer.kind != "control":
                    self.not_run[peer.name] = self._no_time()
        return False

    def _no_time(self) -> str:
        return f"no time within {self.budget.seconds:.0f} s"

    def _judge(self) -> None:
        """Sees who runs on, and whether all is decided."""
        controls = [p.name for p in self.peers if p.kind == "control"]
        evidence = evidence_of(self.experiment, self.baseline.name, controls)
        decision = decide(evidence)
        self.standing = evidence, decision
        active = racing(evidence, decision, self.plan.precision)
        self.resting = {*evidence.names[1:], control_name(self.baseline.name)} - active
        self.decided = not active

    def count(self) -> None:
        if self.plan.counts and self.rounds:
            self._counts(self.scratch)

    def close(self, interrupted: bool) -> None:
        """Ends the experiment, however far it came."""
        if interrupted:
            self.caveat(INTERRUPTED)
            self.experiment.rounds_fixed = False
        self.sampler.closing_caveats()
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _environment(self, peer: Peer) -> dict[str, str]:
        env = {**base_environment(self.task.env), **preload_environment(peer)}
        if self.plan.aged is not None:
            env["LD_PRELOAD"] = ":".join(filter(None, (env.get("LD_PRELOAD"), str(native.tool("aged")))))
            env["FREESTONE_AGED"] = str(self.plan.aged)
        return env

    def _request(self, peer: Peer, extra: Mapping[str, str]) -> Request:
        padding = {PADDING: "x" * self.random.randrange(PADDING_LIMIT)}
        left = self.budget.left()
        limited = peer.kind == "control" and peer.path  # it may be one that never frees
        return Request(
            argv=self.task.argv,
            env={**self._environment(peer), **padding, **extra},
            cwd=self.task.cwd,
            stdin=self.task.stdin,
            timeout_s=min(self.timeout_s, max(1.0, left if self.task.server else left * 1.05)),
            placement=self.placement,
            library=os.path.realpath(peer.path) if peer.path else None,
            address_space_kib=fingerprint.memory_kib()["MemAvailable"] * 6 // 10 if limited else 0,
            linger_ms=self.task.linger_ms,
        )

    def _once(
        self, peer: Peer, round_: int, scratch: Path, extra: Mapping[str, str], watcher: Watcher | None = None,
        proving: bool = False,
    ) -> tuple[Sample, Run]:  # fmt: skip
        """One run, from --prepare to --cleanup."""
        plans.shell(self.task.prepare, "--prepare", self.task.cwd)
        request = self._request(peer, extra)
        self.sampler.timeout_s = request.timeout_s
        self.sampler.age_outputs()
        begun = time.monotonic()
        try:
            if self.task.server is not None:
                loaded = not proving or peer is self.baseline
                idle = round_ == 1 and self._may_idle(self.task.server.idle_s)
                served = server.measure(self.task.server, request, scratch, loaded=loaded, idle=idle)
                sample, run = self.sampler.served(peer, round_, served), served.run
            else:
                if watcher is not None:
                    request = replace(request, linger_ms=max(request.linger_ms, WATCHED_LINGER_MS))
                run = measure.run(request, scratch / "stdout", scratch / "stderr", watcher, WATCH_EVERY_S)
                sample = self.sampler.sample(peer, round_, run, scratch)
        except server.ServerFailed as error:
            raise UserError(str(error)) from None
        self.longest_s = max(self.longest_s, time.monotonic() - begun)
        plans.shell(self.task.cleanup, "--cleanup", self.task.cwd)
        return sample, run

    def _may_idle(self, idle_s: float) -> bool:
        """Whether there is time to watch a server under every allocator, beside the least that decides."""
        if self.rounds == 0 and not any(s.round == 1 for s in self.experiment.samples):
            need = len(self.peers) * (idle_s + LEAST_ROUNDS * self.longest_s)
            self.idles = need <= self.budget.left()
            if idle_s and not self.idles:
                self.caveat(f"not watched while idle: --idle {units.words(idle_s)} for each allocator is too long")
        return self.idles

    def _warm_up(self, scratch: Path) -> None:
        """The baseline first, which is the measure of all others; then its control; then the others in random order."""
        begun = time.monotonic()
        self._first(scratch)
        if self.plan.share:
            self._sample_share(scratch)
        control, rest = self.peers[1], self.peers[2:]
        self.random.shuffle(rest)
        known = {p.name for p in self.peers if (self.task.argv[0], p.name) in self.proven}
        if control.name not in known and self.task.server is None and not self.nothing_to_win:
            self._warm(control, scratch)
            self._second(control, scratch)
        if self.look is not None:
            self.started(self, self.look)
        for peer in rest if not self.nothing_to_win else ():
            if peer.name in known:
                continue
            if self.budget.left() < self.longest_s:
                self._leave_out(peer)
                continue
            self._warm(peer, scratch)
            self._prove(peer, scratch)
        self.round_s = time.monotonic() - begun

    def _sample_share(self, scratch: Path) -> None:
        """What an allocator could win at most, from one run of the baseline with its calls timed."""
        if self.look is None or self.look.own is not None:
            return  # another allocator's calls would not be timed
        said = plans.open_folder(scratch) / "timed"
        timed = Peer("timed calls", str(share.library()), "control")
        self._tell(timed, 0)
        try:
            _, run = self._once(timed, 0, scratch, {share.VARIABLE: str(said)})
        except UserError:
            return
        found = share.read(said, run.wall_s)
        if found is not None:
            self.experiment.params["malloc"] = asdict(found)
            self.decided = self.nothing_to_win = found.nothing_to_win

    def _leave_out(self, peer: Peer) -> None:
        """There is no time for even one run."""
        if peer.kind != "control":
            self.not_run[peer.name] = self._no_time()
        self.peers.remove(peer)

    def _warm(self, peer: Peer, scratch: Path) -> None:
        for _ in range(self.plan.warmup):
            sample, run = self._once(peer, 0, scratch, {})
            if peer is self.baseline:
                self._learn(run, sample)

    def _first(self, scratch: Path) -> None:
        """The baseline's first run: watched, proven, and the measure of all others."""
        self._tell(self.baseline, 0)
        self._warm(self.baseline, scratch)
        folder = plans.open_folder(scratch)
        watched = self.task.watched and self.task.server is None
        watcher = Watcher(self.task.argv, self.image) if watched else None
        before = plans.names_in(self.task.cwd) if watched else set()
        sample, run = self._once(self.baseline, 0, scratch, proof.environment(folder), watcher, proving=True)
        account = proof.read_account(folder, self.task.cwd)
        shutil.rmtree(folder, ignore_errors=True)
        if watcher is not None:
            self.look = watcher.finish(run.wall_s, run.threads)
        else:
            self.look = Look(Path(self.task.argv[0]).name, "server" if self.task.server else "batch", run.wall_s)
            self.look.threads, self.look.processes = run.threads, run.processes
        self._learn(run, sample)
        known = before | {str(f) for f in self.task.output_files}
        left = sorted(plans.names_in(self.task.cwd) - known) if watched else []
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
            self._output_changes()
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
        folder = plans.open_folder(scratch)
        sample, _ = self._once(peer, 0, scratch, proof.environment(folder), proving=True)
        if self._was_cut(sample):
            self._leave_out(peer)
            return
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

    def _learn(self, run: Run, sample: Sample) -> None:
        """Takes limits from the baseline's first run. If that fails, there is nothing to compare."""
        own_limit = self.sampler.timeout_s == self.task.timeout_s
        if sample.status == "timeout" and self.budget.seconds is not None and not own_limit:
            limit = self.budget.asked or f"the {self.budget.seconds:.0f} s that there are"
            raise UserError(
                f"one run takes longer than {limit}: after {run.wall_s:.0f} s {self.baseline.name} held "
                f"{run.rss_kib / 1024:.0f} MiB; a comparison takes at least {2 * (1 + LEAST_ROUNDS)} runs"
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

    def _active(self, round_: int) -> list[Peer]:
        out = self.dropped | self.resting
        return [p for p in self.peers if p.name not in out and not self._enough_of(p, round_)]

    def _enough_of(self, peer: Peer, round_: int) -> bool:
        most = self.plan.control_rounds
        second = peer.name == control_name(self.baseline.name)
        return most is not None and round_ > most and peer.kind == "control" and not second

    def _tell(self, peer: Peer, round_: int) -> None:
        active = len(self.peers) - len(self.dropped | self.resting)
        left = self.budget.left()
        rounds = min(self.plan.rounds, round_ + int(min(left / self.round_s, 1e6))) if self.round_s else round_
        remaining = min(left, (rounds - round_ + 1) * self.round_s) if round_ else left
        shown = None if math.isinf(remaining) else max(0.0, remaining)
        self.report(Progress(self.task.id, peer.name, round_, self.runs, active * rounds, shown))

    def _counts(self, scratch: Path) -> None:
        """One run under callgrind and one under strace for every peer that works; their times are not figures."""
        self.experiment.specs.update(counts.SPECS)
        for peer in self.peers:
            if peer.name in self.dropped or peer.name == control_name(self.baseline.name):
                continue
            self._tell(peer, -1)
            env = self._environment(peer)
            figures = {}
            for name, counter in (("instructions", counts.instructions), ("syscalls", counts.syscalls)):
                value = counter(self.task.argv, env, self.task.cwd, self.task.stdin, scratch)
                if value is None:
                    self.caveat(f"{name} under {peer.name} could not be counted")
                else:
                    figures[name] = float(value)
            self.experiment.samples.append(Sample(peer.name, -1, "ok", figures=figures))
