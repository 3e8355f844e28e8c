"""The options of every command, in one place. Imports the standard library only: `--help` needs nothing installed.

A command's work is the function `run` of the module that COMMANDS names for it; it gets what was parsed here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

# What a command needs beside the standard library: nothing, lab/requirements.txt, or lab/requirements-dev.txt as well.
BARE, RUNTIME, DEVELOPMENT = "bare", "runtime", "dev"

HELP = Path(__file__).parent / "help.txt"
ALLOCATOR = "NAME|NAME=path.so"


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line on stderr and exit status 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        print(f"freestone: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(2)


def at_least(least: int) -> Callable[[str], int]:
    """A whole number that is not below `least`."""

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least:
            raise argparse.ArgumentTypeError(f"'{text}': expected a whole number of at least {least}")
        return found

    return number


def program(parser: argparse.ArgumentParser, *, needed: bool = True) -> None:
    """The command to run: the first word that is no option, or that follows `--`, and everything after it."""
    parser.add_argument("command", metavar="CMD", nargs=argparse.PARSER).required = needed


def allocators(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--with", dest="with_", action="append", default=[], metavar=ALLOCATOR,
                        help="add an allocator (repeatable; `all` adds every one found)")  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar=ALLOCATOR,
                        help="compare glibc with just these (repeatable)")  # fmt: skip


def seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, metavar="N", help="repeat an order of runs")


def exports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result file (.json or .json.gz)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="every sample as a row")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables as Markdown")
    parser.add_argument("--gbench", type=Path, metavar="FILE", help="Google-Benchmark JSON")
    parser.add_argument("-o", "--report", type=Path, metavar="report.html", help="where the page goes")


def output(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)


def compare(parser: argparse.ArgumentParser) -> None:
    """Which allocator is best for CMD? Time and memory under each, with evidence.

    Without CMD, three real programs of this machine are run, with --quick one.

    Examples:

        freestone compare -- python3 my_script.py

        freestone compare --quick --with mine=./libmine.so -- ./server --selftest

        freestone compare --budget 5m --counts -o report.html -- make -B
    """
    program(parser, needed=False)
    allocators(parser)
    parser.add_argument("--budget", "--time-limit", metavar="60s", help="stop after this long, in all")
    parser.add_argument("--precision", metavar="1%", help="stop when every interval is this narrow (within 10 min)")
    parser.add_argument("--rounds", "--runs", type=int, metavar="N", help="exactly this many rounds")
    parser.add_argument("--quick", action="store_true", help="a budget of 15 s")
    parser.add_argument("--counts", action="store_true",
                        help="also count instructions (callgrind) and system calls (strace)")  # fmt: skip
    parser.add_argument("--stdin", type=Path, metavar="FILE", help="what CMD reads; default nothing")
    parser.add_argument("--output-file", type=Path, action="append", default=[], metavar="FILE",
                        help="a file that CMD writes, compared too (repeatable)")  # fmt: skip
    parser.add_argument("--expect-exit", type=int, default=0, metavar="N", help="the exit status of success")
    parser.add_argument("--timeout", metavar="30s", help="longest run; default ten times glibc's")
    habits(parser)
    seed(parser)
    exports(parser)


def habits(parser: argparse.ArgumentParser) -> None:
    """How a program is run, as other measuring tools have it."""
    parser.add_argument("--prepare", metavar="'CMD'", help="a shell command before every run, not measured")
    parser.add_argument("--cleanup", metavar="'CMD'", help="a shell command after every run, not measured")
    parser.add_argument("--warmup", type=at_least(0), default=0, metavar="N", help="unmeasured runs of each allocator")
    parser.add_argument("--ignore-failure", action="store_true", help="accept any exit status")
    parser.add_argument("--shell", action="store_true", help="run CMD through /bin/sh -c")
    parser.add_argument("--option", action="append", default=[], metavar="[NAME:]OPTION=V,V...",
                        help="also measure an allocator (default freestone) with these settings")  # fmt: skip


def advise(parser: argparse.ArgumentParser) -> None:
    """Which allocator to use for CMD, a server under load or a recorded trace: measured until settled, on one card.

    Exit status: 0 a card with figures; 1 nothing could be compared; 2 wrong usage, or a program that cannot be
    measured; 128 + N ended by signal N, with a card of what was measured until then.

    Examples:

        freestone advise -- python3 my_script.py

        freestone advise --server 'redis-server --port 7777' --ready 7777 --load 'redis-benchmark -p 7777 -q'

        freestone advise --option dirty_bytes=0,8m,64m --prepare 'rm -rf out' -- ./build.sh

        freestone advise --trace app.fst
    """
    program(parser, needed=False)
    parser.add_argument("--server", metavar="'CMD'", help="the server to measure")
    parser.add_argument("--ready", metavar="PORT|URL|LINE", help="how to see that it serves")
    parser.add_argument("--load", metavar="'CMD'",
                        help="the load: wrk, ab, hey, pgbench, redis-benchmark or memtier_benchmark, whose figures "
                             "are read, or any other, by its time")  # fmt: skip
    parser.add_argument("--stop", default="TERM", metavar="SIGNAL", help="what ends the server; default TERM")
    parser.add_argument("--idle", default="10s", metavar="10s", help="how long it is watched after the load")
    parser.add_argument("--pid", type=at_least(1), metavar="N", help="the program that runs as process N")
    parser.add_argument("--trace", type=Path, metavar="APP.fst", help="the program whose calls were recorded there")
    allocators(parser)
    habits(parser)
    parser.add_argument("--runs", type=at_least(1), metavar="N", help="exactly this many rounds")
    parser.add_argument("--time-limit", metavar="90s", help="the card comes after this long at the latest")
    parser.add_argument("--stdin", type=Path, metavar="FILE", help="what CMD reads; default nothing")
    parser.add_argument("--timeout", metavar="30s", help="longest run; default ten times the first")
    parser.add_argument("--adopt", choices=("preload", "systemd", "docker", "link"), default="preload",
                        help="which way to adopt it the card shows; the page shows all")  # fmt: skip
    seed(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result file (.json or .json.gz)")
    parser.add_argument("-o", "--report", type=Path, metavar="card.html", help="where the page goes")


def run(parser: argparse.ArgumentParser) -> None:
    """Run CMD under libfreestone; the exit status is CMD's.

    Refuses programs that a preloaded library cannot serve: static ones, set-uid ones, ones with a malloc of
    their own.

    Examples:

        freestone run -- python3 app.py

        freestone run --stats -- ./server --port 8080
    """
    program(parser, needed=False)
    parser.add_argument("--stats", action="store_true", help="print the allocator's statistics at exit, to stderr")
    parser.add_argument("--hardened", action="store_true", help="use the hardened build")


def lib(parser: argparse.ArgumentParser) -> None:
    """Print the path of the library.

    Example:

        LD_PRELOAD=$(freestone lib) ./server
    """
    parser.add_argument("--hardened", action="store_true", help="the hardened build")


def record(parser: argparse.ArgumentParser) -> None:
    """Record every allocation call of CMD, or of a running process, into a trace; the exit status is CMD's.

    The recorder stands in front of whatever allocator serves the program. The trace holds sizes, times and the order
    of calls; no byte of the program's data, none of its arguments, and no address.

    Examples:

        freestone record -o app.fst -- ./server --port 8080

        freestone record -o app.fst --pid 1234 --for 60s --max-bytes 2g
    """
    program(parser, needed=False)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", default=Path("app.fst"),
                        help="the trace; default app.fst")  # fmt: skip
    parser.add_argument("--pid", type=at_least(1), metavar="N",
                        help="join a running process that libfreestone-record.so is loaded in")  # fmt: skip
    parser.add_argument("--for", dest="for_", metavar="60s", help="end the recording after this time; CMD goes on")
    parser.add_argument("--max-bytes", metavar="2g", help="end the recording at this size of the trace")
    parser.add_argument("--buffer", default="64m", metavar="64m", help="memory between the program and the writer")
    parser.add_argument("--sample-threads", type=at_least(1), default=1, metavar="N", help="record one thread in N")
    parser.add_argument("--stacks", action="store_true",
                        help="record sampled call stacks: addresses of code enter the trace")  # fmt: skip
    parser.add_argument("--with", dest="with_", metavar=ALLOCATOR, help="serve CMD by this allocator")


def replay(parser: argparse.ArgumentParser) -> None:
    """Replay traces under every allocator: the same calls by the same threads, in the recorded order between them.

    Measured are the calls alone: time in malloc and in free, the tail, peak and mean memory, faults, memory after
    idle. What the replay itself costs is measured without an allocator, and said.

    Examples:

        freestone replay app.fst

        freestone replay app.fst --with jemalloc,mimalloc --pace 1.0

        freestone replay app.fst --threads 16 --rounds 20
    """
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    allocators(parser)
    parser.add_argument("--pace", type=float, default=0.0, metavar="X",
                        help="1.0: as fast as recorded; default: as fast as possible")  # fmt: skip
    parser.add_argument("--threads", type=at_least(1), metavar="N",
                        help="replay by so many threads; beyond the recorded ones, copies run too")  # fmt: skip
    parser.add_argument("--process", type=at_least(0), metavar="N",
                        help="which process of the trace; default the one with the most calls")  # fmt: skip
    parser.add_argument("--budget", metavar="60s", help="stop after this long, in all")
    parser.add_argument("--precision", metavar="1%", help="stop when every interval is this narrow (within 10 min)")
    parser.add_argument("--rounds", type=int, metavar="N", help="exactly this many rounds")
    parser.add_argument("--quick", action="store_true", help="a budget of 15 s")
    seed(parser)
    exports(parser)


def partial(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partial", action="store_true", help="read a trace that was cut short as far as it goes")


def trace(parser: argparse.ArgumentParser) -> None:
    """Look at traces of allocation calls.

    `trace info` says what a trace holds; `trace check` checks it from the first byte to the last; `trace cut`,
    `merge`, `anonymise` and `import` write other traces; `trace stats` writes a page about one, `trace model` fits a
    model to it; `trace corpus` records the programs of `bench traces`.
    """


def trace_info(parser: argparse.ArgumentParser) -> None:
    """Say what a trace holds: which program, how many calls of which kind, threads, memory, gaps.

    Example:

        freestone trace info app.fst
    """
    parser.add_argument("trace", type=Path, metavar="TRACE")
    partial(parser)


def trace_check(parser: argparse.ArgumentParser) -> None:
    """Check traces from the first byte to the last; exit 1 when one is damaged, and say where.

    Example:

        freestone trace check app.fst
    """
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")


def trace_cut(parser: argparse.ArgumentParser) -> None:
    """Write a part of a trace: between two times, of one process, or as much of the beginning as fits a size.

    Blocks that are live at the beginning are made there.

    Example:

        freestone trace cut app.fst -o part.fst --from 10s --until 20s --max-bytes 2m
    """
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the new trace")
    parser.add_argument("--from", dest="begin", metavar="10s", help="where it begins; default the start")
    parser.add_argument("--until", dest="end", metavar="20s", help="where it ends; default the end")
    parser.add_argument("--process", type=at_least(0), metavar="N", help="only this process")
    parser.add_argument("--max-bytes", metavar="2m", help="no larger than this")
    partial(parser)


def trace_merge(parser: argparse.ArgumentParser) -> None:
    """Write several traces as one: all programs at once, each with its threads and processes.

    Example:

        freestone trace merge a.fst b.fst -o both.fst --one-process
    """
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the new trace")
    parser.add_argument("--one-process", action="store_true", help="as threads of one process, replayed together")


def trace_anonymise(parser: argparse.ArgumentParser) -> None:
    """Write a trace without what names its origin: program, machine, date, stacks.

    Example:

        freestone trace anonymise app.fst -o shared.fst --round-sizes 16
    """
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the new trace")
    parser.add_argument("--round-sizes", type=at_least(1), default=1, metavar="N", help="round sizes up to multiples")


def trace_import(parser: argparse.ArgumentParser) -> None:
    """Write another tool's record as a trace: glibc's mtrace, heaptrack's data (as it is, or unpacked), or the text
    of `ltrace -e malloc+free+realloc+calloc`. Such a record has one thread.

    Example:

        freestone trace import mtrace.txt -o app.fst
    """
    parser.add_argument("source", type=Path, metavar="FILE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the trace")


def trace_stats(parser: argparse.ArgumentParser) -> None:
    """Write a page about a trace: sizes, lifetimes, who frees whose blocks, growth, alignments, live memory over time,
    and the least memory that any allocator needs beside what some needed.

    Example:

        freestone trace stats app.fst -o app.html
    """
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: the trace's name, as .html")
    parser.add_argument("--with", dest="with_", action="append", default=[], metavar=ALLOCATOR,
                        help="set this allocator beside the bound (repeatable); default glibc, freestone")  # fmt: skip
    partial(parser)


def trace_model(parser: argparse.ArgumentParser) -> None:
    """Fit a model to a trace: sizes, lifetimes, phases and threads in a few KiB, without the program's order of calls.

    `freestone replay` takes a model as it takes a trace. The figures of one replay of each are shown.

    Example:

        freestone trace model app.fst -o app.model
    """
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the model")
    partial(parser)


def trace_corpus(parser: argparse.ArgumentParser) -> None:
    """Record the programs of the corpus that are installed, for `freestone bench traces`.

    Example:

        freestone trace corpus --max-bytes 2m
    """
    parser.add_argument("names", nargs="*", metavar="PROGRAM", help="which; all when none is named")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="default trace/corpus")
    parser.add_argument("--max-bytes", default="2m", metavar="2m", help="the largest size of a trace")


def trace_fidelity(parser: argparse.ArgumentParser) -> None:
    """How near a replay comes to its program, and a model to its trace, in time in malloc and in memory, under glibc.

    Records each program, then runs in each round the program with its calls timed, its replay, and its model's replay.

    Example:

        freestone trace fidelity --rounds 9 --json docs/results/fidelity.json && freestone docs
    """
    parser.add_argument("names", nargs="*", metavar="PROGRAM",
                        help="of `freestone trace corpus`; default thirteen")  # fmt: skip
    parser.add_argument("--rounds", type=at_least(1), default=5, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round")


def bench(parser: argparse.ArgumentParser) -> None:
    """Run suites (default: quick), single workloads or applications under every allocator.

    `bench scaling` runs thread workloads with 1, 2, 4 ... up to twice as many threads as there are processors, and
    draws throughput and memory over them.

    `bench traces` replays the corpus of recorded programs, `bench traces/NAME` one of them.

    The null allocator, which never frees, stands in each table: its figures are the workload's own cost.
    `bench attacks` tests what allocators do against misuse, `bench mitigations` what each mitigation costs.

    Examples:

        freestone bench

        freestone bench published -o published.html

        freestone bench scaling --only freestone --only gperftools --rounds 5

        freestone bench full --budget 40m --json full.json.gz

        freestone bench lifetimes:threads=2,law=program --only jemalloc --rounds 20

        freestone bench attacks --quick
    """
    parser.add_argument("names", nargs="*", metavar="SUITE|WORKLOAD|APP")
    allocators(parser)
    parser.add_argument("--rounds", type=at_least(1), metavar="N",
                        help="rounds of each experiment; default the suite's")  # fmt: skip
    parser.add_argument("--budget", metavar="40m",
                        help="divide this time over the experiments: fewer rounds, never fewer sizes")  # fmt: skip
    seed(parser)
    parser.add_argument("--no-null", action="store_true", help="leave out the null allocator")
    parser.add_argument("--cluster", metavar="ADDRESS", help="run the traces on the workers of this Dask scheduler")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="with --cluster: go on with what is stored there")
    parser.add_argument("--list", dest="listing", action="store_true", help="only list what there is")
    exports(parser)


def attacks(parser: argparse.ArgumentParser) -> None:
    """Attack allocators: misuse in many forms, each in a process of its own, after its bug-free twin.

    Examples:

        freestone bench attacks

        freestone bench attacks --quick freestone-hardened glibc --details freestone-hardened

        freestone bench attacks --case double-free --case 'overflow_*_1' --size small

        freestone bench attacks --enumerated --rounds 200 freestone-hardened scudo glibc
    """
    parser.add_argument("names", nargs="*", metavar=ALLOCATOR,
                        help="which; all when none is named, and `nocheck`, which checks nothing")  # fmt: skip
    parser.add_argument("--case", action="append", default=[], help="a case, family or wildcard (repeatable)")
    parser.add_argument("--size", action="append", default=[], help="small, medium or large (repeatable)")
    parser.add_argument("--seeds", type=at_least(1), metavar="N", help="seeds of each case and size")
    parser.add_argument("--first-seed", type=at_least(0), default=1, metavar="N", help="the first seed")
    parser.add_argument("--quick", action="store_true", help="two seeds")
    parser.add_argument("--jobs", type=at_least(1), default=2, metavar="N", help="processes at a time")
    parser.add_argument("--details", action="append", default=[], metavar="NAME",
                        help="list what got through under this allocator (repeatable)")  # fmt: skip
    output(parser, "the result file (.json or .json.gz)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables as Markdown")
    parser.add_argument("--gate", metavar="NAME=PERCENT,...",
                        help="exit 1 below that share, or at any false alarm")  # fmt: skip
    parser.add_argument("--list", dest="list_cases", action="store_true", help="only list the cases")
    parser.add_argument("--enumerated", action="store_true",
                        help="the attacks drawn from a table of kinds, means and offsets instead")  # fmt: skip
    parser.add_argument("--rounds", type=at_least(1), default=100, metavar="N",
                        help="with --enumerated: attacks of each kind")  # fmt: skip
    parser.add_argument("--kind", default="", metavar="TEXT",
                        help="with --enumerated: only kinds whose name has this in it")  # fmt: skip


def mitigations(parser: argparse.ArgumentParser) -> None:
    """Measure what each mitigation of the hardened build costs: a library of each alone, beside the fast build.

    Examples:

        freestone bench mitigations -o docs/results/mitigations.json.gz && freestone docs
    """
    parser.add_argument("--rounds", type=at_least(1), default=8, metavar="N", help="rounds of each experiment")
    seed(parser)
    output(parser, "the result file (.json.gz)")


def report(parser: argparse.ArgumentParser) -> None:
    """Write one self-contained HTML page about one or more result files.

    Examples:

        freestone report results/compare-20261120-120000.json

        freestone report full.json.gz -o full.html --weights throughput=2,memory=3
    """
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="result files (.json or .json.gz)")
    output(parser, "default: the first result, as .html")
    parser.add_argument("--weights", metavar="NAME=N,...",
                        help="scorecard weights: throughput, latency, memory, tooling, security")  # fmt: skip


def docs(parser: argparse.ArgumentParser) -> None:
    """Make docs/TUNING.md from the option table; docs/BENCHMARKS.md, docs/plots and the tables in
    docs/HARDENING.md from docs/results.

    Example:

        freestone docs --check
    """
    parser.add_argument("--check", action="store_true", help="write nothing; say what is out of date, exit 1")


def diff(parser: argparse.ArgumentParser) -> None:
    """What changed from result A to result B.

    Each allocator is compared through its ratio to the baseline of its own file, so that a slower machine does
    not look like a slower allocator.

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


