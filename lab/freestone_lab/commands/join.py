"""`freestone join`: result files of several labs as one."""

from __future__ import annotations

from argparse import Namespace

from freestone_lab.analysis.claims import spoken, tables
from freestone_lab.analysis.joining import joined
from freestone_lab.commands import sitting
from freestone_lab.core import outputs
from freestone_lab.core.errors import UserError
from freestone_lab.core.result_file import load, save
from freestone_lab.engine import preparation
from freestone_lab.report import terminal


def run(options: Namespace) -> None:
    if len(options.results) < 2:
        raise UserError("join needs two result files or more")
    target = outputs.usable(options.output or outputs.new_name("joined"), preparation.to_stderr)
    result = joined([load(path) for path in options.results])
    analysed = tables(result)
    result.claims = spoken(analysed)
    save(result, target)
    sitting.show(result, analysed)
    terminal.show_written(terminal.console(), [target])
