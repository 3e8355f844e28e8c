"""The `freestone` command: gathers the sub-commands and turns expected errors into one line and exit code 2.

Each module of `freestone_lab.commands` named in COMMANDS offers `register(app)`. A module whose file does not exist is
not listed; one that exists and fails to import is an error. No logic lives here.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import typer

from freestone_lab.errors import UserError
from freestone_lab.model import ResultError

COMMANDS = (
    "compare",
    "run",
    "bench",
    "attacks",
    "report",
    "diff",
    "doctor",
    "peers",
    "stats",
    "profile",
    "leaks",
    "setup",
    "test",
)

HELP = """Which memory allocator is best for your program, with evidence.

Examples:

    freestone compare -- python3 my_script.py

    freestone bench quick

    freestone run -- ./server

The root command also offers `build` and `lib`: LD_PRELOAD=$(./freestone lib) ./server
"""


PROVIDED_BY = {"top": "stats"}  # commands that share the module of another


def build_app(wanted: str | None = None) -> typer.Typer:
    """The application with every command whose module is on disk, or just `wanted` when that is one of them.

    Loading one module only keeps `run` and `stats` from importing what the analysis needs, which takes seconds.
    """
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root() -> None:
        """Keeps sub-command names in force even when only one command is present."""

    root.__doc__ = HELP
    folder = Path(__file__).parent / "commands"
    present = [name for name in COMMANDS if (folder / f"{name}.py").exists()]
    single = PROVIDED_BY.get(wanted, wanted) if wanted else None
    for name in present:
        if single not in present or name == single:
            importlib.import_module(f"freestone_lab.commands.{name}").register(app)
    return app


def run(arguments: list[str]) -> int:
    """One call of the command: exit status 0 (fine), 1 (a gate or a check failed), 2 (wrong usage), 130 (Ctrl-C)."""
    try:
        build_app(arguments[0] if arguments else None)(arguments, prog_name="freestone")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    except (UserError, ResultError) as error:
        print(f"freestone: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def main() -> None:
    """The entry point of the installed script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