def doctor(parser: argparse.ArgumentParser) -> None:
    """Is this machine fit to measure, and if not, why.

    Exit status 1 when figures of time could not be trusted now.
    """


def peers(parser: argparse.ArgumentParser) -> None:
    """List every allocator that a program can be run under.

    `peers install` installs Debian's and builds the newest releases of the others; `peers probe` measures how each
    behaves.

    Examples:

        freestone peers

        freestone peers --with mine=./libmine.so --json
    """
    parser.add_argument("--with", dest="given", action="append", default=[], metavar="NAME=path.so",
                        help="also this allocator (repeatable)")  # fmt: skip
    parser.add_argument("--controls", action="store_true", help="also those by which the lab is tested")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of tables")


def peers_install(parser: argparse.ArgumentParser) -> None:
    """Install Debian's allocators and build the newest releases of the others.

    Examples:

        freestone peers install

        freestone peers install mimalloc jemalloc scudo
    """
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all when none is named")
    parser.add_argument("--force", action="store_true", help="build again what is already here")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of tables")


def peers_probe(parser: argparse.ArgumentParser) -> None:
    """Measure how each allocator behaves: names, zero sizes, alignment, errno, usable sizes, truth of statistics.

    Examples:

        freestone peers probe

        freestone peers probe glibc freestone --json
    """
    parser.add_argument("names", nargs="*", metavar=ALLOCATOR, help="which; all when none is named")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of tables")


