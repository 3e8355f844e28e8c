"""`freestone report`, `freestone diff` and `freestone join`: what is made of result files."""

from argparse import Namespace

from freestone_lab.analysis import changes
from freestone_lab.analysis.claims import spoken, tables
from freestone_lab.analysis.joining import joined
from freestone_lab.commands import sitting
from freestone_lab.core import outputs
from freestone_lab.core.errors import UserError
from freestone_lab.core.result_file import load, save
from freestone_lab.engine import preparation
from freestone_lab.report import terminal, write_report

UNJUDGED = 3  # the exit status of a gate that too few or too noisy values leave open


def report(options: Namespace) -> None:
    """Result files as an HTML page."""
    first = options.results[0]
    derived = first.with_name(first.name.removesuffix(".gz")).with_suffix(".html")
    target = options.output or outputs.ours(derived, options.force, options.inputs)
    write_report([load(path) for path in options.results], target)
    print(f"written: {target}")


def diff(options: Namespace) -> int:
    """What changed between two results, with gates for CI."""
    gates = [changes.parse_gate(text) for text in options.fail_if]
    figures = [gate.figure for gate in gates]
    a, b = load(options.a), load(options.b)
    found = changes.compare(a, b, absolute=options.absolute, peers=options.peer, figures=figures)
    objections = changes.failures(found, gates)
    terminal.show_changes(terminal.console(), found, objections)
    return 1 if objections.worse else UNJUDGED if objections.unjudged else 0


def join(options: Namespace) -> None:
    """Result files of several labs as one."""
    if len(options.results) < 2:
        raise UserError("join needs two result files or more")
    target = outputs.usable(options.output or outputs.new_name("joined"), preparation.to_stderr)
    result = joined([load(path) for path in options.results])
    analysed = tables(result)
    result.claims = spoken(analysed)
    save(result, target)
    sitting.show(result, analysed)
    terminal.show_written(terminal.console(), [target])
