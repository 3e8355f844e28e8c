"""`freestone bench memory-calls`: arguments in, table and file out."""

from __future__ import annotations

from argparse import Namespace

from freestone_lab.core import outputs
from freestone_lab.core.result_file import save
from freestone_lab.docs import memory_table
from freestone_lab.engine import preparation
from freestone_lab.workloads import memory_cost


def run(options: Namespace) -> int:
    say = preparation.to_stderr
    path = outputs.usable(options.output or outputs.new_name("memory-calls", ".json"), say)
    result = memory_cost.run()
    outputs.write(path, lambda place: save(result, place), say)
    print(memory_table.table(result))
    print(f"written: {path}")
    return 0
