"""The options of the commands that measure programs and allocators. Imports the standard library only."""

import argparse
from pathlib import Path

from freestone_lab.commands import options_shared as shared


def compare(parser: argparse.ArgumentParser) -> None:
    """Which allocator is best for CMD? Time and memory under each, with evidence.

    It says first how long it takes and what it installs and builds.

    Without CMD, five programs of this machine are run within two and a half minutes, with --quick one. CPU time counts
    beside time. Who is shown to be slower leaves the race; measuring ends when the answer is settled and each ratio is
    known within --precision. The last lines are the answer.

    Exit status: 0 an answer, also "not known yet"; 1 nothing could be compared; 2 wrong usage, or a program that cannot
    be measured; 128 + N ended by signal N, with what was measured until then.

    Examples:

        freestone compare -- python3 my_script.py
        freestone compare --quick --with mine=./libmine.so -- ./server --selftest
        freestone compare --budget 5m --counts -o report.html -- make -B
    """
    shared.program(parser, needed=False)
    shared.allocators(parser)
    shared.installing(parser)
    shared.budget(parser)
    parser.add_argument(
        "--precision",
        metavar="1%",
        help="how well each ratio is to be known, in per cent; default 3; one that is given has 10 min",
    )
    parser.add_argument("--rounds", "--runs", type=shared.at_least(1), metavar="N", help="exactly this many rounds")
    parser.add_argument("--quick", action="store_true", help="a budget of 15 s")
    parser.add_argument("--counts", action="store_true",
                        help="also count instructions (callgrind) and system calls (strace)")  # fmt: skip
    parser.add_argument("--stdin", type=Path, metavar="FILE", help="what CMD reads; default nothing")
    parser.add_argument("--output-file", type=Path, action="append", default=[], metavar="FILE",
                        help="a file that CMD writes, compared too (repeatable)")  # fmt: skip
    parser.add_argument(
        "--expect-exit", type=shared.at_least(0, 255), default=0, metavar="N", help="the exit status of success"
    )
    parser.add_argument("--timeout", metavar="30s", help="longest run; default ten times glibc's")
    shared.habits(parser)
    shared.seed(parser)
    shared.aged(parser)
    shared.exports(parser)


def advise(parser: argparse.ArgumentParser) -> None:
    """Which allocator to use for CMD, a server under load or a recorded trace: measured until settled, on one card.

    Every allocator has its first looks before any is left out; who was not measured stands in the first line.

    Exit status: 0 a card with figures; 1 nothing could be compared; 2 wrong usage, or a program that cannot be
    measured; 128 + N ended by signal N, with a card of what was measured until then.

    Examples:

        freestone advise -- python3 my_script.py
        freestone advise --server 'redis-server --port 7777' --ready 7777 --load 'redis-benchmark -p 7777 -q'
        freestone advise --option dirty_bytes=0,8m,64m --prepare 'rm -rf out' -- ./build.sh
        freestone advise --trace app.fst
    """
    shared.program(parser, needed=False)
    parser.add_argument("--server", metavar="'CMD'", help="the server to measure")
    parser.add_argument("--ready", metavar="PORT|URL|LINE", help="how to see that it serves")
    parser.add_argument("--load", metavar="'CMD'",
                        help="the load: wrk, ab, hey, pgbench, redis-benchmark or memtier_benchmark, whose figures "
                             "are read, or any other that does the same work each time")  # fmt: skip
    parser.add_argument("--requests-from", default="", metavar="REGEX",
                        help="where another load says how many requests it made, such as '([0-9]+) requests'"
                        )  # fmt: skip
    parser.add_argument("--stop", default="TERM", metavar="SIGNAL", help="what ends the server; default TERM")
    parser.add_argument("--idle", default="10s", metavar="10s", help="how long it is watched after the load")
    parser.add_argument("--pid", type=shared.at_least(1), metavar="N", help="the program that runs as process N")
    parser.add_argument("--trace", type=Path, metavar="APP.fst", help="the program whose calls were recorded there")
    shared.allocators(parser)
    shared.installing(parser)
    shared.habits(parser)
    parser.add_argument("--runs", type=shared.at_least(1), metavar="N", help="exactly this many rounds")
    longer = "or up to four times that if the least look at everybody takes longer"
    shared.budget(parser, f"the card comes after this long at the latest; default 90s, {longer}")
    parser.add_argument("--stdin", type=Path, metavar="FILE", help="what CMD reads; default nothing")
    parser.add_argument("--timeout", metavar="30s", help="longest run; default ten times the first")
    parser.add_argument("--adopt", choices=("preload", "systemd", "docker", "link"), default="preload",
                        help="which way to adopt it the card shows; the page shows all")  # fmt: skip
    shared.seed(parser)
    shared.exports(parser)


