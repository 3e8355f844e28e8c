"""Options that several commands have. Imports the standard library only."""

import argparse
from collections.abc import Callable
from pathlib import Path

ALLOCATOR = "NAME|NAME=path.so|NAME=folder"


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""
    expected = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least or (most is not None and found > most):
            raise argparse.ArgumentTypeError(f"'{text}': expected {expected}")
        return found

    return number


def part(text: str) -> slice:
    """'K/N': the Kth, the N-th after it, and so on."""
    which, _, of = text.partition("/")
    if not (which.isdecimal() and of.isdecimal() and 1 <= int(which) <= int(of)):
        raise argparse.ArgumentTypeError(f"'{text}': expected K/N, as in 2/6: the second of six parts")
    return slice(int(which) - 1, None, int(of))


def program(parser: argparse.ArgumentParser, *, needed: bool = True) -> None:
    """The command to run: the first word that is no option, or that follows `--`, and everything after it."""
    parser.add_argument("command", metavar="CMD", nargs=argparse.PARSER).required = needed


def names(parser: argparse.ArgumentParser, metavar: str = ALLOCATOR) -> None:
    parser.add_argument("names", nargs="*", metavar=metavar, help="which; all when none is named")


def as_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of tables")


def allocators(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--with", dest="with_", action="append", default=[], metavar=ALLOCATOR,
                        help="add an allocator (repeatable; `all` adds every one found)")  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar=ALLOCATOR,
                        help="compare glibc with just these (repeatable)")  # fmt: skip
    parser.add_argument("--option", action="append", default=[], metavar="[NAME:]OPTION=V,V...",
                        help="also measure an allocator (default freestone) with these settings; a name in capitals "
                             "is an environment variable, as in mimalloc:MIMALLOC_ALLOW_THP=0")  # fmt: skip


def installing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-install", dest="install", action="store_false",
                        help="leave out allocators and programs whose Debian packages are missing")  # fmt: skip


def budget(parser: argparse.ArgumentParser, text: str = "stop after this long, in all") -> None:
    parser.add_argument("--budget", "--time-limit", metavar="60s", help=text)


def seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=at_least(0), metavar="N", help="repeat an order of runs")


def aged(parser: argparse.ArgumentParser) -> None:
    """Its law is in measure/native/aged.c."""
    parser.add_argument("--aged", type=at_least(0), metavar="SEED",
                        help="programs start in a heap with holes, the same calls under every allocator; 4 MiB stay, "
                        "and the ageing takes up to 0.1 s of each run")  # fmt: skip


def exports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result file (.json or .json.gz)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="every sample as a row")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables as Markdown")
    parser.add_argument("-o", "--report", type=Path, metavar="report.html", help="where the page goes")
    open_page(parser)


def open_page(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", dest="open_page", action="store_true", help="open the page in a browser")


def output(parser: argparse.ArgumentParser, text: str, default: Path | None = None) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", default=default, help=text)


def habits(parser: argparse.ArgumentParser) -> None:
    """How to run a program, with the options that other measuring tools have."""
    parser.add_argument("--prepare", metavar="'CMD'", help="a shell command before every run, not measured")
    parser.add_argument("--cleanup", metavar="'CMD'", help="a shell command after every run, not measured")
    parser.add_argument("--warmup", type=at_least(0), default=0, metavar="N", help="unmeasured runs of each allocator")
    parser.add_argument("--ignore-failure", action="store_true", help="accept any exit status")
    parser.add_argument("--shell", action="store_true", help="run CMD through /bin/sh -c")
