"""`freestone record`: a trace of every allocation call of a program."""

from argparse import Namespace

from freestone_lab.core import units
from freestone_lab.trace import recording


def run(options: Namespace) -> int:
    request = recording.Request(
        output=options.output,
        command=tuple(options.command or ()),
        pid=options.pid,
        seconds=units.seconds(options.for_, "--for") if options.for_ is not None else None,
        max_bytes=units.size_bytes(options.max_bytes, "--max-bytes") if options.max_bytes is not None else None,
        buffer_bytes=units.size_bytes(options.buffer, "--buffer"),
        sample_threads=options.sample_threads,
        stacks=options.stacks,
        under=options.with_,
    )
    return recording.record(request)
