"""`freestone advise`: what to use for this program, in one card."""

import re
import shlex
import signal
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from freestone_lab.commands import compare, places, sitting
from freestone_lab.core import units
from freestone_lab.core.errors import UserError
from freestone_lab.engine import preparation
from freestone_lab.engine.budget import Budget
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.host import target
from freestone_lab.measure import recognise, tree
from freestone_lab.measure.recognise import Look
from freestone_lab.measure.server import Server, ready_of
from freestone_lab.peers import packages
from freestone_lab.report.board import ask_for_more
from freestone_lab.trace import replaying

LIMIT_S, SERVER_LIMIT_S = 90.0, 120.0  # with a first build, the answer is there within three minutes
REACH = 4  # a default limit grows to so many times itself, if the least look at everybody takes that
MOST_ROUNDS = 1000


def _words(text: str, option: str) -> tuple[str, ...]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"{option} '{text}': {error}") from None
    if not words:
        raise UserError(f"{option} '': expected a command")
    return tuple(words)


def _shelled(argv: list[str], options: Namespace) -> tuple[str, ...]:
    return ("/bin/sh", "-c", " ".join(argv)) if options.shell else tuple(argv)


def _stop_signal(text: str) -> signal.Signals:
    name = text.upper().removeprefix("SIG")
    try:
        return signal.Signals[f"SIG{name}"] if not name.isdecimal() else signal.Signals(int(name))
    except (KeyError, ValueError):
        raise UserError(f"--stop '{text}': expected a signal such as TERM, INT or QUIT") from None


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groups if text else 1
    except re.error as error:
        raise UserError(f"--requests-from '{text}': {error}") from None
    if groups != 1:
        raise UserError(f"--requests-from '{text}': expected a pattern with one group, such as '([0-9]+) requests'")
    return text


def _server_task(options: Namespace) -> tuple[Task, list[Path]]:
    for option in ("ready", "load"):
        if getattr(options, option) is None:
            raise UserError(f"--server needs --{option}; see freestone advise --help")
    argv = list(_words(options.server, "--server"))
    idle = 0.0 if options.idle in ("0", "0s") else units.seconds(options.idle, "--idle")
    load = ("/bin/sh", "-c", options.load) if options.shell else _words(options.load, "--load")
    target.resolve(load)
    task = Task(
        id=Path(argv[0]).name,
        workload=options.server,
        argv=_shelled(argv, options),
        cwd=Path.cwd(),
        timeout_s=units.seconds(options.timeout, "--timeout") if options.timeout else None,
        server=Server(
            ready_of(options.ready),
            load,
            _stop_signal(options.stop),
            idle,
            requests_from=_pattern(options.requests_from),
        ),
        prepare=options.prepare,
        cleanup=options.cleanup,
        ignore_failure=options.ignore_failure,
    )
    found = target.resolve(task.argv)
    return replace(task, caveats=tuple(found.caveats)), [found.path, *found.interpreters, found.image]


def _running(pid: int) -> tuple[list[str], Path, dict[str, str]]:
    """The command, folder and environment of a running process."""
    folder = Path(f"/proc/{pid}")
    try:
        argv = [w.decode(errors="replace") for w in (folder / "cmdline").read_bytes().split(b"\0") if w]
        pairs = (w.decode(errors="replace").partition("=") for w in (folder / "environ").read_bytes().split(b"\0"))
        return argv, (folder / "cwd").readlink(), {k: v for k, _, v in pairs if k and not k.startswith("LD_")}
    except FileNotFoundError:
        raise UserError(f"--pid {pid}: no such process") from None
    except PermissionError:
        raise UserError(f"--pid {pid}: it belongs to somebody else; run this as its user or as root") from None


def _about_running(options: Namespace) -> tuple[Task, list[Path]]:
    """To measure a running process, its command starts again. A server must be loaded instead."""
    argv, cwd, env = _running(options.pid)
    if not argv:
        raise UserError(f"--pid {options.pid}: a process of the kernel, which has no malloc")
    pids = [options.pid, *tree.descendants(options.pid)]
    serving = tree.listening(pids)
    own = next((p for p in tree.mapped(options.pid) if recognise.allocator_name(p) in recognise.FAMILIES), None)
    threads = len(list(Path(f"/proc/{options.pid}/task").iterdir()))
    kind: recognise.Kind = "server" if serving else "batch"
    look = Look(tree.program_of(options.pid), kind, 0.0, threads, len(pids), serving, own=own)
    if serving:
        print(look.words())
        raise UserError(
            f"process {options.pid} serves {serving.words()}; a copy of it on another port, measured under load:\n"
            f"    {recognise.advice(argv, serving)}"
        )
    options.command = argv
    task, programs = compare.user_task(options)
    return replace(task, cwd=cwd, env=env), programs


def task_of(options: Namespace) -> tuple[Task, list[Path]]:
    """What to measure, as the options say it (a command, a server, a process that runs), and the programs behind it."""
    given = [name for name in ("command", "server", "pid", "trace") if getattr(options, name)]
    if len(given) != 1:
        raise UserError("advise needs one of: -- CMD, --server 'CMD', --pid N, --trace FILE")
    if options.trace:
        task = replaying.task(options.trace, replaying.Way())
        return task, [Path(task.argv[0])]
    if options.server:
        return _server_task(options)
    return _about_running(options) if options.pid else compare.user_task(options)


def _budget(options: Namespace, task: Task) -> Budget:
    if options.budget:
        limit_s = units.seconds(options.budget, "--budget")
        return Budget(limit_s, ask=ask_for_more, asked=f"--budget {options.budget}")
    usual = SERVER_LIMIT_S if task.server else LIMIT_S
    return Budget() if options.runs else Budget(usual, REACH * usual, ask_for_more)


def run(options: Namespace) -> int:
    task, programs = task_of(options)
    budget = _budget(options, task)
    plan = Plan(
        rounds=options.runs or MOST_ROUNDS, decide=True, warmup=options.warmup, name_own=True,
        seed=preparation.fresh_seed() if options.seed is None else options.seed,
        share=not options.runs and not options.trace,
    )  # fmt: skip
    to = places.places("advise", options)
    missing, say = packages.missing_peers(options.only), preparation.to_stderr
    preparation.get_ready(missing, budget.seconds, options.install, say, *options.with_, *options.only)
    chosen = preparation.choose_peers(options.with_, options.only, options.option)
    return sitting.hold([(task, plan)], chosen, to, budget, "card only", programs, options.adopt)
