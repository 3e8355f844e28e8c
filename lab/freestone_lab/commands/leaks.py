"""`freestone leaks`: blocks that a program allocated and that nothing points to."""

from __future__ import annotations

import sys
from argparse import Namespace

from freestone_lab.core import units
from freestone_lab.core.errors import UserError
from freestone_lab.heap import leak_search as search


def run(options: Namespace) -> int:
    if (options.pid is None) == (not options.command):
        raise UserError("leaks: expected one of CMD and --pid N")
    if options.pid is not None:
        seconds = None if options.for_ is None else units.seconds(options.for_, "--for")
        found = search.look(options.pid, seconds)
        done = search.Searched([found], 0)
    else:
        done = search.run(options.command, exact=not options.sampled)
    for line in search.summary(done, options.depth):
        print(line, file=sys.stderr)
    return options.error if done.found and options.error else done.exit_status
