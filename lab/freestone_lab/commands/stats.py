"""`freestone stats` and `freestone top`: what a heap holds, once or live."""

from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

from freestone_lab.core import units
from freestone_lab.core.errors import UserError
from freestone_lab.heap import attach, keys, machine_agent, names, snapshot, top


def run(options: Namespace) -> None:
    screen = top.Screen.of_terminal()
    refused = []
    for target in options.targets:
        is_process = target.isdecimal() and not Path(target).exists()
        try:
            found = attach.statistics_of(int(target))() if is_process else snapshot.from_file(Path(target))
            screen.show(top.picture(found, screen))
        except UserError as error:
            refused.append(str(error))
    if refused:
        raise UserError("; ".join(refused))
    if options.targets:
        return
    all_found = {one.pid: one for one in snapshot.running()} | machine_agent.processes(True).read
    if not all_found:
        raise UserError("no process runs under libfreestone that may be looked at")
    screen.show(top.listing(list(all_found.values())))


def watch(options: Namespace) -> None:
    if len(options.pids) != 1:
        lines = "; ".join(f"{pid}: {names.command_line(pid) or 'no process'}" for pid in options.pids)
        raise UserError(
            f"top shows one process, expected its number; pick one of {lines}"
            if lines
            else "top: no process; expected the number of one that runs"
        )
    (pid,) = options.pids
    screen = top.Screen.of_terminal()
    seconds = units.seconds(options.every, "--every")
    read = attach.statistics_of(pid)
    with keys.of_terminal() if screen.terminal else nullcontext() as pressed:
        top.watch(screen, pid, read, seconds, options.count, pressed=pressed)
