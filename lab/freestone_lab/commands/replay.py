"""`freestone replay`: runs a program's recorded calls under any allocator, and judges as `compare` does."""

from argparse import Namespace

from freestone_lab.commands import compare, places, sitting
from freestone_lab.core import builds
from freestone_lab.core.errors import UserError
from freestone_lab.engine import preparation
from freestone_lab.peers import packages
from freestone_lab.trace import recording, replaying


def run(options: Namespace) -> int:
    plan, budget = compare.plan_from(options)
    if options.pace != 0 and not 0.001 <= options.pace <= 1000:  # not a number is neither
        raise UserError(f"--pace {options.pace:g}: expected 0, as fast as possible, or 0.001 to 1000 times as recorded")
    way = replaying.Way(options.pace, options.threads, options.process)
    tasks = [replaying.task(path, way) for path in options.traces]
    say = preparation.to_stderr
    to = places.places("replay", options)
    asked = (*options.with_, *options.only)
    preparation.get_ready(packages.missing_peers(options.only), budget.seconds, options.install, say, *asked)
    chosen = preparation.choose_peers(options.with_, options.only, options.option)
    programs = [builds.built(recording.REPLAYER)]
    return sitting.hold([(task, plan) for task in tasks], chosen, to, budget, programs=programs)
