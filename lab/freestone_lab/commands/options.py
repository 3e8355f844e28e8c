"""Every command, and how to parse what follows its name. The options of each are in options_*.py.

Imports the standard library only: `--help` needs nothing installed. COMMANDS names the module of each command. Its
function `run` does the work and receives the parsed options.
"""

import argparse
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from freestone_lab.commands import options_heap, options_measure, options_trace, options_tree
from freestone_lab.core import outputs
from freestone_lab.core.errors import UserError

# What a command needs beside the standard library to start: nothing, or the packages of lab/requirements.txt.
BARE, RUNTIME = "bare", "runtime"

HELP = Path(__file__).parent / "help.txt"


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line on stderr and exit status 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        print(f"freestone: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(2)


@dataclass(frozen=True)
class Command:
    """`module` of freestone_lab.commands holds its `function`; `needs` says which packages that imports."""

    options: Callable[[argparse.ArgumentParser], None]
    module: str
    needs: str = RUNTIME
    function: str = "run"


# A word that follows another one, as `bench attacks`, is looked up first.
COMMANDS: dict[str, Command] = {
    "advise": Command(options_measure.advise, "advise"),
    "compare": Command(options_measure.compare, "compare"),
    "run": Command(options_measure.run, "run", BARE),
    "bench": Command(options_measure.bench, "bench"),
    "bench attacks": Command(options_measure.attacks, "attacks"),
    "bench mitigations": Command(options_measure.mitigations, "mitigations"),
    "lib": Command(options_measure.lib, "run", BARE, "print_library"),
    "record": Command(options_trace.record, "record", BARE),
    "replay": Command(options_trace.replay, "replay"),
    "trace": Command(options_trace.trace, "trace", function="usage"),
    "trace info": Command(options_trace.trace_info, "trace_info", BARE),
    "trace check": Command(options_trace.trace_check, "trace", function="check"),
    "trace cut": Command(options_trace.trace_cut, "trace", function="cut"),
    "trace merge": Command(options_trace.trace_merge, "trace", function="merge"),
    "trace anonymise": Command(options_trace.trace_anonymise, "trace", function="anonymise"),
    "trace import": Command(options_trace.trace_import, "trace", function="take_foreign"),
    "trace stats": Command(options_trace.trace_stats, "trace", function="stats"),
    "trace corpus": Command(options_trace.trace_corpus, "trace", function="record_corpus"),
    "report": Command(options_measure.report, "results", function="report"),
    "diff": Command(options_measure.diff, "results", function="diff"),
    "join": Command(options_measure.join, "results", function="join"),
    "doctor": Command(options_measure.doctor, "doctor"),
    "peers": Command(options_measure.peers, "peers"),
    "peers install": Command(options_measure.peers_install, "peers", function="install"),
    "stats": Command(options_heap.stats, "stats", BARE),
    "top": Command(options_heap.top, "stats", BARE, "watch"),
    "profile": Command(options_heap.profile, "profile", BARE),
    "profile show": Command(options_heap.profile_show, "profile", BARE, "show"),
    "profile diff": Command(options_heap.profile_diff, "profile", BARE, "diff"),
    "leaks": Command(options_heap.leaks, "leaks", BARE),
    "agent": Command(options_heap.agent, "agent", BARE),
    "package": Command(options_tree.package, "package", BARE),
    "setup": Command(options_tree.setup, "setup"),
    "test": Command(options_tree.test, "test", BARE),
    "docs": Command(options_tree.docs, "docs"),
}
ALIASES = {"attacks": "bench attacks"}
OUTPUTS = {"output", "report", "json", "csv", "markdown"}  # options that name a file to write
PAGE = (".html", ".htm")  # the endings of a page's name; it may have none
PROFILE = (*PAGE, ".json", ".pb", ".pb.gz", ".collapsed")
ENDINGS = {"profile": PROFILE, "profile show": PROFILE, "profile diff": PAGE, "report": PAGE, "trace stats": PAGE}
TRACES = ("record", "trace cut", "trace merge", "trace anonymise", "trace import")  # what writes a trace
# What starts programs, which must not outlive it (core/signals.py), by its first word. `run` becomes its program.
STARTING = (
    "advise", "compare", "bench", "attacks", "record", "replay", "trace", "peers", "profile", "leaks", "package",
    "setup", "test",
)  # fmt: skip
# What only the source tree can do: an installation has nothing to build or test.
SOURCE_TREE = ("package", "setup", "test", "docs")


def select(arguments: list[str]) -> tuple[str, list[str]]:
    """The command that the arguments begin with, and what follows it; ("", ...) if there is none."""
    first = ALIASES.get(arguments[0], arguments[0]) if arguments else ""
    both = f"{first} {arguments[1]}" if len(arguments) > 1 else ""
    if both in COMMANDS:
        return both, arguments[2:]
    return (first, arguments[1:]) if first in COMMANDS else ("", arguments)


def parser_of(name: str) -> Parser:
    command = COMMANDS[name]
    parser = Parser(prog=f"freestone {name}", description=inspect.cleandoc(command.options.__doc__ or ""))
    command.options(parser)
    if OUTPUTS & {action.dest for action in parser._actions}:
        parser.add_argument("--force", action="store_true", help="replace a file that freestone did not make, too")
    return parser


def parse(name: str, arguments: list[str]) -> argparse.Namespace:
    """Parses what follows the command's name. Ends the program with one line if it makes no sense.

    UserError where a file would be lost. `inputs` of what it returns are the files that the command may read.
    """
    found = parser_of(name).parse_args(arguments[:-1] if arguments[-1:] == ["--"] else arguments)
    if "command" in found:
        words = found.command or []
        found.command = words[1:] if words[:1] == ["--"] else words
    given = {key: value if isinstance(value, list) else [value] for key, value in vars(found).items()}
    read = (word for key, words in given.items() if key not in OUTPUTS for word in words)
    found.inputs = [word for word in read if isinstance(word, Path)] + [Path(word) for word in given.get("command", [])]
    for key, path in ((key, getattr(found, key, None)) for key in OUTPUTS):
        if isinstance(path, Path):
            endings = PAGE if key == "report" else ENDINGS.get(name, ())
            if endings and path.suffix and not path.name.endswith(endings):
                raise UserError(f"'{path}' ends in none that is written here: {', '.join(endings)}")
            outputs.ours(path, found.force, found.inputs, trace=name in TRACES)
    return found