def run(parser: argparse.ArgumentParser) -> None:
    """Run CMD under libfreestone; the exit status is CMD's.

    It refuses programs that a preloaded library cannot serve: static ones, set-uid ones, and those with their own
    malloc.

    Examples:

        freestone run -- python3 app.py
        freestone run --stats -- ./server --port 8080
    """
    shared.program(parser, needed=False)
    parser.add_argument("--stats", action="store_true", help="print the allocator's statistics at exit, to stderr")
    parser.add_argument("--hardened", action="store_true", help="use the hardened build")


def lib(parser: argparse.ArgumentParser) -> None:
    """Print the path of the library.

    Example:

        LD_PRELOAD=$(freestone lib) ./server
    """
    parser.add_argument("--hardened", action="store_true", help="the hardened build")


def bench(parser: argparse.ArgumentParser) -> None:
    """Run suites (default: quick), single workloads or applications under every allocator.

    `bench scaling` runs thread workloads with 1, 2, 4 ... up to twice as many threads as there are processors, and
    draws throughput and memory over them.

    `bench traces` replays the corpus of recorded programs, `bench traces/NAME` one of them.

    `bench hardening` measures what addresses tell an attacker, as docs/ATTACKS.md shows.

    Each table also shows the null allocator, which never frees. Its figures are the workload's own cost.
    `bench attacks` tests what allocators do against misuse, `bench mitigations` what each mitigation costs.

    Examples:

        freestone bench
        freestone bench published -o published.html
        freestone bench scaling --only freestone --only gperftools --rounds 5
        freestone bench full --budget 40m --json full.json.gz
        freestone bench lifetimes:threads=2,law=program --only jemalloc --rounds 20
        freestone bench attacks --rounds 20
    """
    parser.add_argument("names", nargs="*", metavar="SUITE|WORKLOAD|APP")
    shared.allocators(parser)
    parser.add_argument("--rounds", type=shared.at_least(1), metavar="N",
                        help="rounds of each experiment; default the suite's")  # fmt: skip
    parser.add_argument("--budget", metavar="40m",
                        help="divide this time over the experiments: fewer rounds, never fewer sizes")  # fmt: skip
    shared.seed(parser)
    shared.aged(parser)
    parser.add_argument("--no-null", action="store_true", help="leave out the null allocator")
    parser.add_argument(
        "--part",
        type=shared.part,
        metavar="K/N",
        help="every Nth row only, from the Kth on; `freestone join` makes one result of all parts",
    )
    parser.add_argument("--cluster", metavar="ADDRESS", help="run the traces on the workers of this Dask scheduler")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="with --cluster: go on with what is stored there")
    parser.add_argument("--list", dest="listing", action="store_true", help="only list what there is")
    shared.exports(parser)


