"""`freestone compare`: which allocator is best for this program, on this machine."""

from __future__ import annotations

import shlex
import sys
import tempfile
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from freestone_lab.analysis.decision import Decision, Evidence
from freestone_lab.analysis.inference import SAME
from freestone_lab.commands import places, sitting
from freestone_lab.core import units
from freestone_lab.core.errors import UserError
from freestone_lab.core.signals import ends_are_kept
from freestone_lab.engine import preparation, session
from freestone_lab.engine.plan import Plan, Task, measuring_s
from freestone_lab.host import target
from freestone_lab.peers import packages
from freestone_lab.report import terminal
from freestone_lab.report.board import ask_for_more
from freestone_lab.workloads import defaults

QUICK_BUDGET_S = 15.0
BUDGET_S = 60.0
JOBS_BUDGET_S = 150.0  # of the default programs together
PRECISE_BUDGET_S = 600.0
PRECISION = SAME  # each ratio is to be known within this


def plan_from(
    budget: str | None, precision: str | None, rounds: int | None, quick: bool, seed: int | None,
    default_s: float = BUDGET_S,
) -> tuple[Plan, float | None]:  # fmt: skip
    """The stop rule and the limit that the options describe. UserError names an option that makes no sense."""
    asked_s = None if budget is None else units.seconds(budget, "--budget")
    usual_s = PRECISE_BUDGET_S if precision else QUICK_BUDGET_S if quick else default_s
    wanted = units.fraction(precision, "--precision") if precision is not None else PRECISION
    chosen = preparation.fresh_seed() if seed is None else seed
    if rounds:
        return Plan(rounds=rounds, seed=chosen), None if asked_s is None else measuring_s(asked_s)
    return Plan(decide=True, precision=wanted, seed=chosen), measuring_s(asked_s or usual_s)


def user_task(options: Namespace) -> tuple[Task, list[Path]]:
    """The user's command as a task, and the programs behind it."""
    argv, unwrapped = target.behind_shim(options.command)
    if options.shell:
        argv = ["/bin/sh", "-c", " ".join(argv)]
    found = target.resolve(argv)
    if options.stdin is not None and not options.stdin.is_file():
        raise UserError(f"--stdin '{options.stdin}': no such file")
    for path in options.output_file:
        if path.is_dir():
            raise UserError(f"--output-file '{path}': it is a folder; expected a file that the program writes")
    task = Task(
        id=Path(options.command[0]).name,
        workload=shlex.join(options.command),
        argv=tuple(argv),
        cwd=Path.cwd(),
        stdin=options.stdin,
        output_files=tuple(options.output_file),
        expect_exit=options.expect_exit,
        timeout_s=units.seconds(options.timeout, "--timeout") if options.timeout else None,
        caveats=(*([unwrapped] if unwrapped else []), *found.caveats),
        prepare=options.prepare,
        cleanup=options.cleanup,
        ignore_failure=options.ignore_failure,
        watched=True,
    )
    return task, [found.path, *found.interpreters]


def more(evidence: Evidence, decision: Decision, round_s: float) -> float:
    """If the decision is still open, asks whether to go on. Returns the seconds that the user grants."""
    return 0.0 if decision.settled else ask_for_more((decision.more_rounds or evidence.rounds) * round_s)


def run(options: Namespace) -> int:
    plan, limit_s = plan_from(
        options.budget, options.precision, options.rounds, options.quick, options.seed,
        BUDGET_S if options.command else JOBS_BUDGET_S,
    )  # fmt: skip
    plan = replace(plan, counts=options.counts, warmup=options.warmup, name_own=bool(options.command))
    say = preparation.to_stderr
    to = places.places("compare", options)
    with tempfile.TemporaryDirectory(prefix="freestone-out-") as scratch, ends_are_kept() as ended:
        wanted = [] if options.command else packages.missing_programs(defaults.PROGRAMS)
        preparation.get_ready([*wanted, *packages.missing_peers()], limit_s, options.install, say)
        if options.command:
            task, programs = user_task(options)
            tasks = [task]
        else:
            tasks = defaults.tasks(Path(scratch), options.quick, say)
            programs = [target.resolve(t.argv).image for t in tasks]
        chosen = preparation.choose_peers(options.with_, options.only, options.option)
        with terminal.progress(terminal.console(stderr=True), len(tasks)) as tell:
            outcome = session.run(
                [(t, plan) for t in tasks], chosen, ["freestone", *sys.argv[1:]], tell, programs=programs, say=say,
                keep=to.keep, more=more, limit_s=limit_s,
            )  # fmt: skip
    return sitting.finish(outcome, to, ended, answer=True)
