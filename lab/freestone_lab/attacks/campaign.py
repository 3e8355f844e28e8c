"""Runs the attack suite under allocators: every case, size and seed in a process of its own, after its bug-free twin.

`run` gives a Result with one experiment per family, and one more, `attacks/apart`, for the cases that nobody can expect
an allocator to see. Each peer has one sample there: its `counts` hold the verdicts, its figures are their shares. The
program is `freestone-attack`, built from allocator/tests/fault/attacks; it is linked to no allocator.
"""

from __future__ import annotations

import datetime
import fnmatch
import functools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from freestone_lab.attacks.judgement import DEFENDED, VERDICTS, Judgement, judge_attack, judge_twin
from freestone_lab.attacks.trials import attacking, spawn
from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample, Status
from freestone_lab.measure import fingerprint
from freestone_lab.peers import discover as peers

SIZES = ("small", "medium", "large")
SEEDS = 32
QUICK_SEEDS = 2
APART = "apart"
TIME_LIMIT_S = 4.0  # a twin that does not make it gets a second chance of four times that
_TIMEOUTS_UNTIL_STOP = 2
_SOURCES = Path("allocator") / "tests" / "fault" / "attacks"

KNOWN_BAD = "nocheck"  # the control that checks nothing, built beside the program

Progress = Callable[[str, int, int], None]  # peer, (case, size) pairs done, pairs in all


@dataclass(frozen=True)
class AttackCase:
    """One row of the suite, as the program describes itself."""

    id: str
    family: str
    about: str
    neutralised: str
    sizes: tuple[str, ...]
    apart_sizes: tuple[str, ...]
    apart_reason: str


