"""The table of abilities: what the addresses of freed and of fresh blocks tell an attacker, under each allocator.

Its rows are the figures of the suite `hardening`, in the words below.
"""

import re
from collections.abc import Sequence
from statistics import median

from freestone_lab.analysis import paired
from freestone_lab.core.result import Experiment, Result
from freestone_lab.docs.pages import below, cell_text, command_text
from freestone_lab.report.overview import failures_of

# A figure, and what its row says of the sizes in its name.
WORDS = {
    r"alone_(\d+)_least": "pairs of {} B until a freed address returns, alone",
    r"beside_(\d+)_least": "pairs of {} B until a freed address returns, beside 8 threads in 31 other sizes",
    r"rested_(\d+)_least": "held blocks of {} B until a freed address returns, after {rest} ms of rest",
    r"ended_(\d+)_least": "held blocks of {} B until an address returns that an ended thread freed",
    r"guessed_(\d+)": "right guesses at the next block of {} B, %",
    r"crossed_(\d+)_(\d+)": "addresses of freed blocks of {} B inside new blocks of {} B, %",
    "small_from_code": "different distances from libc's code to the first block of 24 B",
    "huge_from_code": "different distances from libc's code to a block of 64 MiB",
    "small_from_large": "different distances from the first block of 24 B to one of 100,000 B",
}


def text(result: Result) -> str:
    peers = [peer for peer in result.peers if peer.kind != "control"]
    peers.sort(key=lambda peer: peer.name == result.baseline)  # that one last
    names = [peer.name for peer in peers]
    rows = [row for experiment in result.experiments for row in _rows(experiment, names)]
    rounds = max((s.round for e in result.experiments for s in e.samples), default=0)
    said = (
        f"`{command_text(result.command)}` (`docs/results/attacks/reuse.json.gz`, {rounds} rounds, each with "
        "repetitions). Pairs and held blocks: the least and the median, more is better. Different distances: the least "
        "of the rounds, more is better. Percent: the median of the rounds, less is better. "
        f"Versions: {', '.join(f'{peer.name} {peer.version}' for peer in peers)}."
    )
    failed = dict.fromkeys(
        f"- {failure.peer} in {failure.experiment}: {cell_text(failure.detail)}"
        for experiment in result.experiments
        for failure in failures_of(experiment)
    )
    return "\n".join([below(said, ["", *names], rows), *([""] if failed else []), *failed])


def _rows(experiment: Experiment, peers: Sequence[str]) -> list[list[str]]:
    rows = []
    for figure in experiment.specs:
        for pattern, words in WORDS.items():
            if found := re.fullmatch(pattern, figure):
                said = words.format(*(f"{int(size):,}" for size in found.groups()), **experiment.params)
                rows.append([said, *(_cell(experiment, peer, figure) for peer in peers)])
    return rows


def _cell(experiment: Experiment, peer: str, figure: str) -> str:
    if any(failure.peer == peer for failure in failures_of(experiment)):
        return "fails"
    values = list(paired.values(experiment, peer, figure).values())
    if not values:
        return "-"
    unit = experiment.specs[figure].unit
    if unit == "values":
        return f"{min(values):.0f} of {experiment.params['rounds']}"
    if unit == "%":
        return f"{median(values):.1f}"
    cap = int(experiment.params["cap"])
    medians = paired.values(experiment, peer, figure.replace("_least", "_median")).values()
    shown = [f"{value:,.0f}" if value <= cap else f"never in {cap:,}" for value in (min(values), median(medians))]
    return " / ".join(dict.fromkeys(shown))