def stats(parser: argparse.ArgumentParser) -> None:
    """What a heap holds: a running process, or a file that libfreestone wrote.

    A process is asked to show itself for the length of the look when it was not started with
    FREESTONE_CONF=live_page:true. A file is what the option stats_file writes (.json or
    .prom). Without an argument, every process of yours that shows itself is listed.

    Examples:

        freestone stats 4711

        freestone stats /var/lib/node_exporter/server.prom
    """
    parser.add_argument("target", nargs="?", metavar="PID|FILE")


def top(parser: argparse.ArgumentParser) -> None:
    """A running heap, live: parts, rates, the last minute, size classes, threads.

    Keys: s sorts by another column, c shows the size classes, t the threads, b both, f freezes, q ends.

    The process is asked to show itself meanwhile when it was not started with FREESTONE_CONF=live_page:true. Example:

        freestone top $(pidof server)
    """
    parser.add_argument("pid", type=at_least(1), metavar="PID")
    parser.add_argument("--every", default="1s", metavar="1s", help="time between two pictures")
    parser.add_argument("--count", type=at_least(1), metavar="N", help="end after so many pictures")


def profile_show(parser: argparse.ArgumentParser) -> None:
    """Show profiles: pprof, collapsed stacks, or heap_v2 text. Several become a timeline."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="profiles of one program, oldest first")
    page(parser)


def profile_diff(parser: argparse.ArgumentParser) -> None:
    """Show what grew (red) and what shrank (blue) between two profiles."""
    parser.add_argument("before", type=Path, metavar="BEFORE")
    parser.add_argument("after", type=Path, metavar="AFTER")
    page(parser)


def profile(parser: argparse.ArgumentParser) -> None:
    """Where a program's memory comes from: run it, look at it while it runs, or show profiles that exist.

    Ctrl-C ends the look and writes the page. With CMD the program ends too, and the exit status is its own; with --pid
    it goes on. An output file called .pb.gz is pprof with names inside, for `go tool pprof` and speedscope.

    Examples:

        freestone profile -- ./server --port 8080

        freestone profile --pid $(pidof server) --for 30s -o heap.html

        freestone profile show heap.pb.gz -o heap.html

        freestone profile diff before.pb.gz after.pb.gz -o diff.html
    """
    program(parser, needed=False)
    running(parser)
    parser.add_argument("--sample-bytes", type=at_least(1), default=512 * 1024, metavar="N",
                        help="mean bytes between samples")  # fmt: skip
    parser.add_argument("--format", dest="form", choices=("pprof", "collapsed", "heap_v2"), default="pprof",
                        help="form of the files kept with --keep")  # fmt: skip
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the profile files there")
    page(parser)


def running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pid", type=at_least(1), metavar="N", help="look at this running process of libfreestone")
    parser.add_argument("--for", dest="for_", metavar="30s", help="how long --pid looks; until Ctrl-C when not given")


def page(parser: argparse.ArgumentParser) -> None:
    output(parser, "where the page goes")
    parser.add_argument("--open", dest="open_page", action="store_true", help="open the page in a browser")


def leaks(parser: argparse.ArgumentParser) -> None:
    """Blocks that a program lost, with the stacks that allocated them: of CMD at its exit, or of a running process.

    A block is lost when nothing in the program's memory points to it. The exit status is CMD's, or that of --error when
    something was lost. With --pid the blocks are those that were allocated during the look, sampled, and the process
    goes on.

    Examples:

        freestone leaks -- ./server --selftest

        freestone leaks --sampled --error 0 -- python3 app.py

        freestone leaks --pid $(pidof server) --for 10m
    """
    program(parser, needed=False)
    running(parser)
    parser.add_argument("--sampled", action="store_true", help="look at samples, not at every block: for long runs")
    parser.add_argument("--error", type=at_least(0), default=23, metavar="N",
                        help="exit status when something was lost; 0: CMD's own")  # fmt: skip
    parser.add_argument("--depth", type=at_least(1), default=16, metavar="N", help="calls shown per place")


def agent(parser: argparse.ArgumentParser) -> None:
    """Serve the figures of every process of this machine under libfreestone to Prometheus, and push heap profiles.

    A process shows itself when it was started with FREESTONE_CONF=live_page:true; with --all the agent asks every
    process to. Figures are added up by service (systemd unit or container) and program; what has ended is gone.

    Examples:

        freestone agent --all

        freestone agent --listen 0.0.0.0:9477 --push http://pyroscope:4040 --every 60s
    """
    parser.add_argument("--listen", default="127.0.0.1:9477", metavar="ADDRESS:PORT", help="where /metrics is served")
    parser.add_argument("--all", action="store_true", help="turn the live page on in processes that show none")
    parser.add_argument("--push", metavar="URL", help="a store of profiles with Pyroscope's /ingest")
    parser.add_argument("--every", default="60s", metavar="60s", help="time between two profiles, or looks of --all")
    parser.add_argument("--once", action="store_true", help="print the metrics and end")


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
    """Run the tests: all, or just some parts of them. The last line counts them.

    What judges times is left out, as another program beside it would decide it: `--timing` runs that, and that alone,
    on a quiet machine.

    Examples:

        freestone test

        freestone test release lab

        freestone test --long asan
    """
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help="a build, `lab`, or with --programs the name of a program")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--long", dest="form", action="store_const", const="long", default="usual",
                      help="long forms: hours of random operations, storms and faults")  # fmt: skip
    form.add_argument("--programs", dest="form", action="store_const", const="programs",
                      help="real programs of Debian under both libraries; installs what is missing")  # fmt: skip
    form.add_argument("--timing", dest="form", action="store_const", const="timing", help="only what judges times")


@dataclass(frozen=True)
class Command:
    """`module` of freestone_lab.commands holds its `function`; `needs` says which packages that imports."""

    options: Callable[[argparse.ArgumentParser], None]
    module: str
    needs: str = RUNTIME
    function: str = "run"


# A word that follows another one, as `bench attacks`, is looked up first.
COMMANDS: dict[str, Command] = {
    "advise": Command(advise, "advise"),
    "compare": Command(compare, "compare"),
    "run": Command(run, "run", BARE),
    "bench": Command(bench, "bench"),
    "bench attacks": Command(attacks, "attacks"),
    "bench mitigations": Command(mitigations, "mitigations"),
    "lib": Command(lib, "run", BARE, "print_library"),
    "record": Command(record, "record", BARE),
    "replay": Command(replay, "replay"),
    "trace": Command(trace, "trace", function="usage"),
    "trace info": Command(trace_info, "trace", function="info"),
    "trace check": Command(trace_check, "trace", function="check"),
    "trace cut": Command(trace_cut, "trace", function="cut"),
    "trace merge": Command(trace_merge, "trace", function="merge"),
    "trace anonymise": Command(trace_anonymise, "trace", function="anonymise"),
    "trace import": Command(trace_import, "trace", function="take_foreign"),
    "trace stats": Command(trace_stats, "trace", function="stats"),
    "trace model": Command(trace_model, "trace", function="fit_model"),
    "trace fidelity": Command(trace_fidelity, "trace", function="measure_fidelity"),
    "trace corpus": Command(trace_corpus, "trace", function="record_corpus"),
    "report": Command(report, "report"),
    "diff": Command(diff, "diff"),
    "doctor": Command(doctor, "doctor"),
    "peers": Command(peers, "peers"),
    "peers install": Command(peers_install, "peers", function="install"),
    "peers probe": Command(peers_probe, "peers", function="probe"),
    "stats": Command(stats, "stats", BARE),
    "top": Command(top, "stats", BARE, "watch"),
    "profile": Command(profile, "profile"),
    "profile show": Command(profile_show, "profile", function="show"),
    "profile diff": Command(profile_diff, "profile", function="diff"),
    "leaks": Command(leaks, "leaks", BARE),
    "agent": Command(agent, "agent", BARE),
    "package": Command(package, "package", BARE),
    "setup": Command(setup, "setup"),
    "test": Command(test, "test", DEVELOPMENT),
    "docs": Command(docs, "docs"),
}
ALIASES = {"attacks": "bench attacks"}
# What only the source tree can do: an installation has nothing to build or test.
SOURCE_TREE = ("package", "setup", "test", "docs")


def select(arguments: list[str]) -> tuple[str, list[str]]:
    """The command that the arguments begin with, and what follows it; ("", ...) when there is none."""
    first = ALIASES.get(arguments[0], arguments[0]) if arguments else ""
    both = f"{first} {arguments[1]}" if len(arguments) > 1 else ""
    if both in COMMANDS:
        return both, arguments[2:]
    return (first, arguments[1:]) if first in COMMANDS else ("", arguments)


def parser_of(name: str) -> Parser:
    command = COMMANDS[name]
    parser = Parser(prog=f"freestone {name}", description=_unindented(command.options.__doc__ or ""))
    command.options(parser)
    return parser


def parse(name: str, arguments: list[str]) -> argparse.Namespace:
    """What was typed after the command's name. Ends the program with one line when it makes no sense."""
    found = parser_of(name).parse_args(arguments[:-1] if arguments[-1:] == ["--"] else arguments)
    if "command" in found:
        words = found.command or []
        found.command = words[1:] if words[:1] == ["--"] else words
    return found


def _unindented(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.strip().splitlines())
