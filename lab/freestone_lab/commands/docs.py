"""`freestone docs`: the documents that come from sources and stored results."""

from __future__ import annotations

from argparse import Namespace

from freestone_lab.core import paths
from freestone_lab.docs import (
    attack_tables,
    benchmarks,
    cost_curve,
    enumerated_table,
    fidelity_table,
    memory_table,
    program_table,
    sentences,
    tuning,
)

MODULES = (
    tuning,
    benchmarks,
    cost_curve,
    attack_tables,
    enumerated_table,
    memory_table,
    program_table,
    fidelity_table,
    sentences,
)


def run(options: Namespace) -> int:
    if not options.check:
        for module in MODULES:
            for path in module.write(paths.root()):
                print(f"written: {path}")
        return 0
    stale = [line for module in MODULES for line in module.outdated(paths.root())]
    for line in stale:
        print(line)
    return 1 if stale else 0
