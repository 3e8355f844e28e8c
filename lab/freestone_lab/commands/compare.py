"""`freestone compare`: which allocator is best for this program, on this machine."""

import shlex
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from freestone_lab.analysis.inference import SAME
from freestone_lab.commands import places, sitting
from freestone_lab.core import outputs, units
from freestone_lab.core.errors import UserError
from freestone_lab.engine import preparation
from freestone_lab.engine.budget import Budget, measuring_s
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.host import target
from freestone_lab.peers import packages
from freestone_lab.report.board import ask_for_more
from freestone_lab.workloads import defaults

QUICK_BUDGET_S = 15.0
BUDGET_S = 60.0
JOBS_BUDGET_S = 150.0  # of the default programs together
PRECISE_BUDGET_S = 600.0


def plan_from(options: Namespace, default_s: float = BUDGET_S) -> tuple[Plan, Budget]:
    """The stop rule and the time that the options describe. UserError names an option that makes no sense."""
    asked_s = None if options.budget is None else units.seconds(options.budget, "--budget")
    asked = "" if asked_s is None else f"--budget {options.budget}"
    usual_s = PRECISE_BUDGET_S if options.precision else QUICK_BUDGET_S if options.quick else default_s
    wanted = SAME if options.precision is None else units.fraction(options.precision, "--precision")
    seed = preparation.fresh_seed() if options.seed is None else options.seed
    if options.rounds:
        limit_s = None if asked_s is None else measuring_s(asked_s)
        return Plan(rounds=options.rounds, seed=seed), Budget(limit_s, asked=asked)
    budget = Budget(measuring_s(asked_s or usual_s), ask=ask_for_more, asked=asked)
    return Plan(decide=True, precision=wanted, seed=seed), budget


def user_task(options: Namespace) -> tuple[Task, list[Path]]:
    """The user's command as a task, and the programs behind it."""
    argv, unwrapped = target.behind_shim(options.command)
    if options.shell:
        argv = ["/bin/sh", "-c", " ".join(argv)]
    found = target.resolve(argv)
    outputs = getattr(options, "output_file", [])
    if options.stdin is not None and not options.stdin.is_file():
        why = "it is a folder; expected a file" if options.stdin.is_dir() else "no such file"
        raise UserError(f"--stdin '{options.stdin}': {why}")
    for path in outputs:
        if path.is_dir():
            raise UserError(f"--output-file '{path}': it is a folder; expected a file that the program writes")
    task = Task(
        id=Path(options.command[0]).name,
        workload=shlex.join(options.command),
        argv=tuple(argv),
        cwd=Path.cwd(),
        stdin=options.stdin,
        output_files=tuple(outputs),
        expect_exit=getattr(options, "expect_exit", 0),
        timeout_s=units.seconds(options.timeout, "--timeout") if options.timeout else None,
        caveats=(*([unwrapped] if unwrapped else []), *found.caveats),
        prepare=options.prepare,
        cleanup=options.cleanup,
        ignore_failure=options.ignore_failure,
        watched=True,
    )
    return task, [found.path, *found.interpreters, found.image]


def run(options: Namespace) -> int:
    plan, budget = plan_from(options, BUDGET_S if options.command else JOBS_BUDGET_S)
    named = bool(options.command)
    plan = replace(plan, counts=options.counts, warmup=options.warmup, name_own=named, aged=options.aged)
    say = preparation.to_stderr
    to = places.places("compare", options)
    own = user_task(options) if options.command else None
    wanted = [] if own else packages.missing_programs(defaults.PROGRAMS)
    wanted += packages.missing_peers(options.only)
    preparation.get_ready(wanted, budget.seconds, options.install, say, *options.with_, *options.only)
    with outputs.Scratch("out") as scratch:
        tasks = [own[0]] if own else defaults.tasks(Path(scratch), options.quick, say)
        programs = own[1] if own else [target.resolve(t.argv).image for t in tasks]
        chosen = preparation.choose_peers(options.with_, options.only, options.option)
        return sitting.hold([(t, plan) for t in tasks], chosen, to, budget, "card", programs)
