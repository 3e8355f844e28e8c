"""The corpus: traces of real programs of Debian, made by `freestone trace corpus`, replayed by `bench traces`.

The table has the programs of the suite `apps` and some more, whose work is a line of shell on inputs made here.
"""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core import outputs, paths
from freestone_lab.core.errors import UserError
from freestone_lab.engine.plan import Task
from freestone_lab.trace import events, recording, replaying, transform
from freestone_lab.workloads import apps

SECONDS = 60.0  # the longest recording of one program
LEAST_EVENTS = 1000  # what allocates less says nothing about an allocator
Say = Callable[[str], None]


@dataclass(frozen=True)
class Extra:
    """A program that the suite lacks: `script` runs in a folder that holds words.txt, data.json and table.csv."""

    name: str
    program: str  # looked for on PATH
    package: str
    script: str


EXTRAS: tuple[Extra, ...] = (
    Extra("python-json", "/usr/bin/python3", "python3", "PYTHONMALLOC=malloc /usr/bin/python3 -S load.py data.json"),
    Extra("php", "php", "php-cli", "USE_ZEND_ALLOC=0 php words.php words.txt"),
    Extra("sort", "sort", "coreutils", "sort --parallel=2 -S 8M words.txt table.csv"),
    Extra("grep", "grep", "grep", "grep -E '([a-z]+)e.*\\1' words.txt"),
    Extra("tar-xz", "xz", "xz-utils", "tar c words.txt table.csv data.json | xz -T2 -3"),
    Extra("curl", "curl", "curl", "curl -s file://$PWD/words.txt file://$PWD/data.json"),
    Extra("ffmpeg", "ffmpeg", "ffmpeg", "ffmpeg -v error -f lavfi -i testsrc=d=2:s=320x240 -c:v mpeg4 -y o.avi"),
    Extra("imagemagick", "convert", "imagemagick", "convert -size 600x400 plasma:blue-red -blur 0x3 -resize 50% o.png"),
    Extra("graphviz", "dot", "graphviz", "dot -Tsvg graph.dot -o graph.svg"),
    Extra("gcc-link", "gcc", "gcc", "gcc -O2 -flto main.c part.c -o a.out"),
    Extra("rustc", "rustc", "rustc", "rustc -O --emit=obj main.rs -o main.o"),
    Extra("vim", "vim", "vim", "vim -es -u NONE -c ':%s/e/E/g' -c ':wq! o.txt' words.txt"),
    Extra("tclsh", "tclsh", "tcl", "tclsh words.tcl words.txt"),
    Extra("gdb", "gdb", "gdb", "gdb -batch -ex 'info functions main' $(command -v bash)"),
)

_FILES = {
    "load.py": "import json, sys\nx = [json.load(open(sys.argv[1])) for _ in range(3)]\n"
    "y = [json.dumps(v) for v in x]\n",
    "words.php": "<?php $n = []; foreach (file($argv[1]) as $l) foreach (explode(' ', $l) as $w)"
    " $n[$w] = ($n[$w] ?? 0) + 1;"
    " arsort($n); echo json_encode(array_slice($n, 0, 20));\n",
    "words.tcl": "set f [open [lindex $argv 0]]\nforeach w [split [read $f]] { dict incr n $w }\nputs [dict size $n]\n",
    "main.c": "#include <stdio.h>\nint part(int);\n"
    'int main(void) { for (int i = 0; i < 9; i++) printf("%d", part(i)); }\n',
    "part.c": "int part(int x) { int s = 0; for (int i = 0; i < x * 99; i++) s += i ^ x; return s; }\n",
    "main.rs": "use std::collections::HashMap;\nfn main() { let mut m = HashMap::new(); for i in 0..999u32 {"
    ' m.entry(format!("{}", i % 77)).or_insert_with(Vec::new).push(i); } println!("{}", m.len()); }\n',
}


