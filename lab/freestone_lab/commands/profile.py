"""`freestone profile`: where a program's memory comes from, as a page with a flame graph."""

import json
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from freestone_lab.core import outputs, paths, units
from freestone_lab.core.errors import UserError
from freestone_lab.flamegraph import table
from freestone_lab.flamegraph.model import Profile, of_processes
from freestone_lab.flamegraph.pprof import encode
from freestone_lab.flamegraph.readers import collapsed_text
from freestone_lab.flamegraph.view import write_profiles
from freestone_lab.heap import profiling


def run(options: Namespace) -> int:
    check_target(options, "profile")
    seconds = None if options.for_ is None else units.seconds(options.for_, "--for")
    path = paths.must_be_writable(options.output, "--output")
    if options.pids is not None:
        found = profiling.look(options.pids, options.sample_bytes, seconds)
        for note in (note for one in found for note in one.notes):
            print(f"note: {note}", file=sys.stderr)
        title = f"Heap of {', '.join(p.label for p in found)}, {found[0].duration:.1f} s"
        _finish(path, _page(found, title, "inuse_space"), options.open_page)
        return 0
    done = profiling.run(options.command, profiling.Form(options.form), options.sample_bytes, options.keep, seconds)
    if not done.profiles:
        print(f"freestone: {done.missing}", file=sys.stderr)
        return done.exit_status
    _finish(path, _page(done.profiles, f"Heap of {' '.join(options.command)}", "peak_space"), options.open_page)
    return done.exit_status


def check_target(options: Namespace, command: str) -> None:
    if (options.pids is None) == (not options.command):
        raise UserError(f"{command}: expected one of CMD and --pid N")
    if options.pids == []:
        raise UserError("--pid: no process; expected the number of one that runs")


def _page(profiles: list[Profile], title: str, view: str) -> Callable[[Path], None]:
    """A table on stderr; the file is a page, or of what the page opens with: JSON (.json), pprof with names inside (.pb
    or .pb.gz), a line for each stack (.collapsed)."""
    for line in table.lines(profiles, view):
        print(line, file=sys.stderr)
    shown = profiles[0 if of_processes(profiles) else -1]

    def write(path: Path) -> None:
        if path.suffix == ".json":
            outputs.write_whole(path, json.dumps(table.as_json(shown), indent=1) + "\n")
        elif path.name.endswith((".pb", ".pb.gz")):
            outputs.write_whole(path, encode(shown, view))
        elif path.suffix == ".collapsed":
            outputs.write_whole(path, collapsed_text(shown, view))
        else:
            write_profiles(profiles, path, title, view=view)

    return write


def show(options: Namespace) -> None:
    files = options.files
    derived = files[0].with_name(files[0].name.split(".")[0] + ".html")
    path = paths.must_be_writable(options.output or outputs.ours(derived, options.force, options.inputs), "--output")
    page = _page(profiling.load(files), f"Heap profile {', '.join(f.name for f in files)}", "inuse_space")
    _finish(path, page, options.open_page)


def diff(options: Namespace) -> None:
    before, after = options.before, options.after
    path = paths.must_be_writable(options.output, "--output")
    title, profiles = f"Heap: {after.name} against {before.name}", profiling.load([before, after])
    _finish(path, lambda place: write_profiles(profiles, place, title, compare=True), options.open_page)


def _finish(path: Path, make: Callable[[Path], None], open_page: bool) -> None:
    place = outputs.must_write(path, make)
    if open_page:
        webbrowser.open(place.resolve().as_uri())
