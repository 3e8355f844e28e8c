"""`freestone leaks`: blocks that a program allocated and that nothing points to."""

import json
import sys
from argparse import Namespace
from dataclasses import asdict

from freestone_lab.commands.profile import check_target
from freestone_lab.core import outputs, paths, units
from freestone_lab.heap import leak_search as search


def run(options: Namespace) -> int:
    check_target(options, "leaks")
    seconds = None if options.for_ is None else units.seconds(options.for_, "--for")
    if options.json:
        paths.must_be_writable(options.json, "--json")
    if options.pids is not None:
        done = search.look(options.pids, seconds)
    else:
        done = search.run(options.command, exact=not options.sampled, seconds=seconds)
    for line in search.summary(done, options.depth):
        print(line, file=sys.stderr)
    if options.json:
        found = {"schema": "freestone-lost/1", "processes": [asdict(process) for process in done.processes]}
        text = json.dumps(found, indent=1) + "\n"
        outputs.must_write(options.json, lambda place: outputs.write_whole(place, text))
    return options.error if done.found and options.error else done.exit_status
