"""`freestone advise`: what to use for this program, in one card."""

from __future__ import annotations

import shlex
import signal
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from freestone_lab.analysis.decision import Decision, Evidence
from freestone_lab.core import outputs, units
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import save
from freestone_lab.core.signals import ends_are_kept
from freestone_lab.engine import preparation
from freestone_lab.engine.advice import Advice, Adviser
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.host import target
from freestone_lab.measure import recognise, tree
from freestone_lab.measure.recognise import Look
from freestone_lab.measure.server import Server, ready_of
from freestone_lab.peers import packages, variants
from freestone_lab.report import card, terminal, write_report
from freestone_lab.report.board import ask_for_more, board
from freestone_lab.trace import replaying

LIMIT_S, SERVER_LIMIT_S = 90.0, 120.0  # with a first build, the answer is there within three minutes
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


def _server_task(options: Namespace) -> Task:
    for option in ("ready", "load"):
        if getattr(options, option) is None:
            raise UserError(f"--server needs --{option}; see freestone advise --help")
    argv = list(_words(options.server, "--server"))
    idle = 0.0 if options.idle in ("0", "0s") else units.seconds(options.idle, "--idle")
    load = ("/bin/sh", "-c", options.load) if options.shell else _words(options.load, "--load")
    target.resolve(load)
    return Task(
        id=Path(argv[0]).name,
        workload=options.server,
        argv=_shelled(argv, options),
        cwd=Path.cwd(),
        timeout_s=units.seconds(options.timeout, "--timeout") if options.timeout else None,
        server=Server(ready_of(options.ready), load, _stop_signal(options.stop), idle),
    )


def _batch_task(options: Namespace) -> Task:
    argv, unwrapped = target.behind_shim(options.command)
    return Task(
        id=Path(options.command[0]).name,
        workload=shlex.join(options.command),
        argv=_shelled(argv, options),
        cwd=Path.cwd(),
        stdin=options.stdin,
        timeout_s=units.seconds(options.timeout, "--timeout") if options.timeout else None,
        caveats=(unwrapped,) if unwrapped else (),
        watched=True,
    )


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


def _about_running(options: Namespace) -> Task:
    """To measure a running process, its command starts again. A server must be loaded instead."""
    argv, cwd, env = _running(options.pid)
    if not argv:
        raise UserError(f"--pid {options.pid}: a process of the kernel, which has no malloc")
    pids = [options.pid, *tree.descendants(options.pid)]
    serving = tree.listening(pids)
    own = next((p for p in _mapped(options.pid) if recognise.allocator_name(p) in recognise.FAMILIES), None)
    threads = len(list(Path(f"/proc/{options.pid}/task").iterdir()))
    look = Look(Path(argv[0]).name, "server" if serving else "batch", 0.0, threads, len(pids), serving, own=own)
    if serving:
        print(look.words())
        raise UserError(
            f"process {options.pid} serves {serving.words()}; a copy of it on another port, measured under load:\n"
            f"    {recognise.advice(argv, serving)}"
        )
    options.command = argv
    return replace(_batch_task(options), cwd=cwd, env=env)


def _mapped(pid: int) -> list[str]:
    lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    return list(dict.fromkeys(line[line.index("/") :] for line in lines if "/" in line))


def task_of(options: Namespace) -> Task:
    """What to measure, as the options say it: a command, a server, or a process that runs."""
    given = [name for name in ("command", "server", "pid", "trace") if getattr(options, name)]
    if len(given) != 1:
        raise UserError("advise needs one of: -- CMD, --server 'CMD', --pid N, --trace FILE")
    if options.trace:
        return replaying.task(options.trace, replaying.Way())
    task = _server_task(options) if options.server else _about_running(options) if options.pid else _batch_task(options)
    return replace(
        task, prepare=options.prepare, cleanup=options.cleanup, ignore_failure=options.ignore_failure
    )  # fmt: skip


def _plan(options: Namespace, task: Task) -> Plan:
    default = SERVER_LIMIT_S if task.server else LIMIT_S
    limit = units.seconds(options.time_limit, "--time-limit") if options.time_limit else default
    return Plan(
        min_rounds=1, max_rounds=options.runs or MOST_ROUNDS, budget_s=None, precision=None,
        seed=preparation.fresh_seed() if options.seed is None else options.seed, warmup=options.warmup,
        limit_s=None if options.runs and not options.time_limit else limit, name_own=True,
    )  # fmt: skip


def _forecast(look: Look, spent_s: float, peers: int, plan: Plan) -> str:
    least = 3 * (look.seconds + 0.1) * peers
    most = f", at most {units.words(plan.limit_s)} in all" if plan.limit_s else ""
    return f"measuring {peers} allocators takes about {units.words(spent_s + least)} or more{most}"


def run(options: Namespace) -> int:
    say = preparation.to_stderr
    task = task_of(options)
    found = target.resolve(task.argv, task.env or None)
    plan = _plan(options, task)
    path = outputs.usable(options.json or outputs.new_name("advise"), say)
    page = outputs.usable(options.report or path.with_name(path.name.removesuffix(".gz")).with_suffix(".html"), say)
    preparation.ensure_packages(packages.missing_peers(), say)
    preparation.ensure_library(say)
    chosen = variants.with_options(preparation.choose_peers(options.with_, options.only), options.option)
    out = terminal.console(stderr=True)
    with ends_are_kept() as ended, board(out) as (show, tell):

        def begin(look: Look, count: int, spent_s: float) -> None:
            out.print(look.words(), markup=False, soft_wrap=True)
            out.print(_forecast(look, spent_s, count, plan), markup=False, soft_wrap=True)

        def more(evidence: Evidence, decision: Decision, round_s: float) -> float:
            return ask_for_more((decision.more_rounds or MOST_ROUNDS) * round_s)

        def keep(result: Result) -> None:
            outputs.write(path, lambda place: save(result, place), say)

        adviser = Adviser(
            replace(task, caveats=(*task.caveats, *found.caveats)), chosen, plan, ["freestone", *sys.argv[1:]], begin,
            show, keep, more, programs=[found.path, *found.interpreters], report=tell, image=str(found.image),
        )  # fmt: skip
        advice = adviser.run()
    _finish(advice, task, path, page, options)
    if ended:
        return ended[0]
    return 130 if advice.interrupted else 0 if advice.evidence.rounds else 1


def _finish(advice: Advice, task: Task, path: Path, page: Path, options: Namespace) -> None:
    """The card, on the terminal and at the head of the page."""
    written: list[Path] = []
    command = ("YOUR", "PROGRAM") if options.trace else task.argv

    def draw(to: Path | None) -> card.Card:
        return card.make(
            advice.evidence, advice.decision, advice.result.peers, command, page=to, round_s=advice.round_s,
            elapsed_s=advice.elapsed_s, way=options.adopt, machine=card.machine_lines(advice.result),
        )  # fmt: skip

    if advice.evidence.rounds:

        def make(place: Path) -> None:
            write_report([advice.result], place, card=draw(None))

        at = outputs.write(page, make, preparation.to_stderr)
        written += [at] if at else []
    print(draw(written[0] if written else None).text())
    print(f"figures   {path.name if path.parent == Path.cwd() else path}", file=sys.stderr)
    sys.stdout.flush()
