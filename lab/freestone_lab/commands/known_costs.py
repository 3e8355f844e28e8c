"""`freestone bench known-costs`: arguments in, rates and file out."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace

from freestone_lab.commands import compare
from freestone_lab.core import builds, outputs
from freestone_lab.core.errors import UserError
from freestone_lab.core.signals import ends_are_kept
from freestone_lab.engine import preparation
from freestone_lab.report import terminal
from freestone_lab.workloads import cost_trials, defaults


def run(options: Namespace) -> int:
    say = preparation.to_stderr
    if options.command and not options.real:
        raise UserError("a program is measured with --real N sittings")
    if options.real:
        builds.built(cost_trials.CONTROL)
    path = outputs.usable(options.output or outputs.new_name("known-costs"), say)
    rates = cost_trials.simulated(options.times, say)
    if options.real:
        task = compare.user_task(options)[0] if options.command else defaults.python()
        with ends_are_kept(), terminal.progress(terminal.console(stderr=True), 1) as tell:
            found = cost_trials.real(task, cost_trials.REAL_COSTS, options.real, tell, say)
        rates = replace(rates, judgements=[*rates.judgements, *found])
    outputs.write(path, lambda place: outputs.write_whole(place, json.dumps(rates.stored(), indent=1) + "\n"), say)
    print("\n".join(rates.lines()))
    print(f"written: {path}")
    return 0
