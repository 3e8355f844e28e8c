"""A folder that is missing is made, by every command that is told where its file goes."""

import importlib
from pathlib import Path

import pytest
from command_tools import freestone, needs_library

from freestone_lab.commands import options
from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.trace import events, foreign, recording

BUILT = all((paths.build_dir() / name).exists() for name in (recording.WRITER, recording.LIBRARY, recording.REPLAYER))

# What each is run with; {trace} and {text} are there.
QUICK: dict[str, str] = {
    "record": "-- true",
    "trace cut": "{trace}",
    "trace merge": "{trace} {trace}",
    "trace anonymise": "{trace}",
    "trace import": "{text}",
    "trace stats": "{trace} --with glibc",
}
# These measure for long, and write elsewhere when the place fails after all (core/outputs.py, which makes the folder).
LONG = {"advise", "compare", "bench", "bench attacks", "bench mitigations", "replay", "report"}
# Tested with the profiles and results that they read; `trace corpus` with the programs that it records.
ELSEWHERE = {"join", "profile", "profile show", "profile diff", "trace corpus"}


def test_the_tables_name_every_command_with_an_output() -> None:
    actions = {name: options.parser_of(name)._actions for name in options.COMMANDS}
    assert {name for name, those in actions.items() if any("-o" in a.option_strings for a in those)} == {
        *QUICK,
        *LONG,
        *ELSEWHERE,
    }


@pytest.mark.skipif(not BUILT, reason="the recorder and the replayer are not built")
@pytest.mark.parametrize("name", QUICK)
def test_a_missing_folder_is_made_and_a_file_in_its_place_refused(name: str, tmp_path: Path) -> None:
    text, trace, output = tmp_path / "m.txt", tmp_path / "t.fst", tmp_path / "new" / "folder" / "out"
    text.write_text("= Start\n@ a:[0x1] + 0x1000 0x10\n@ a:[0x1] + 0x2000 0x20\n@ a:[0x1] - 0x1000\n= End\n")
    events.write(foreign.read(text), trace)
    words = QUICK[name].format(trace=trace, text=text).split()
    command = options.COMMANDS[name]
    function = getattr(importlib.import_module(f"freestone_lab.commands.{command.module}"), command.function)
    assert not function(options.parse(name, ["-o", str(output), *words]))
    assert output.stat().st_size > 0
    with pytest.raises(UserError, match=r"below': cannot be written"):
        function(options.parse(name, ["-o", str(text / "below"), *words]))


@pytest.mark.parametrize(
    "words",
    ["profile -o q.svg -- true", "profile diff a b -o q.json", "report r.json -o q.pdf", "profile show a -o q.gz",
     "compare -o q.json -- true", "trace stats t.fst -o q.fst"],
)  # fmt: skip
def test_an_ending_that_is_not_written_is_refused_with_those_that_are(words: str, tmp_path: Path) -> None:
    done = freestone(tmp_path, *words.split())
    assert done.returncode == 2 and "ends in none that is written here: .html" in done.stderr
    assert list(tmp_path.iterdir()) == []


MADE = {"FSTRACE\n": "trace", '{"command":["freestone"]}': "result", "<!doctype html>\n<p>Freestone": "result"}


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("record -o {} -- true", "trace"), ("trace cut -o {} t.fst", "trace"), ("profile -o {} -- true", "result"),
        ("report -o {} r.json", "result"), ("compare --json {} -- true", "result"),
        ("leaks --json {} -- true", "result"), ("record -- true", "trace"), ("profile -- true", "result"),
    ],
)  # fmt: skip
def test_a_file_of_somebody_else_is_not_overwritten(
    words: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = Path(("app.fst" if kind == "trace" else "profile.html") if "{}" not in words else "out")
    name, rest = options.select(words.format(there).split())
    for text in ("notes on freestone", *MADE):
        there.write_text(text)
        options.parse(name, ["--force", *rest])
        if MADE.get(text) == kind:
            options.parse(name, rest)
        else:
            with pytest.raises(UserError, match=f"'{there}' exists and .*--force"):
                options.parse(name, rest)


@pytest.mark.parametrize(
    "words",
    ["trace merge o {} -o {}{}", "trace cut {} -o {}{}", "trace anonymise {} -o {}{}", "trace import {} -o {}{}",
     "report o {} -o {}{}", "report {0}{2}", "trace stats {0}{2}", "join o {} -o {}{}", "profile show {0}{2}",
     "profile diff o {} -o {}{}", "replay {} --json {}{}", "record -o {0}{2} -- o {1}", "profile show {} -o {}{}",
     "compare --json {} --stdin {}{} -- o", "leaks --json {0}{2} -- {1}"],
)  # fmt: skip
def test_what_a_command_reads_it_never_writes(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor by a link, or with --force."""
    monkeypatch.chdir(tmp_path)
    there, link, hard = Path("i.html"), Path("link"), Path("hard")
    link.symlink_to(there)
    there.write_text("kept")
    hard.hardlink_to(there)
    for other in (there, link, hard):
        for force in ("", " --force"):
            done = freestone(tmp_path, *words.format(there, other, force).split())
            assert done.returncode == 2 and "that is read: name another file" in done.stderr
            assert there.read_text() == "kept"


@needs_library
def test_a_profile_whose_place_fails_at_the_end_is_written_elsewhere(tmp_path: Path) -> None:
    words = ["profile", "--sample-bytes", "1000", "-o", "d/p.html", "--", "sh", "-c", "rm -r d; : >d"]
    done = freestone(tmp_path, *words, XDG_STATE_HOME=str(tmp_path / "state"))
    place = tmp_path / "state" / "freestone" / "p.html"
    assert done.returncode == 0 and f"written: {place}" in done.stderr and place.stat().st_size > 10_000
