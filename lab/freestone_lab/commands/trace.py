"""`freestone trace`: look at traces, and make others from them."""

from argparse import Namespace
from pathlib import Path

import numpy as np

from freestone_lab.core import outputs, paths, units
from freestone_lab.core.errors import UserError
from freestone_lab.peers import discover
from freestone_lab.report import trace_page
from freestone_lab.trace import behaviour, corpus, describe, events, foreign, replaying, transform
from freestone_lab.trace.events import Trace, TraceError

DEFAULT_PEERS = ("glibc", "freestone")


def usage(_: Namespace) -> None:
    raise UserError("expected a word after `trace`; see freestone trace --help")


def check(options: Namespace) -> int:
    status = 0
    for path in options.traces:
        try:
            found = events.read(path)
        except UserError as error:
            print(f"freestone: {error}")
            status = max(status, 1 if isinstance(error, TraceError) else 2)
        else:
            threads = len(np.unique(found.rows["thread"]))
            print(f"{path}: {len(found.rows)} events of {threads} threads, every checksum right")
    return status


def cut(options: Namespace) -> None:
    trace = events.read(options.trace, partial=options.partial)
    begin = units.seconds(options.begin, "--from") if options.begin else 0.0
    end = units.seconds(options.end, "--until") if options.end else None
    if options.begin or options.end or options.process is not None:
        trace = transform.cut(trace, begin, end, options.process)
    if options.max_bytes:
        path = paths.must_be_writable(options.output, "--output")
        transform.to_size(trace, units.size_bytes(options.max_bytes, "--max-bytes"), path)
        _say(options.output)
    else:
        _write(trace, options.output)


def merge(options: Namespace) -> None:
    made = transform.merge([events.read(path) for path in options.traces])
    _write(transform.one_process(made) if options.one_process else made, options.output)


def anonymise(options: Namespace) -> None:
    _write(transform.anonymise(events.read(options.trace), options.round_sizes), options.output)


def take_foreign(options: Namespace) -> None:
    _write(foreign.read(options.source), options.output)


def stats(options: Namespace) -> None:
    path = options.output or outputs.ours(options.trace.with_suffix(".html"), options.force, options.inputs)
    trace = events.read(options.trace, partial=options.partial)
    paths.must_be_writable(path, "--output")
    found = behaviour.describe(trace)
    way = replaying.Way(idle_ms=0)
    needed = []
    names = [name for word in options.with_ for name in word.split(",")]
    for peer in discover.discover(only=names) if names else [p for p in discover.discover() if p.name in DEFAULT_PEERS]:
        said = replaying.replay(replaying.command(replaying.make_plan(options.trace, way), way), peer.path)
        needed.append((peer.name, said["figures"]["rss"]["value"], said["figures"]["rss_mean"]["value"]))
    title = f"{trace.meta.get('program', options.trace.stem)}: allocation calls"
    outputs.write_whole(path, trace_page.page(title, found, needed))
    print(f"{found.size_sum_note}; at most {found.peak_live_kib:.0f} KiB live at once")
    for name, peak, mean in needed:
        print(f"  {name}: peak {peak:.0f} KiB, mean {mean:.0f} KiB")
    print(f"written: {path}")


def record_corpus(options: Namespace) -> None:
    most = units.size_bytes(options.max_bytes, "--max-bytes")
    made = corpus.record_all(options.output or corpus.folder(), most, options.names, print)
    print(f"{len(made)} traces, {units.size_words(sum(path.stat().st_size for path in made))}")


def _write(trace: Trace, path: Path) -> None:
    if not len(trace.rows):
        raise UserError("nothing is left of the trace")
    events.write(trace, paths.must_be_writable(path, "--output"))
    _say(path)


def _say(path: Path) -> None:
    print(f"{path}: {describe.facts(path)['events']} events, {units.size_words(path.stat().st_size)}")
