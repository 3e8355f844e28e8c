"""`freestone leaks`: blocks that a program allocated and that nothing points to."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict

from freestone_lab.core import outputs, paths, units
from freestone_lab.core.errors import UserError
from freestone_lab.heap import leak_search as search


def run(options: Namespace) -> int:
    if (options.pid is None) == (not options.command):
        raise UserError("leaks: expected one of CMD and --pid N")
    if options.pid is not None:
        seconds = None if options.for_ is None else units.seconds(options.for_, "--for")
        done = search.Searched([search.look(options.pid, seconds)], 0)
    else:
        done = search.run(options.command, exact=not options.sampled)
    for line in search.summary(done, options.depth):
        print(line, file=sys.stderr)
    if options.json:
        found = {"schema": "freestone-lost/1", "processes": [asdict(process) for process in done.processes]}
        outputs.write_whole(paths.must_be_writable(options.json, "--json"), json.dumps(found, indent=1) + "\n")
    return options.error if done.found and options.error else done.exit_status
