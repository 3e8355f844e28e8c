"""`freestone report`: result files as an HTML page."""

from __future__ import annotations

from argparse import Namespace

from freestone_lab.core import outputs
from freestone_lab.core.result_file import load
from freestone_lab.report import write_report


def run(options: Namespace) -> None:
    first = options.results[0]
    derived = first.with_name(first.name.removesuffix(".gz")).with_suffix(".html")
    target = options.output or outputs.ours(derived, options.force)
    write_report([load(path) for path in options.results], target)
    print(f"written: {target}")
