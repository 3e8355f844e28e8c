"""The options of the commands that record, replay and look at traces. Imports the standard library only."""

import argparse
from pathlib import Path

from freestone_lab.commands import options_shared as shared


def _pace(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}': expected a number such as 1.0 or 0.5") from None


def record(parser: argparse.ArgumentParser) -> None:
    """Record every allocation call of CMD, or of a running process, into a trace; the exit status is CMD's.

    The recorder stands in front of the allocator that serves the program. The trace holds sizes, times and the order of
    calls, but no byte of the program's data, none of its arguments, and no address.

    Examples:

        freestone record -o app.fst -- ./server --port 8080
        freestone record -o app.fst --pid 1234 --for 60s --max-bytes 2g
    """
    shared.program(parser, needed=False)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", default=Path("app.fst"),
                        help="the trace; default app.fst")  # fmt: skip
    parser.add_argument("--pid", type=shared.at_least(1), metavar="N",
                        help="join a running process that libfreestone-record.so is loaded in")  # fmt: skip
    parser.add_argument("--for", dest="for_", metavar="60s", help="end the recording after this time; CMD goes on")
    parser.add_argument("--max-bytes", metavar="2g", help="end the recording at this size of the trace")
    parser.add_argument("--buffer", default="64m", metavar="64m", help="memory between the program and the writer")
    parser.add_argument(
        "--sample-threads", type=shared.at_least(1), default=1, metavar="N", help="record one thread in N"
    )
    parser.add_argument("--stacks", action="store_true",
                        help="record sampled call stacks: addresses of code enter the trace")  # fmt: skip
    parser.add_argument("--with", dest="with_", metavar=shared.ALLOCATOR, help="serve CMD by this allocator")


def replay(parser: argparse.ArgumentParser) -> None:
    """Replay traces under every allocator: the same calls by the same threads, in the recorded order between them.

    It measures only the calls: time in malloc and in free, the tail, peak and mean memory, faults, memory after idle.
    It also runs without an allocator and reports what the replay itself costs.

    Examples:

        freestone replay app.fst
        freestone replay app.fst --with jemalloc,mimalloc --pace 1.0
        freestone replay app.fst --threads 16 --rounds 20
    """
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    shared.allocators(parser)
    shared.installing(parser)
    parser.add_argument("--pace", type=_pace, default=0.0, metavar="X",
                        help="1.0: as fast as recorded; default: as fast as possible")  # fmt: skip
    parser.add_argument("--threads", type=shared.at_least(1), metavar="N",
                        help="replay by so many threads; beyond the recorded ones, copies run too")  # fmt: skip
    parser.add_argument("--process", type=shared.at_least(0), metavar="N",
                        help="which process of the trace; default the one with the most calls")  # fmt: skip
    shared.budget(parser)
    parser.add_argument("--precision", metavar="1%", help="stop when every interval is this narrow (within 10 min)")
    parser.add_argument("--rounds", type=shared.at_least(1), metavar="N", help="exactly this many rounds")
    parser.add_argument("--quick", action="store_true", help="a budget of 15 s")
    shared.seed(parser)
    shared.exports(parser)


def partial(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partial", action="store_true", help="read a trace that was cut short as far as it goes")


def trace(parser: argparse.ArgumentParser) -> None:
    """Look at traces of allocation calls.

    `trace info` says what a trace holds; `trace check` checks it from the first byte to the last; `trace cut`,
    `merge`, `anonymise` and `import` write other traces; `trace stats` writes a page about one; `trace corpus`
    records the programs of `bench traces`.
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

    The part begins by making the blocks that are live there.

    Example:

        freestone trace cut app.fst -o part.fst --from 10s --until 20s --max-bytes 2m
    """
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the new trace")
    parser.add_argument("--from", dest="begin", metavar="10s", help="where it begins; default the start")
    parser.add_argument("--until", dest="end", metavar="20s", help="where it ends; default the end")
    parser.add_argument("--process", type=shared.at_least(0), metavar="N", help="only this process")
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
    parser.add_argument(
        "--round-sizes", type=shared.at_least(1, 1 << 40), default=1, metavar="N", help="round sizes up to multiples"
    )


def trace_import(parser: argparse.ArgumentParser) -> None:
    """Write another tool's record as a trace: glibc's mtrace, or heaptrack's data (as it is, or unpacked). Such a
    record has one thread.

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
    parser.add_argument("--with", dest="with_", action="append", default=[], metavar=shared.ALLOCATOR,
                        help="set this allocator beside the bound (repeatable); default glibc, freestone")  # fmt: skip
    partial(parser)


def trace_corpus(parser: argparse.ArgumentParser) -> None:
    """Record the programs of the corpus that are installed, for `freestone bench traces`.

    Example:

        freestone trace corpus --max-bytes 2m
    """
    parser.add_argument("names", nargs="*", metavar="PROGRAM", help="which; all when none is named")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="default trace/corpus")
    parser.add_argument("--max-bytes", default="2m", metavar="2m", help="the largest size of a trace")