@dataclass
class Tally:
    """The verdicts of some cases under one peer, with the first detail of each verdict that is no defence."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, pair: str, judgement: Judgement) -> None:
        self.counts[judgement.verdict] += 1
        self.counts[f"{pair}={judgement.verdict}"] += 1
        if judgement.detail and judgement.verdict not in DEFENDED:
            self.examples.setdefault(pair, {}).setdefault(judgement.verdict, judgement.detail)

    def merge(self, other: Tally) -> None:
        self.counts.update(other.counts)
        for pair, details in other.examples.items():
            self.examples.setdefault(pair, {}).update(details)


def build_program() -> Path:
    """`freestone-attack`: the build tree's when it is newer than its sources, otherwise compiled now."""
    sources = paths.root() / _SOURCES
    newest = max((file.stat().st_mtime for file in sources.glob("*.*")), default=None)
    if newest is None:
        raise UserError(f"{sources}: holds no sources; expected the attack suite of a Freestone checkout")
    folder = paths.cache_dir() / "attacks"
    for built in (paths.build_dir() / "freestone-attack", folder / "freestone-attack"):
        if built.is_file() and built.stat().st_mtime >= newest:  # not linked anew under a run that uses it
            return built
    folder.mkdir(parents=True, exist_ok=True)
    for command in (
        ["cmake", "-S", str(sources), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", str(folder), "--parallel", "2"],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise UserError(
                f"{command[0]}: cannot be started: {error.strerror}; expected CMake 3.22 or newer"
            ) from error
        if done.returncode != 0:
            text = done.stdout + done.stderr
            reason = next((line for line in text.splitlines() if "rror" in line), "no reason given")
            raise UserError(f"{sources}: the attack suite does not compile: {reason}")
    return folder / "freestone-attack"


def discover(names: Sequence[str], program: Path) -> list[Peer]:
    """The named allocators. Without names, all of this machine and the one that checks nothing."""
    known_bad = f"{KNOWN_BAD}={program.parent / f'libattack-control-{KNOWN_BAD}.so'}"
    return peers.discover([known_bad], only=names)


@functools.lru_cache(maxsize=4)
def load_cases(program: Path) -> tuple[AttackCase, ...]:
    """What `freestone-attack list --json` says."""
    text = subprocess.run([str(program), "list", "--json"], capture_output=True, text=True, check=True).stdout
    return tuple(
        AttackCase(**{**row, "sizes": tuple(row["sizes"]), "apart_sizes": tuple(row["apart_sizes"])})
        for row in json.loads(text)
    )


def select_cases(cases: Sequence[AttackCase], patterns: Sequence[str]) -> list[AttackCase]:
    """The cases whose id or family matches one of `patterns` (shell wildcards); all of them without any."""
    if not patterns:
        return list(cases)
    for pattern in patterns:
        if not any(_matches(case, pattern) for case in cases):
            families = ", ".join(dict.fromkeys(case.family for case in cases))
            raise UserError(
                f"no attack case matches {pattern!r}; expected a case's id, a wildcard or one of {families}"
            )
    return [case for case in cases if any(_matches(case, pattern) for pattern in patterns)]


def _matches(case: AttackCase, pattern: str) -> bool:
    return fnmatch.fnmatchcase(case.id, pattern) or fnmatch.fnmatchcase(case.family, pattern)


def environment(peer: Peer) -> dict[str, str]:
    """This process's environment without any preload, and the peer's own laid over it."""
    env = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    env.update(peers.preload_environment(peer))
    return env


def start_failure(program: Path, peer: Peer) -> str:
    """Why no case can be judged under `peer`; "" when a small correct program runs and `peer` serves its malloc."""
    outcome = spawn([str(program), "probe"], environment(peer), TIME_LIMIT_S)
    judged = judge_twin(outcome, peer)
    if judged is not None and judged.verdict == "failed":
        return judged.detail
    return "" if outcome.exit_code == 0 else f"a small correct program fails: {outcome.end}"


def judge_pair(program: Path, peer: Peer, case: str, size: str, seed: int, limit_s: float = TIME_LIMIT_S) -> Judgement:
    """One seed: the twin first; its attack only when the twin succeeded."""
    env = environment(peer)
    command = [str(program), case, "--size", size, "--seed", str(seed)]
    twin = spawn([*command, "--twin"], env, limit_s)
    if twin.timed_out:  # a busy machine is no false alarm: a twin that hangs hangs again
        twin = spawn([*command, "--twin"], env, 4 * limit_s)
    return judge_twin(twin, peer) or judge_attack(spawn(command, env, limit_s), peer)


def _attack(program: Path, peer: Peer, case: str, size: str, seeds: Sequence[int], limit_s: float) -> Tally:
    """Runs all seeds of one case and size. After two time-outs it leaves out the remaining seeds."""
    tally = Tally()
    for seed in seeds:
        judgement = judge_pair(program, peer, case, size, seed, limit_s)
        tally.add(f"{case}/{size}", judgement)
        if tally.counts["timeout"] >= _TIMEOUTS_UNTIL_STOP or judgement.verdict == "not_applicable":
            break
    return tally


def _parallel(
    program: Path,
    peer: Peer,
    pairs: Sequence[tuple[AttackCase, str]],
    seeds: Sequence[int],
    jobs: int,
    limit_s: float,
) -> Iterator[Tally]:
    """The tallies of `pairs` in their order."""
    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        yield from pool.map(lambda pair: _attack(program, peer, pair[0].id, pair[1], seeds, limit_s), pairs)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def run(
    chosen: Sequence[Peer],
    cases: Sequence[AttackCase] | None = None,
    seeds: int = SEEDS,
    sizes: Sequence[str] = SIZES,
    jobs: int = 2,
    *,
    first_seed: int = 1,
    progress: Progress | None = None,
    limit_s: float = TIME_LIMIT_S,
) -> Result:
    """Runs `cases` (all when None) under each peer of `chosen`, with seeds first_seed .. first_seed + seeds - 1.

    A case whose size makes no difference runs once per seed, whatever `sizes` says.
    """
    program = build_program()
    suite = load_cases(program) if cases is None else cases
    pairs = [(case, size) for case in suite for size in case.sizes if size == "any" or size in sizes]
    if not pairs:
        raise UserError(f"no case is left for the sizes {', '.join(sizes)}; expected some of {', '.join(SIZES)}")
    result = Result(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=["freestone", *sys.argv[1:]],
        seed=first_seed,
        fingerprint=fingerprint.collect(chosen, [program]),
        peers=list(chosen),
        experiments=_experiments(pairs, seeds, first_seed),
    )
    table = {experiment.id: experiment for experiment in result.experiments}
    numbers = range(first_seed, first_seed + seeds)
    with attacking():
        for peer in chosen:
            failure = start_failure(program, peer)
            tallies = {name: Tally() for name in table}
            if not failure:
                parts = _parallel(program, peer, pairs, numbers, jobs, limit_s)
                for done, ((case, size), part) in enumerate(zip(pairs, parts, strict=True), start=1):
                    tallies[experiment_of(case, size)].merge(part)
                    if progress is not None:
                        progress(peer.name, done, len(pairs))
            for name, experiment in table.items():
                experiment.samples.append(_sample(peer, tallies[name], failure))
                if tallies[name].examples:
                    experiment.params["examples"][peer.name] = tallies[name].examples
    return result


def experiment_of(case: AttackCase, size: str) -> str:
    """The experiment that counts this case at this size."""
    return f"attacks/{APART}" if size in case.apart_sizes else f"attacks/{case.family}"


def _experiments(pairs: Sequence[tuple[AttackCase, str]], seeds: int, first_seed: int) -> list[Experiment]:
    specs = {"defended": FigureSpec("ratio", "higher", "defended")}
    specs |= {verdict: FigureSpec("ratio", "neither", verdict.replace("_", " ")) for verdict in VERDICTS}
    found: dict[str, Experiment] = {}
    for case, size in pairs:
        name = experiment_of(case, size)
        experiment = found.get(name)
        if experiment is None:
            params = {"seeds": seeds, "first_seed": first_seed, "pairs": 0, "examples": {}}
            experiment = found[name] = Experiment(name, "attacks", params, dict(specs))
            if name != f"attacks/{APART}":
                experiment.caveats.append(f"neutralised: {case.neutralised}")
        experiment.params["pairs"] += 1
        if size in case.apart_sizes:
            reason = f"{case.id}: {case.apart_reason}"
            if reason not in experiment.caveats:
                experiment.caveats.append(reason)
    return sorted(found.values(), key=lambda experiment: experiment.id == f"attacks/{APART}")


def _sample(peer: Peer, tally: Tally, failure: str) -> Sample:
    """One peer's share of each verdict. A peer that cannot start has no figure: it is failed, not perfect."""
    status: Status = "ok"
    if failure:
        status = "not_loaded" if failure.startswith("malloc was served") else "failed"
        return Sample(peer.name, 0, status, failure)
    judged = sum(tally.counts[verdict] for verdict in VERDICTS if verdict != "not_applicable")
    figures: dict[str, float] = {}
    if judged > 0:
        figures["defended"] = sum(tally.counts[verdict] for verdict in DEFENDED) / judged
        figures |= {verdict: tally.counts[verdict] / judged for verdict in VERDICTS if verdict != "not_applicable"}
    return Sample(peer.name, 0, status, figures=figures, counts={**tally.counts, "runs": judged})
