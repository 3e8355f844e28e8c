"""`freestone advise`: what to use for this program, in one card."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from freestone_lab.analysis.claims import spoken, tables
from freestone_lab.analysis.decision import Decision, Evidence, decide, evidence_of
from freestone_lab.core import outputs, units
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import save
from freestone_lab.core.signals import ends_are_kept
from freestone_lab.engine import preparation, session
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.engine.session import Outcome
from freestone_lab.host import target
from freestone_lab.measure import recognise, tree
from freestone_lab.measure.recognise import Look
from freestone_lab.measure.server import Server, ready_of
from freestone_lab.peers import packages
from freestone_lab.report import card, terminal, write_report
from freestone_lab.report.board import ask_for_more, board
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


def _limit(options: Namespace, task: Task) -> tuple[float | None, float | None]:
    """How long it may take, and up to where that may grow for the least look at everybody."""
    if options.time_limit:
        return units.seconds(options.time_limit, "--time-limit"), None
    usual = SERVER_LIMIT_S if task.server else LIMIT_S
    return (None, None) if options.runs else (usual, REACH * usual)


def run(options: Namespace) -> int:
    say = preparation.to_stderr
    task = task_of(options)
    found = target.resolve(task.argv, task.env or None)
    limit_s, reach_s = _limit(options, task)
    seed = preparation.fresh_seed() if options.seed is None else options.seed
    plan = Plan(
        rounds=options.runs or MOST_ROUNDS, decide=True, seed=seed, warmup=options.warmup, name_own=True
    )  # fmt: skip
    path = outputs.usable(options.json or outputs.new_name("advise"), say)
    page = outputs.usable(options.report or path.with_name(path.name.removesuffix(".gz")).with_suffix(".html"), say)
    preparation.get_ready(packages.missing_peers(), limit_s, options.install, say)
    chosen = preparation.choose_peers(options.with_, options.only, options.option)
    out = terminal.console(stderr=True)
    begun = time.monotonic()
    with ends_are_kept() as ended, board(out) as (show, tell):

        def more(_: Evidence, decision: Decision, round_s: float) -> float:
            return 0.0 if decision.settled else ask_for_more((decision.more_rounds or MOST_ROUNDS) * round_s)

        def keep(result: Result) -> None:
            outputs.write(path, lambda place: save(result, place), say)

        outcome = session.run(
            [(replace(task, caveats=(*task.caveats, *found.caveats)), plan)], chosen, ["freestone", *sys.argv[1:]],
            tell, programs=[found.path, *found.interpreters, found.image], keep=keep, more=more, board=show,
            say=lambda text: out.print(text, markup=False, soft_wrap=True), limit_s=limit_s, reach_s=reach_s,
        )  # fmt: skip
    if not outcome.result.experiments:
        raise UserError("nothing could be compared within the limit")
    measured = _finish(outcome, time.monotonic() - begun, task, path, page, options)
    if ended:
        return ended[0]
    return 130 if outcome.interrupted else 0 if measured else 1


def _finish(outcome: Outcome, elapsed_s: float, task: Task, path: Path, page: Path, options: Namespace) -> bool:
    """The card, on the terminal and at the head of the page. Whether there are figures to compare."""
    written: list[Path] = []
    command = ("YOUR", "PROGRAM") if options.trace else task.argv
    result, engine = outcome.result, outcome.engines[0]
    evidence = evidence_of(engine.experiment, result.baseline)

    def draw(to: Path | None) -> card.Card:
        return card.make(
            evidence, decide(evidence), result.peers, command, page=to, round_s=engine.round_s, elapsed_s=elapsed_s,
            way=options.adopt, about=[*card.versions(result), *card.machine_lines(result)],
        )  # fmt: skip

    analysed = tables(result)
    result.claims = spoken(analysed)
    outputs.write(path, lambda place: save(result, place), preparation.to_stderr)

    def make(place: Path) -> None:
        write_report([result], place, card=draw(None), tables=[analysed])

    at = outputs.write(page, make, preparation.to_stderr)
    written += [at] if at else []
    print(draw(written[0] if written else None).text())
    print(f"figures   {path.name if path.parent == Path.cwd() else path}", file=sys.stderr)
    sys.stdout.flush()
    return len(evidence.names) > 1
