"""Starts the tool from its folder: `python3 lab compare ...`. The package lies beside this file."""

from freestone_lab.cli import main

main()
