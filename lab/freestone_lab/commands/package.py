"""`freestone package`: what a release consists of."""

from argparse import Namespace

from freestone_lab.host import packaging


def run(options: Namespace) -> None:
    for path in packaging.make(options.folder, options.only or packaging.KINDS):
        print(f"written: {path}")
