"""`freestone trace info`: what is in a trace."""

from argparse import Namespace

from freestone_lab.trace import describe


def run(options: Namespace) -> None:
    for line in describe.lines(describe.facts(options.trace, options.partial)):
        print(line)