def _make_inputs(folder: Path) -> None:
    choose = random.Random(7)
    letters = "etaoinshrdlucmfw"
    words = ["".join(choose.choice(letters) for _ in range(choose.randrange(2, 11))) for _ in range(4000)]
    lines = [" ".join(choose.choice(words) for _ in range(choose.randrange(3, 15))) for _ in range(12000)]
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    rows = [{"id": i, "name": choose.choice(words), "tags": choose.sample(words, 3)} for i in range(8000)]
    (folder / "data.json").write_text(json.dumps(rows))
    (folder / "table.csv").write_text("\n".join(f"{r['id']},{r['name']}" for r in rows) + "\n")
    edges = [f"n{choose.randrange(120)} -> n{choose.randrange(120)};" for _ in range(200)]
    (folder / "graph.dot").write_text("digraph g {" + "".join(edges) + "}")
    for name, text in _FILES.items():
        (folder / name).write_text(text)


def rows(folder: Path, names: Sequence[str], say: Say) -> list[apps.Command]:
    found, absent = apps.available()
    known = {app.name for app in (*found, *absent)} | {extra.name for extra in EXTRAS}
    for name in names:
        if name not in known:
            raise UserError(f"'{name}': expected a program of the corpus: {', '.join(sorted(known))}")
    made = []
    for app in found:
        if names and app.name not in names:
            continue
        try:
            made.append(apps.as_command(app, apps.work_folder()))
        except apps.AppError as error:
            say(f"skipped: {error}")
    missing = [app.name for app in absent if not names or app.name in names]
    _make_inputs(folder)
    taken = {app.name for app in found}
    for extra in EXTRAS:
        if extra.name in taken or (names and extra.name not in names):
            continue
        if shutil.which(extra.program) is None:
            missing.append(f"{extra.name} ({extra.package})")
            continue
        env = {"LC_ALL": "C", "HOME": str(folder)}
        made.append(apps.Command(extra.name, extra.name, ("sh", "-c", extra.script), folder, env))
    if missing:
        say(f"not installed, skipped: {', '.join(missing)}")
    return made


def record_all(target: Path, most_bytes: int, names: Sequence[str], say: Say) -> list[Path]:
    """Records every program that is installed, and cuts each trace to the process with the most calls and the size."""
    target.mkdir(parents=True, exist_ok=True)
    made = []
    with outputs.Scratch("corpus") as scratch:
        for row in rows(Path(scratch), names, say):
            try:
                made.append(_record(row, Path(scratch), target / f"{row.name}.fst", most_bytes))
            except (UserError, subprocess.TimeoutExpired) as error:
                say(f"{row.name}: left out: {error}")
                continue
            say(f"{row.name}: {made[-1].stat().st_size} bytes")
    return made


def record_whole(row: apps.Command, path: Path, most_bytes: int | None = None) -> None:
    """Records one run of a program with all its processes."""
    request = recording.Request(path, row.argv, seconds=SECONDS, max_bytes=most_bytes)
    line, env = recording.command_line(request)
    with (row.stdin or Path(os.devnull)).open("rb") as stdin:
        done = subprocess.run(
            line, cwd=row.cwd, env={**env, **row.env}, stdin=stdin, capture_output=True, timeout=4 * SECONDS
        )
    if done.returncode != 0:
        raise UserError(f"status {done.returncode}: {done.stderr.decode(errors='replace').strip()[-200:]}")


def _record(row: apps.Command, scratch: Path, path: Path, most_bytes: int) -> Path:
    whole = scratch / "whole.fst"
    record_whole(row, whole, 5 * most_bytes)
    trace = events.read(whole)
    if len(trace.rows) < LEAST_EVENTS:
        raise UserError(f"only {len(trace.rows)} events")
    busiest = events.busiest_process(trace)
    kept = transform.one_process(transform.cut(trace, process=busiest))
    kept.points = kept.points[kept.points["process"] == busiest]
    kept.points["process"] = 0
    kept.meta = {**trace.meta, "program": row.name}
    transform.to_size(kept, most_bytes, path)
    return path


def folder() -> Path:
    """The corpus of this repository."""
    return paths.root() / "trace" / "corpus"


def traces(names: Sequence[str] = ()) -> list[Path]:
    """The corpus's traces, or those of some programs."""
    found = sorted(folder().glob("*.fst"))
    if not found:
        raise UserError(f"{folder()} holds no traces; `freestone trace corpus` records them")
    known = {path.stem: path for path in found}
    for name in names:
        if name not in known:
            raise UserError(f"the corpus has no trace '{name}'; it has {', '.join(known)}")
    return [known[name] for name in names] if names else found


def tasks(names: Sequence[str] = ()) -> list[Task]:
    return [replaying.task(path, replaying.Way()) for path in traces(names)]
