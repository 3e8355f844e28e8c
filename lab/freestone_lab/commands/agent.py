"""`freestone agent`: metrics and heap profiles of every process of a machine that runs under libfreestone."""

import functools
import sys
import threading
from argparse import Namespace

from freestone_lab.commands import environment
from freestone_lab.commands.options import RUNTIME
from freestone_lab.core import signals, units
from freestone_lab.core.errors import UserError
from freestone_lab.heap import machine_agent as agent


def run(options: Namespace) -> int:
    every = units.seconds(options.every, "--every")
    host, colon, port = options.listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"--listen '{options.listen}': expected ADDRESS:PORT, such as 127.0.0.1:9477")
    if options.push and not options.push.startswith(("http://", "https://")):
        raise UserError(f"--push '{options.push}': expected the http:// or https:// address of a store of profiles")
    complain = functools.partial(print, "freestone:", file=sys.stderr)
    if options.once:
        print(agent.scrape(options.all, complain), end="")
        return 0
    if options.push:
        environment.require(RUNTIME, sys.argv[1:])
    server = agent.serve(host.strip("[]"), int(port), options.all)
    stop = threading.Event()
    with signals.handled(lambda _number, _frame: stop.set()):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"freestone agent: http://{host}:{server.server_address[1]}/metrics", file=sys.stderr, flush=True)
        pushing = None
        if options.push:
            work = (options.push, every, stop, complain, options.all)
            pushing = threading.Thread(target=agent.push_profiles, args=work)
            pushing.start()
        while not stop.wait(1):  # the handler runs here, and a signal that another thread receives wakes nobody
            continue
        server.shutdown()
        if pushing is not None:
            pushing.join()
    return 0
