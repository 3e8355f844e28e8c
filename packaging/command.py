"""Starts the installed tool: the package lies beside this file, whose folder Python searches first."""

from freestone_lab.cli import main

main()
