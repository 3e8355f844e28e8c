"""Two result files of the same comparison as one: the rounds of both, where both labs measured the same.

A comparison is made within rounds, so rounds of two sittings stand side by side as those of one do. Its interval holds
for all of them, for it holds after every round. What must be the same: the lab, the baseline, each allocator down to
its library, the mode of huge pages, and of each experiment that both have the program, its inputs and its figures. The
machines may differ; that is said.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, Peer, Result
from freestone_lab.measure import provenance

SAME_PLACE = {
    "lab": "the lab's version",
    "thp": "the mode of huge pages",
    "libc": "libc",
    "machine": "the architecture",
    "aged": "the seed of aged heaps",
}


def joined(results: Sequence[Result]) -> Result:
    """All of them as one; the first one's names and settings stand. UserError says everything that is not the same."""
    first, *others = results
    wrong = [line for other in others for line in mismatches(first, other)]
    if len({(r.created, r.seed) for r in results}) < len(results):
        wrong.insert(0, "one sitting twice is no more evidence")
    if wrong:
        raise UserError(f"these cannot be joined: {'; '.join(dict.fromkeys(wrong))}")
    sittings = [{"created": r.created, "command": r.command, "seed": r.seed, **_about(r.fingerprint)} for r in results]
    found = dataclasses.replace(
        first, experiments=[_copy(e) for e in first.experiments], claims=[],
        fingerprint={**first.fingerprint, "joined": sittings},
    )  # fmt: skip
    for other in others:
        known = {e.id: e for e in found.experiments}
        for experiment in other.experiments:
            if experiment.id in known:
                _append(known[experiment.id], experiment)
            else:
                found.experiments.append(_copy(experiment))
    machines = list(dict.fromkeys(_machine(r.fingerprint) for r in results))
    if len(machines) > 1:
        for experiment in found.experiments:
            experiment.caveats.append(f"rounds of {len(machines)} machines: {'; '.join(machines)}")
    return found


def mismatches(a: Result, b: Result) -> list[str]:
    """What keeps `b` from being more rounds of `a`, one line each; nothing if it is."""
    said = [
        f"{what}: {a.fingerprint.get(key)!r} and {b.fingerprint.get(key)!r}"
        for key, what in SAME_PLACE.items()
        if a.fingerprint.get(key) != b.fingerprint.get(key)
    ]
    if a.baseline != b.baseline:
        said.append(f"the baseline: {a.baseline} and {b.baseline}")
    ours, theirs = ({p.name: p for p in r.peers} for r in (a, b))
    if only := sorted(ours.keys() ^ theirs.keys()):
        said.append(f"measured by one of them only: {', '.join(only)}")
    said += [line for name in ours if name in theirs for line in _peers(name, (a, ours[name]), (b, theirs[name]))]
    before, after = ({e.id: e for e in r.experiments} for r in (a, b))
    return [*said, *(line for name in before if name in after for line in _experiments(before[name], after[name]))]


def _peers(name: str, a: tuple[Result, Peer], b: tuple[Result, Peer]) -> list[str]:
    hashes = [result.fingerprint.get("libraries", {}).get(name) for result, _ in (a, b)]
    one, other = a[1], b[1]
    if hashes[0] != hashes[1] or (one.version, one.build_id) != (other.version, other.build_id):
        return [f"another {name}: {one.version or one.build_id} and {other.version or other.build_id}"]
    return [f"other settings of {name}: {one.env} and {other.env}"] if one.env != other.env else []


def _experiments(a: Experiment, b: Experiment) -> list[str]:
    if not a.made_of or not b.made_of:
        return [f"{a.id}: a file does not say what it was made of"]
    said = provenance.differences(a.id, a.made_of, b.made_of)
    given = [sorted(one["inputs"].values()) for one in (a.made_of, b.made_of)]
    if not said and given[0] != given[1]:
        said.append(f"{a.id}: other inputs")
    words = [_words(one) for one in (a.made_of, b.made_of)]
    if words[0] != words[1]:
        said.append(f"{a.id}: another command line: {' '.join(words[0])} and {' '.join(words[1])}")
    if (a.workload, a.judged) != (b.workload, b.judged) or any(b.specs.get(n, s) != s for n, s in a.specs.items()):
        said.append(f"{a.id}: other figures")
    return said


def _words(made_of: dict[str, Any]) -> list[str]:
    """The command line without the folders of this machine."""
    return [word.rpartition("/")[2] for word in made_of["argv"]]


def _copy(experiment: Experiment) -> Experiment:
    return dataclasses.replace(
        experiment, specs=dict(experiment.specs), caveats=list(experiment.caveats), samples=list(experiment.samples),
        not_run=dict(experiment.not_run),
    )  # fmt: skip


def _append(to: Experiment, more: Experiment) -> None:
    """The rounds of `more` behind those that are there. What is no round (proofs, counts) stays the first one's."""
    last = max((s.round for s in to.samples), default=0)
    to.samples += [dataclasses.replace(s, round=s.round + last) for s in more.samples if s.round > 0]
    to.samples += [s for s in more.samples if s.round <= 0 and s.status != "ok"]
    to.specs |= {name: spec for name, spec in more.specs.items() if name not in to.specs}
    to.caveats += [text for text in more.caveats if text not in to.caveats]
    to.not_run = {name: why for name, why in to.not_run.items() if name in more.not_run}


def _about(fingerprint: dict[str, Any]) -> dict[str, Any]:
    return {"machine": _machine(fingerprint), "commit": fingerprint.get("commit"), "load": fingerprint.get("load")}


def _machine(fingerprint: dict[str, Any]) -> str:
    cpu = fingerprint.get("cpu", {}).get("model name", "?")
    return f"{cpu}, {fingerprint.get('cpus', '?')} CPUs, kernel {fingerprint.get('kernel', '?')}"
