"""The `freestone` command: parses its arguments, sees to the packages that it needs, and turns expected errors into one
line and exit status 2.

This module and commands/options*.py import the standard library only; a command's module is imported when it starts.
"""

import codecs
import importlib
import io
import os
import signal
import sys
from pathlib import Path

from freestone_lab.commands import environment, options
from freestone_lab.core import paths, signals
from freestone_lab.core.errors import UserError

PLAIN = {"…": "...", "±": "+-", "µ": "u"}


def run(arguments: list[str]) -> int:
    """One call of the command: exit status 0 (fine), 1 (a gate or a check failed), 2 (wrong usage), 3 (a gate of `diff`
    cannot judge), 130 (Ctrl-C)."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(options.HELP.read_text(), end="")
        return 0
    try:
        if arguments[0] == "--version":
            print(f"freestone {paths.version()}")
            return 0
        name, rest = options.select(arguments)
        if not name:
            raise UserError(f"unknown command '{arguments[0]}'; `freestone --help` lists them")
        if name in options.SOURCE_TREE and paths.installed() is not None:
            raise UserError(f"'{name}' belongs to the source tree; the installed command has nothing to build or test")
        parsed = options.parse(name, rest)
        command = options.COMMANDS[name]
        environment.require(command.needs, arguments)
        module = importlib.import_module(f"freestone_lab.commands.{command.module}")
        return int(getattr(module, command.function)(parsed) or 0)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    except UserError as error:
        print(f"freestone: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as end:
        return end.status if isinstance(end, signals.Ended) else 130
    except BrokenPipeError:
        raise
    except OSError as error:  # a file or a folder; what can be said better is a UserError by now
        place = f"'{error.filename}': " if error.filename is not None else ""
        if not _stands_somewhere():
            place = "the current folder was deleted; expected to be called from one that exists: "
        print(f"freestone: {place}{error.strerror or error}", file=sys.stderr)
        return 2


def _stands_somewhere() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _plainly(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return PLAIN.get(error.object[error.start], "?"), error.start + 1


def _prepare_standard_files() -> None:
    """A file that is opened later must not take the number of a standard one that the caller has closed.

    A character that a standard file cannot take is written plainly.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    codecs.register_error("plain", _plainly)
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(errors="plain")


def _run_with_output() -> int:
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has ended; the rest goes nowhere
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        status = 128 + signal.SIGPIPE
    return status


def main() -> None:
    """The entry point."""
    _prepare_standard_files()
    starts = sys.argv[1:2] and sys.argv[1] in options.STARTING
    sys.exit(signals.guarded(_run_with_output) if starts else _run_with_output())


if __name__ == "__main__":
    main()
