"""`freestone stats` and `freestone top`: what a heap holds, once or live."""

from __future__ import annotations

from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

from freestone_lab.core import units
from freestone_lab.core.errors import UserError
from freestone_lab.heap import attach, keys, names, snapshot, top


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
    all_found = list(snapshot.running())
    if not all_found:
        raise UserError("no process shows itself: start one with FREESTONE_CONF=live_page:true, or name a file")
    screen.show(top.listing(all_found))


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
