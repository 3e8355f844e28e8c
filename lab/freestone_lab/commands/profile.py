"""`freestone profile`: where a program's memory comes from, as a page with a flame graph."""

from __future__ import annotations

import json
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from freestone_lab.core import outputs, paths, units
from freestone_lab.core.errors import UserError
from freestone_lab.flamegraph import table
from freestone_lab.flamegraph.model import Profile
from freestone_lab.flamegraph.pprof import encode
from freestone_lab.flamegraph.view import write_profiles
from freestone_lab.heap import profiling


def run(options: Namespace) -> int:
    if (options.pid is None) == (not options.command):
        raise UserError("profile: expected one of CMD and --pid N")
    path = paths.must_be_writable(options.output, "--output")
    if options.pid is not None:
        seconds = None if options.for_ is None else units.seconds(options.for_, "--for")
        found = profiling.look(options.pid, options.sample_bytes, seconds)
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)
        title = f"Heap of {found.label}, {found.duration:.1f} s"
        _finish(path, _page([found], title, view="inuse_space"), options.open_page)
        return 0
    done = profiling.run(options.command, profiling.Form(options.form), options.sample_bytes, options.keep)
    _finish(path, _page(done.profiles, f"Heap of {' '.join(options.command)}", view="peak_space"), options.open_page)
    return done.exit_status


def _page(profiles: list[Profile], title: str, *, view: str) -> Callable[[Path], None]:
    """A table on stderr; the file is a page, JSON if it is called .json, pprof with names inside if .pb or .pb.gz."""
    for line in table.lines(profiles[-1], view):
        print(line, file=sys.stderr)

    def write(path: Path) -> None:
        if path.suffix == ".json":
            outputs.write_whole(path, json.dumps(table.as_json(profiles[-1]), indent=1) + "\n")
        elif path.name.endswith((".pb", ".pb.gz")):
            outputs.write_whole(path, encode(profiles[0], view))
        else:
            write_profiles(profiles, path, title, view=view)

    return write


def show(options: Namespace) -> None:
    files = options.files
    derived = files[0].with_name(files[0].name.split(".")[0] + ".html")
    path = paths.must_be_writable(options.output or outputs.ours(derived, options.force), "--output")
    page = _page(profiling.load(files), f"Heap profile {', '.join(f.name for f in files)}", view="inuse_space")
    _finish(path, page, options.open_page)


def diff(options: Namespace) -> None:
    before, after = options.before, options.after
    path = paths.must_be_writable(options.output, "--output")
    title, profiles = f"Heap: {after.name} against {before.name}", profiling.load([before, after])
    _finish(path, lambda place: write_profiles(profiles, place, title, compare=True), options.open_page)


def _finish(path: Path, make: Callable[[Path], None], open_page: bool) -> None:
    """Writes the file, elsewhere if its place fails: a program may have run for hours for it."""
    place = outputs.write(path, make, lambda text: print(f"freestone: {text}", file=sys.stderr))
    if place is None:
        raise UserError(f"'{path}': the profile could not be written anywhere")
    print(f"written: {place}", file=sys.stderr)
    if open_page:
        webbrowser.open(place.resolve().as_uri())
