"""`freestone doctor`: is this machine fit to measure, and why not."""

from argparse import Namespace

from freestone_lab.engine import fitness as examiner
from freestone_lab.report import terminal


def run(_options: Namespace) -> int:
    with terminal.progress(terminal.console(stderr=True), 1) as tell:
        findings = examiner.examine(tell)
    terminal.show_findings(terminal.console(), findings)
    return 1 if any(f.state == "bad" for f in findings) else 0
