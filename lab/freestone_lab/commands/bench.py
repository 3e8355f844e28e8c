"""`freestone bench`: the suites of workloads and real programs, under every allocator."""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from freestone_lab.analysis.claims import tables
from freestone_lab.commands import places, sitting
from freestone_lab.core import outputs, units
from freestone_lab.core.errors import UserError
from freestone_lab.engine import preparation
from freestone_lab.engine.budget import Budget, measuring_s
from freestone_lab.engine.plan import Task
from freestone_lab.report import terminal, write_report
from freestone_lab.trace import cluster, corpus
from freestone_lab.workloads import apps
from freestone_lab.workloads import tasks as bencher
from freestone_lab.workloads.apps import APPS
from freestone_lab.workloads.suites import SUITES

TRACES = "traces"


def _tasks(wanted: list[str], program: Path, say: Callable[[str], None]) -> list[Task]:
    """`traces` is the corpus, `traces/NAME` one trace of it. Any other name is a suite, a workload or a program."""
    others = [name for name in wanted if name.partition("/")[0] != TRACES]
    tasks = bencher.select(others, program, say) if others else []
    if TRACES in wanted:
        return [*tasks, *corpus.tasks()]
    one = [name.partition("/")[2] for name in wanted if name.startswith(f"{TRACES}/")]
    return [*tasks, *(corpus.tasks(one) if one else [])]


def _on_cluster(options: Namespace, wanted: list[str]) -> int:
    """Runs the corpus on a Dask cluster: a result file for each machine, and one page about all of them."""
    if any(name.partition("/")[0] != TRACES for name in wanted) or options.part or options.aged is not None:
        raise UserError("--cluster runs traces: expected `bench traces` or `bench traces/NAME`, no --part, no --aged")
    names = [] if TRACES in wanted else [name.partition("/")[2] for name in wanted]
    arguments = ["--rounds", str(options.rounds or bencher.ROUNDS)]
    arguments += [] if options.seed is None else ["--seed", str(options.seed)]
    for option, values in (("--with", options.with_), ("--only", options.only), ("--option", options.option)):
        arguments += [word for value in values for word in (option, value)]
    work = [cluster.Work(path.stem, path.read_bytes(), tuple(arguments)) for path in corpus.traces(names)]
    store = options.resume or outputs.new_name("cluster", "")
    results = cluster.run(options.cluster, work, store, preparation.to_stderr)
    page = options.report or store / "report.html"
    analysed = [tables(result) for result in results.values()]
    write_report(list(results.values()), page, tables=analysed)
    for result, found in zip(results.values(), analysed, strict=True):
        sitting.show(result, found)
    terminal.show_written(terminal.console(), [*sorted(store.glob("*.json.gz")), page])
    return 0


def run(options: Namespace) -> int:
    if options.resume and not options.cluster:
        raise UserError(f"--resume '{options.resume}': expected --cluster ADDRESS as well")
    if options.cluster:
        return _on_cluster(options, options.names or [TRACES])
    say = preparation.to_stderr
    if not options.listing:
        preparation.get_ready([], None, False, say, *options.with_, *options.only)
    program = bencher.workload_program()
    if options.listing:
        here = {app.name for app in apps.available([])[0]}
        installed = {app.name: app.name in here for app in APPS}
        terminal.show_suites(terminal.console(), SUITES, bencher.workloads(program), installed)
        return 0
    wanted = options.names or [bencher.DEFAULT_SUITE]
    if options.rounds and options.budget:
        raise UserError("--rounds and --budget: expected one of them, the budget decides the rounds")
    limit_s = measuring_s(units.seconds(options.budget, "--budget")) if options.budget else None
    plan = bencher.plan(options.rounds, preparation.fresh_seed() if options.seed is None else options.seed)
    plan = replace(plan, aged=options.aged)
    plans = [(task, plan) for task in _tasks(wanted, program, say)[options.part or slice(None)]]
    if not plans:
        raise UserError("--part: no row is left, there are fewer rows than parts")
    everyone = not options.with_ and not options.only and wanted != [bencher.DEFAULT_SUITE]
    chosen = preparation.choose_peers(["all"] if everyone else options.with_, options.only, options.option)
    if not options.no_null:
        chosen = bencher.with_null(chosen)
    to = places.places("bench", options)
    say(bencher.forecast([task for task, _ in plans], chosen, plan, limit_s))
    return sitting.hold(plans, chosen, to, Budget(limit_s))
