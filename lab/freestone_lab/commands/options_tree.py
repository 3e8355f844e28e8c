"""The options of the commands that the source tree has and an installation lacks. Imports the standard library only."""

import argparse
from pathlib import Path


def package(parser: argparse.ArgumentParser) -> None:
    """Make the packages of a release: Debian's, a relocatable archive, a wheel, a container file.

    All hold both libraries, the command, and the recorder and replayer of traces.

    Examples:

        freestone package out
        freestone package out --only wheel
    """
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    parser.add_argument("--only", action="append", default=[], choices=("deb", "tar", "wheel"),
                        help="just this one (repeatable); the container file comes with the archive")  # fmt: skip


def setup(parser: argparse.ArgumentParser) -> None:
    """Install Debian's allocators and the programs of the tests; with --apps those of the suites."""
    parser.add_argument("--apps", action="store_true", help="also the real programs of the benchmark suites")


def test(parser: argparse.ArgumentParser) -> None:
    """Run the tests that find most for their time: at most five minutes on two processors, the build included.

    `--all` runs every test. Tests that judge times are left out of both, because another program beside them would
    decide the outcome; `--timing` runs only those, on a quiet machine. A build that is named runs all its tests, except
    `release`, whose tests follow the form. The last lines give the CPU time by room, and count the tests.

    Examples:

        freestone test
        freestone test --all
        freestone test --long asan
    """
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help="a build, `lab`, or with --programs the name of a program")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    for name, text in {
        "all": "every test: about 15 minutes",
        "long": "long forms: hours of random operations, storms and faults",
        "programs": "real programs and other releases of Debian; installs what is missing",
        "timing": "only what judges times",
    }.items():
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, default="short", help=text)


def docs(parser: argparse.ArgumentParser) -> None:
    """Make docs/TUNING.md from the option table; from docs/results docs/BENCHMARKS.md, docs/plots, and the tables and
    figures in the other documents.

    Example:

        freestone docs --check
    """
    parser.add_argument("--check", action="store_true", help="write nothing; say what is out of date, exit 1")
    parser.add_argument("--release", action="store_true",
                        help="as --check; also say which results are not of this version and code")  # fmt: skip
