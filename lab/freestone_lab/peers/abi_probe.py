"""The ABI matrix: how each allocator behaves at its border, as its own answers show.

A small program (lab/peers/probe) runs under each peer, one fresh process per question, so that an allocator which
aborts on one question still answers the others. Nothing in the matrix is written by hand; the judgements below only
compare an answer with what was asked.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from freestone_lab.core import paths
from freestone_lab.core.result import Peer
from freestone_lab.measure import native
from freestone_lab.peers import discover

REFUSALS = (
    *("malloc_huge", "malloc_size_max", "calloc_overflow", "reallocarray_overflow"),
    *("memalign_huge", "aligned_alloc_huge", "realloc_huge"),
)
STATISTICS = ("mallinfo", "mallinfo2", "malloc_stats", "malloc_info", "malloc_trim", "mallopt")
RULES = ("zero", "alignment", "pvalloc", "free_errno", "usable", "content", "operators")
QUESTIONS = ("owners", *RULES, *REFUSALS, *STATISTICS)
_SECONDS = 60.0
_REASON_LENGTH = 160

# A report is true when one of its figures grew by what was allocated: at least all of it, at most this much more.
_LEAST = 0.99
_MOST = 1.35

Answer = dict[str, Any]


@dataclass
class PeerAnswers:
    """What one allocator answered. `failures` holds the questions that ended badly, with the reason."""

    peer: Peer
    answers: dict[str, Answer] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def owner(self, name: str) -> str:
        """The file that serves `name`; "" if there is none."""
        return str(self.answers.get("owners", {}).get(name, ""))

    def is_own(self, name: str) -> bool:
        """Whether the peer itself serves `name`."""
        owner = self.owner(name)
        if self.peer.path is None:
            return owner != "" and (name not in discover.OPERATOR_NAMES)
        return owner != "" and Path(owner).resolve() == Path(self.peer.path).resolve()


def build_probe() -> Path:
    """The probe program, compiled when its source changed. UserError when that fails."""
    sources = sorted((paths.root() / "lab" / "peers" / "probe").glob("*.cpp"))
    # Without -fno-builtin the compiler drops unused pairs and answers malloc's contract itself.
    flags = ["-std=c++20", "-O1", "-fno-builtin", "-Wno-unused-result", "-Wno-deprecated-declarations", "-ldl"]
    return native.compiled("freestone-probe", sources, flags, os.environ.get("CXX", "g++"))


def environment(peer: Peer) -> dict[str, str]:
    """This process's environment without any preload, and the peer's own laid over it."""
    env = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    env.update(discover.preload_environment(peer))
    return env


def ask(peer: Peer, questions: Sequence[str] = QUESTIONS, *, seconds: float = _SECONDS) -> PeerAnswers:
    """Asks `peer` each question in a process of its own."""
    program = build_probe()
    found = PeerAnswers(peer)
    for question in questions:
        names = sorted(discover.FAMILY) if question == "owners" else []
        answer, failure = _ask_one([str(program), question, *names], environment(peer), seconds)
        if answer is None:
            found.failures[question] = failure
        else:
            found.answers[question] = answer
    return found


def _ask_one(command: list[str], env: dict[str, str], seconds: float) -> tuple[Answer | None, str]:
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=seconds, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {seconds:g} s"
    except OSError as error:
        raise discover.PeerError(f"{command[0]}: cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        text = "".join(c if c.isprintable() or c == "\n" else " " for c in done.stderr)
        lines = [line.strip()[:_REASON_LENGTH] for line in text.splitlines() if line.strip()]
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit {done.returncode}"
        return None, f"{how}: {lines[-1]}" if lines else how
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return None, "the answer is not JSON: the allocator wrote into it or damaged it"
    return (answer, "") if isinstance(answer, dict) else (None, "the answer is not a JSON object")


def not_served(peer: Peer) -> list[str]:
    """Names that `peer` exports and yet does not serve when it is preloaded; ["malloc", ...] when it does not load."""
    found = ask(peer, ["owners"])
    wanted = peer.exports or discover.CORE_NAMES
    if "owners" in found.failures:
        return list(wanted)
    own = [name for name in wanted if peer.path is None or found.is_own(name)]
    # __libc_* is glibc's private border: a program that asks for it by name and version gets glibc's.
    return [name for name in wanted if name not in own and not name.startswith("__libc_")]


Judge = Callable[[PeerAnswers], str]


def _shown(question: str, say: Callable[[Answer], str]) -> Judge:
    """What `say` makes of an answer; of none how the question ended."""

    def judge(found: PeerAnswers) -> str:
        if question in found.failures:
            return found.failures[question].partition(":")[0]
        return say(found.answers[question]) if question in found.answers else ""

    return judge


def _flag(question: str, key: str, yes: str = "yes", no: str = "no") -> Judge:
    return _shown(question, lambda answer: yes if answer[key] else no)


def _value(question: str, *keys: str) -> Judge:
    return _shown(question, lambda answer: "/".join(str(answer[key]) for key in keys))


def refusals_broken(found: PeerAnswers) -> dict[str, str]:
    """The requests that must answer NULL with ENOMEM and do not, and what happens instead."""
    wrong = {}
    for name in REFUSALS:
        answer = found.answers.get(name)
        if name in found.failures:
            wrong[name] = found.failures[name]
        elif answer is not None and not answer["null"]:
            wrong[name] = "answers a block"
        elif answer is not None and answer["errno"] != errno.ENOMEM:
            wrong[name] = f"sets {errno.errorcode.get(answer['errno'], 'no errno')}"
    return wrong


def _refusals(found: PeerAnswers) -> str:
    broken = refusals_broken(found)
    return f"{len(REFUSALS) - len(broken)} of {len(REFUSALS)}"


def remarks(found: PeerAnswers) -> list[str]:
    """Remarks that are too long for the cells of the matrix."""
    crashes = [f"{question}: {reason}" for question, reason in found.failures.items() if question not in REFUSALS]
    broken: dict[str, list[str]] = {}
    for name, what in refusals_broken(found).items():
        broken.setdefault(what, []).append(name)
    return [*crashes, *(f"{', '.join(names)}: {what}, not NULL with ENOMEM" for what, names in broken.items())]


def _missing_names(found: PeerAnswers) -> str:
    wanted = ("posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc", "malloc_usable_size")
    if "owners" in found.failures:
        return found.failures["owners"]
    return " ".join(name for name in (*discover.CORE_NAMES, *wanted, *STATISTICS) if not found.is_own(name))


def _own_operators(found: PeerAnswers) -> str:
    own = sum(found.is_own(name) for name in discover.OPERATOR_NAMES)
    return f"{own}/{len(discover.OPERATOR_NAMES)}" if own else "by libstdc++"


def _own_extras(found: PeerAnswers) -> str:
    extras = ("free_sized", "reallocarray", "malloc_size", "malloc_good_size", "mallctl", "nallocx", "sdallocx")
    return " ".join(name for name in extras if found.is_own(name))


def statistics_truth(found: PeerAnswers, name: str) -> str:
    """One word on `name`: "true", "zero", "empty", "unmoved" (figures that never change), "wrong", "glibc's" (of
    another heap), or the signal that ended the process."""
    if not found.is_own(name):
        return "glibc's"
    if name in found.failures:
        return found.failures[name].partition(":")[0]
    answer = found.answers.get(name, {})
    if name == "malloc_trim":
        grown = answer["resident_full"] - answer["resident_trimmed"]
        return "true" if grown >= 0.8 * answer["requested"] else "keeps"
    if name == "mallopt":
        return "accepts" if answer["mmap_threshold"] == 1 else "refuses"
    if name in ("mallinfo", "mallinfo2"):
        return _judge_numbers(answer)
    return _judge_text(answer)


def _within(grown: float, requested: float) -> bool:
    return _LEAST * requested <= grown <= _MOST * requested


def _judge_numbers(answer: Answer) -> str:
    grown = answer["in_use_during"] - answer["in_use_before"]
    left = answer["in_use_after"] - answer["in_use_before"]
    if _within(grown, answer["requested"]) and abs(left) <= 0.1 * answer["requested"]:
        return "true"
    everything = [value for key, value in answer.items() if key != "requested"]
    return "wrong" if any(everything) else "zero"


def _judge_text(answer: Answer) -> str:
    before, during = numbers_by_label(answer["before"]), numbers_by_label(answer["during"])
    if any(_within(value - before.get(label, 0.0), answer["requested"]) for label, value in during.items()):
        return "true"
    if not during:
        return "empty"
    if not any(during.values()):
        return "zero"
    return "wrong" if before != during else "unmoved"


_NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?:\s*(KiB|MiB|GiB|kB|KB|MB|K|M|G)\b)?")
_UNITS = {"": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30}
_UNITS |= {"kB": 2.0**10, "KB": 2.0**10, "MB": 2.0**20}
_PAIR = re.compile(r'size="(\d+)" count="(\d+)"')


def numbers_by_label(text: str) -> dict[str, float]:
    """Every figure of a report in bytes, under the line that it stands in, its place there, and its occurrence.

    Lists of `size="…" count="…"` have lines that come and go, so they stand as one figure: their sum.
    """
    found: dict[str, float] = {}
    seen: dict[str, int] = {}
    for line in text.splitlines():
        skeleton = " ".join(_NUMBER.sub("#", line).split())
        nth = seen[skeleton] = seen.get(skeleton, 0) + 1
        for place, match in enumerate(_NUMBER.finditer(line)):
            found[f"{skeleton}|{place}|{nth}"] = float(match[1]) * _UNITS[match[2] or ""]
    pairs = [int(size) * int(count) for size, count in _PAIR.findall(text)]
    if pairs:
        found["sum of size times count"] = float(sum(pairs))
    return found


# The tables of the matrix: by heading, how a column is filled from a peer's answers.
TABLES: dict[str, dict[str, Judge]] = {
    "Names": {"not its own (glibc's)": _missing_names, "operators": _own_operators, "more": _own_extras},
    "Rules": {
        "realloc(p,0)": _flag("zero", "realloc_to_0_not_null", "block", "NULL"),
        "malloc(0)": _flag("zero", "malloc_0_unique", "unique", "shared"),
        "align 1-7/8-15/16+": _value("alignment", "malloc_1_to_7", "malloc_8_to_15", "malloc_16_to_2000"),
        "aligned up to": _shown("alignment", lambda answer: f"{answer['posix_memalign_up_to'] // 1024} KiB"),
        "pvalloc": _flag("pvalloc", "whole_page", "whole page", "short"),
        "aligned_alloc(48)": _flag("alignment", "aligned_alloc_48_null", "NULL", "block"),
        "NULL and ENOMEM": _refusals,
        "realloc fails, keeps": _flag("realloc_huge", "keeps_block"),
        "free keeps errno": _flag("free_errno", "keeps_errno"),
        "usable 1/100": _value("usable", "of_1", "of_100"),
        "calloc 0": _flag("content", "calloc_zero"),
        "new_handler": _flag("operators", "new_handler_retried"),
    },
    "Statistics": {name: partial(statistics_truth, name=name) for name in STATISTICS},
}


def matrix(found: PeerAnswers) -> dict[str, str]:
    """Every column of every table for one peer."""
    return {heading: judge(found) for columns in TABLES.values() for heading, judge in columns.items()}
