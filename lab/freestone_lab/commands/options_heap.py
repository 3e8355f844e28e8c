"""The options of the commands that look into a heap. Imports the standard library only."""

import argparse
from pathlib import Path

from freestone_lab.commands import options_shared as shared


def stats(parser: argparse.ArgumentParser) -> None:
    """What a heap holds: a running process, or a file that libfreestone wrote.

    The counters of a process are read in its memory, so it may be idle. A file is what the option stats_file
    writes (.json or .prom). Without an argument, every process under libfreestone is listed.

    Examples:

        freestone stats 4711
        freestone stats /var/lib/node_exporter/server.prom
    """
    parser.add_argument("targets", nargs="*", metavar="PID|FILE")


def top(parser: argparse.ArgumentParser) -> None:
    """A running heap, live: parts, rates, the last minute, size classes, threads.

    Keys: s sorts by another column, c shows the size classes, t the threads, b both, f freezes, q ends.

    Example:

        freestone top $(pidof server)
    """
    parser.add_argument("pids", nargs="*", type=shared.at_least(1), metavar="PID")
    parser.add_argument("--every", default="1s", metavar="1s", help="time between two pictures")
    parser.add_argument("--count", type=shared.at_least(1), metavar="N", help="end after so many pictures")


def profile(parser: argparse.ArgumentParser) -> None:
    """Where a program's memory comes from: run it, look at it while it runs, or show profiles that exist.

    Ctrl-C, or the time of --for, ends the look and writes the page. CMD is ended too (SIGTERM), and the exit status is
    its own; with --pid the program goes on. Of several processes the page lists all, and opens with the largest. What
    holds most stands on stderr: functions, or in Python lines. An output file called .json has all of them, one called
    .pb.gz is pprof with names inside, for `go tool pprof` and speedscope, one called .collapsed has a line a stack.

    Examples:

        freestone profile -- ./server --port 8080
        freestone profile --pid $(pidof server) --for 30s -o heap.html
        freestone profile show heap.pb.gz -o heap.html
        freestone profile diff before.pb.gz after.pb.gz -o diff.html
    """
    shared.program(parser, needed=False)
    running(parser)
    parser.add_argument("--sample-bytes", type=shared.at_least(1, 1 << 40), default=512 * 1024, metavar="N",
                        help="mean bytes between samples")  # fmt: skip
    parser.add_argument("--format", dest="form", choices=("pprof", "collapsed", "heap_v2"), default="pprof",
                        help="form of the files kept with --keep")  # fmt: skip
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the profile files there")
    page(parser, Path("profile.html"))


def profile_show(parser: argparse.ArgumentParser) -> None:
    """Show profiles: pprof, collapsed stacks, or heap_v2 text. Several become a timeline."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="profiles of one program, oldest first")
    page(parser)


def profile_diff(parser: argparse.ArgumentParser) -> None:
    """Show what grew (red) and what shrank (blue) between two profiles."""
    parser.add_argument("before", type=Path, metavar="BEFORE")
    parser.add_argument("after", type=Path, metavar="AFTER")
    page(parser, Path("profile-diff.html"))


def running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pid", dest="pids", nargs="*", action="extend", type=shared.at_least(1), metavar="N",
                        help="look at these running processes of libfreestone")  # fmt: skip
    parser.add_argument("--for", dest="for_", metavar="30s",
                        help="how long the look lasts; until Ctrl-C or the end of CMD when not given")  # fmt: skip


def page(parser: argparse.ArgumentParser, default: Path | None = None) -> None:
    shared.output(parser, "where the page goes", default)
    shared.open_page(parser)


def leaks(parser: argparse.ArgumentParser) -> None:
    """Blocks that a program lost, with the stacks that allocated them: of CMD at its end, or of running processes.

    A block is lost if nothing in the program's memory points to it. The exit status is CMD's, or that of --error if
    something was lost. With --pid the command samples the blocks allocated during the look, and the process goes on.

    Examples:

        freestone leaks -- ./server --selftest
        freestone leaks --sampled --error 0 -- python3 app.py
        freestone leaks --pid $(pidof server) --for 10m
    """
    shared.program(parser, needed=False)
    running(parser)
    parser.add_argument("--sampled", action="store_true", help="look at samples, not at every block: for long runs")
    parser.add_argument("--error", type=shared.at_least(0, 255), default=23, metavar="N",
                        help="exit status when something was lost; 0: CMD's own")  # fmt: skip
    parser.add_argument("--depth", type=shared.at_least(1), default=16, metavar="N", help="calls shown per place")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found as JSON")


def agent(parser: argparse.ArgumentParser) -> None:
    """Serve the figures of every process of this machine under libfreestone to Prometheus, and push heap profiles.

    A process shows itself if it was started with FREESTONE_CONF=live_page:true. With --all the agent reads the memory
    of all, idle or not, and counts those that it cannot read. It adds up figures by service (systemd unit or container)
    and program. Ended processes drop out.

    Examples:

        freestone agent --all
        freestone agent --listen 0.0.0.0:9477 --push http://pyroscope:4040 --every 60s
    """
    parser.add_argument("--listen", default="127.0.0.1:9477", metavar="ADDRESS:PORT", help="where /metrics is served")
    parser.add_argument("--all", action="store_true", help="read the memory of processes that show no live page")
    parser.add_argument("--push", metavar="URL", help="a store of profiles with Pyroscope's /ingest")
    parser.add_argument("--every", default="60s", metavar="60s", help="time between two profiles, or looks of --all")
    parser.add_argument("--once", action="store_true", help="print the metrics and end")
