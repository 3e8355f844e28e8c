"""`freestone run`: a program under libfreestone."""

from __future__ import annotations

from argparse import Namespace

from freestone_lab.heap import runner


def run(options: Namespace) -> None:
    runner.execute(runner.prepare(options.command, stats=options.stats, hardened=options.hardened))
