"""The data that flows through the lab: peers, samples, experiments, result files.

Every other module speaks in these types. A result file is one JSON object of the schema `freestone-result/1`;
`core/result_file.py` alone reads and writes it. A figure that was not measured is absent, never zero;
a run that failed stays in the file with its status.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "freestone-result/1"
AGAIN = " again"  # the baseline's second name: the A/A control

Status = Literal["ok", "failed", "timeout", "not_loaded", "wrong_output"]
Better = Literal["lower", "higher", "neither"]
PeerKind = Literal["libc", "preload", "control"]


def control_name(baseline: str) -> str:
    """The name of the baseline's second run."""
    return baseline + AGAIN


@dataclass(frozen=True)
class Peer:
    """An allocator that can serve a program. `path` is None for the program's own (glibc's) malloc."""

    name: str
    path: str | None
    kind: PeerKind = "preload"
    version: str = ""
    origin: str = ""  # the package, crate or build that it came from
    build_id: str = ""
    exports: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()  # environment that belongs to this variant
    note: str = ""


@dataclass(frozen=True)
class FigureSpec:
    """What a figure means: its unit ("s", "KiB", "ns", "ops/s", "count", "ratio") and which direction is better."""

    unit: str
    better: Better = "lower"
    label: str = ""


@dataclass
class Sample:
    """One fresh process under one peer. `figures` maps a figure's name to its value; `series` holds curves."""

    peer: str
    round: int
    status: Status
    detail: str = ""  # why it is not ok, in one line
    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[list[float]]] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)  # noise: steal, load, involuntary switches
    counts: dict[str, int] = field(default_factory=dict)  # number of observations behind a figure, failures seen


@dataclass
class Experiment:
    """One workload with fixed parameters, run under every peer for a number of rounds."""

    id: str  # e.g. "lifetimes/threads=2"; unique in the file
    workload: str
    params: dict[str, Any] = field(default_factory=dict)
    specs: dict[str, FigureSpec] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)  # the figures that decide, memory last; empty: by what it has
    not_run: dict[str, str] = field(default_factory=dict)  # allocators that were not measured, and why
    made_of: dict[str, Any] = field(default_factory=dict)  # command line, program and inputs, with version and hashes
    rounds_fixed: bool | None = None  # before the first run, and all were run; None: the command says it (result_file)


@dataclass(frozen=True)
class Claim:
    """What a figure of one allocator says against the baseline. It repeats what the samples say, for other programs.

    `low` and `high` hold together with those of all claims of the experiment at 95 %; None while nothing is known.
    """

    experiment: str
    peer: str
    figure: str
    ratio: float
    low: float | None
    high: float | None
    pairs: int
    verdict: str


@dataclass
class Result:
    """A result file: who was measured, where, how, and every sample."""

    created: str
    command: list[str]
    seed: int
    fingerprint: dict[str, Any]
    peers: list[Peer]
    experiments: list[Experiment] = field(default_factory=list)
    baseline: str = "glibc"
    schema: str = SCHEMA
    claims: list[Claim] = field(default_factory=list)  # of the figures that each experiment's table shows