def attacks(parser: argparse.ArgumentParser) -> None:
    """Attack allocators: each kind of misuse, by every means and at every offset, after a harmless twin.

    Examples:

        freestone bench attacks
        freestone bench attacks --rounds 200 freestone-hardened scudo glibc
        freestone bench attacks --kind 'double free' freestone glibc
    """
    shared.names(parser)
    parser.add_argument("--rounds", type=shared.at_least(1), default=100, metavar="N", help="attacks of each kind")
    parser.add_argument(
        "--first-seed", type=shared.at_least(0), default=1, metavar="N", help="the seed of the first kind"
    )
    parser.add_argument("--kind", default="", metavar="TEXT", help="only kinds whose name has this in it")
    shared.output(parser, "the result file (.json or .json.gz)")


def mitigations(parser: argparse.ArgumentParser) -> None:
    """Measure what each mitigation of the hardened build costs: one library with each alone, beside the fast build.

    Examples:

        freestone bench mitigations -o docs/results/mitigations.json.gz && freestone docs
    """
    parser.add_argument("--rounds", type=shared.at_least(1), default=8, metavar="N", help="rounds of each experiment")
    shared.seed(parser)
    shared.output(parser, "the result file (.json.gz)")


def report(parser: argparse.ArgumentParser) -> None:
    """Write one self-contained HTML page about one or more result files.

    Examples:

        freestone report results/compare-20261120-120000.json
        freestone report full.json.gz -o full.html
    """
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="result files (.json or .json.gz)")
    shared.output(parser, "default: the first result, as .html")


def diff(parser: argparse.ArgumentParser) -> None:
    """What changed from result A to result B.

    Each allocator is compared through its ratio to the baseline of its own file, so that a slower machine does
    not look like a slower allocator. What a change of the program itself did shows only with --absolute.

    Exit status: 0 no gate objects; 1 a figure got worse than a gate allows, or an allocator broke; 2 wrong usage; 3 a
    gate cannot judge, for the values are too few or too noisy.

    Examples:

        freestone diff main.json branch.json --fail-if 'time>3%' --fail-if 'memory>5%'
        freestone diff old.json new.json --peer freestone --absolute
    """
    parser.add_argument("a", type=Path, metavar="A", help="the earlier result file")
    parser.add_argument("b", type=Path, metavar="B", help="the later result file")
    parser.add_argument("--fail-if", action="append", default=[], metavar="'time>3%'",
                        help="exit 1 when this figure got worse by more than that and than the noise floor "
                             "(repeatable)")  # fmt: skip
    parser.add_argument("--peer", action="append", default=[], metavar="NAME", help="only these (repeatable)")
    parser.add_argument("--absolute", action="store_true", help="compare plain values, not ratios to the baseline")


def join(parser: argparse.ArgumentParser) -> None:
    """Join result files of the same comparison, from one lab or several: the rounds of all of them, judged anew.

    The lab, the allocators' libraries and settings, and each program with its inputs must be the same; one line says
    what is not. Experiments that only one file has are taken over.

    Examples:

        freestone join here.json there.json -o both.json && freestone report both.json
    """
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="result files (.json or .json.gz)")
    shared.output(parser, "the joined result (.json or .json.gz)")


def doctor(parser: argparse.ArgumentParser) -> None:
    """Is this machine fit to measure, and if not, why.

    The exit status is 1 if nobody could trust figures of time now.
    """


def peers(parser: argparse.ArgumentParser) -> None:
    """List every allocator that a program can be run under.

    `peers install` installs Debian's and builds the newest releases of the others.

    Examples:

        freestone peers
        freestone peers --with mine=./libmine.so --json
    """
    parser.add_argument("--with", dest="given", action="append", default=[], metavar="NAME=path.so",
                        help="also this allocator (repeatable)")  # fmt: skip
    parser.add_argument("--controls", action="store_true", help="also those by which the lab is tested")
    shared.as_json(parser)


def peers_install(parser: argparse.ArgumentParser) -> None:
    """Install Debian's allocators and build the newest releases of the others.

    Examples:

        freestone peers install
        freestone peers install mimalloc jemalloc scudo
    """
    shared.names(parser, "NAME")
    parser.add_argument("--force", action="store_true", help="build again what is already here")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    shared.as_json(parser)
