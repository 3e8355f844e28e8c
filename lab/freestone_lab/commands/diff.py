"""`freestone diff`: what changed between two results, with gates for CI."""

from __future__ import annotations

from argparse import Namespace

from freestone_lab.analysis import changes as differ
from freestone_lab.core.result_file import load
from freestone_lab.report import terminal

UNJUDGED = 3  # the exit status of a gate that too few or too noisy values leave open


def run(options: Namespace) -> int:
    gates = [differ.parse_gate(text) for text in options.fail_if]
    found = differ.compare(
        load(options.a),
        load(options.b),
        absolute=options.absolute,
        peers=options.peer,
        figures=[g.figure for g in gates],
    )
    objections = differ.failures(found, gates)
    terminal.show_changes(terminal.console(), found, objections)
    return 1 if objections.worse else UNJUDGED if objections.unjudged else 0
