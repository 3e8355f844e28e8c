"""`freestone setup`: installs the Debian packages that the lab can use."""

from argparse import Namespace

from freestone_lab.engine import preparation
from freestone_lab.peers import packages
from freestone_lab.workloads import apps


def run(options: Namespace) -> int:
    wanted = list(dict.fromkeys([*packages.missing_peers(), *packages.missing_programs()]))
    left = packages.install(wanted)
    refused = [f"type: {packages.command_line(left)}"] if left else []
    if options.apps:
        refused += apps.install()
    for line in refused:
        preparation.to_stderr(f"not installed: {line}")
    if refused:
        return 1
    print(f"installed: {' '.join(wanted)}" if wanted else "nothing was missing")
    return 0
