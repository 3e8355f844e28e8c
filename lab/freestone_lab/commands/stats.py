"""`freestone stats` and `freestone top`: what a heap holds, once or live."""

from __future__ import annotations

from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

from freestone_lab.core import units
from freestone_lab.core.errors import UserError
from freestone_lab.heap import attach, keys, snapshot, top


def run(options: Namespace) -> None:
    screen = top.Screen.of_terminal()
    if options.target is not None:
        is_process = options.target.isdecimal() and not Path(options.target).exists()
        with attach.shown(int(options.target)) if is_process else nullcontext():
            screen.show(top.picture(snapshot.find(options.target), screen))
        return
    found = list(snapshot.running())
    if not found:
        raise UserError("no process shows itself: start one with FREESTONE_CONF=live_page:true, or name a file")
    screen.show(top.listing(found))


def watch(options: Namespace) -> None:
    screen = top.Screen.of_terminal()
    seconds = units.seconds(options.every, "--every")
    with attach.shown(options.pid), keys.of_terminal() if screen.terminal else nullcontext() as pressed:
        top.watch(screen, options.pid, seconds, options.count, pressed=pressed)
