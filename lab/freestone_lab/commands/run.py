"""`freestone run`: runs a program under libfreestone. `freestone lib`: says where the library lies."""

from argparse import Namespace

from freestone_lab.heap import runner


def run(options: Namespace) -> None:
    runner.execute(runner.prepare(options.command, stats=options.stats, hardened=options.hardened))


def print_library(options: Namespace) -> None:
    print(runner.library(options.hardened))
