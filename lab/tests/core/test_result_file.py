"""Result files: what is written comes back, and what is wrong is named by file, field and expectation."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from freestone_lab.core.result import SCHEMA, Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.core.result_file import ResultError, load, save
from freestone_lab.measure.samples import PROCESS_SPECS

GOOD = Result(
    created="2026-11-22T03:00:00+00:00",
    command=["freestone", "compare"],
    seed=7,
    fingerprint={"cpu": "one"},
    peers=[Peer("glibc", None, "libc"), Peer("own", "/x/libown.so", exports=("malloc",), env=(("A", "1"),))],
    experiments=[
        Experiment(
            "work",
            "work",
            specs={"wall": FigureSpec("s")},
            samples=[
                Sample("glibc", 1, "ok", figures={"wall": 1.5}, series={"rss": [[0, 10.5]]}),
                Sample("glibc again", 1, "ok", figures={"wall": 2}),
                Sample("own", 1, "failed", "exit status 1", counts={"failures": 3}),
            ],
            rounds_fixed=False,
        )
    ],
)


@pytest.mark.parametrize("name", ["result.json", "result.json.gz"])
def test_what_is_saved_is_loaded(tmp_path: Path, name: str) -> None:
    save(GOOD, tmp_path / name)
    assert load(tmp_path / name) == GOOD


def test_a_file_of_an_older_release_says_by_its_command_whether_rounds_were_fixed(tmp_path: Path) -> None:
    old = dataclasses.replace(GOOD.experiments[0], rounds_fixed=None)
    for command, fixed in (("bench full", True), ("bench --budget 5m", False), ("compare --rounds 9", True)):
        words = ["freestone", *command.split()]
        save(dataclasses.replace(GOOD, command=words, experiments=[old]), tmp_path / "old.json")
        assert load(tmp_path / "old.json").experiments[0].rounds_fixed is fixed


def _written(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "bad.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def _with(tmp_path: Path, *steps: str | int, value: object) -> dict[str, Any]:
    """The good result as JSON with the value at that place replaced."""
    save(GOOD, tmp_path / "good.json")
    raw: dict[str, Any] = json.loads((tmp_path / "good.json").read_text())
    place: Any = raw
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    return copy.deepcopy(raw)


def test_a_file_of_the_schema_alone_names_the_first_field_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"bad\.json: .*missing required field `created`"):
        load(_written(tmp_path, {"schema": SCHEMA}))


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "3", '{"schema": 4}', '{"schema": "other/1"}', "{}"])
def test_what_is_no_result_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(ResultError, match=r"bad\.json: "):
        load(_written(tmp_path, text))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_file_that_another_tool_has_written_in_another_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "good.json"
    save(GOOD, path)
    path.write_text(path.read_text(encoding="utf-8"), encoding=encoding)
    assert load(path) == GOOD


@pytest.mark.parametrize(
    ("steps", "value", "said"),
    [
        (("seed",), "seven", r"Expected `int`, got `str` - at `\$\.seed`"),
        (("peers", 0, "kind"), "magic", r"Invalid enum value 'magic'"),
        (("experiments", 0, "specs", "wall", "better"), "more", r"Invalid enum value 'more'"),
        (("experiments", 0, "samples", 0, "figures", "wall"), "fast", r"Expected `float`, got `str`"),
        (("experiments", 0, "samples", 0, "status"), "fine", r"Invalid enum value 'fine'"),
        (
            ("experiments", 0, "samples", 0, "peer"),
            "who",
            r"samples\[0\]\.peer` is 'who', expected the name of an entry",
        ),
        (("experiments", 0, "samples", 0, "figures"), {"mood": 1.0}, r"'mood', expected names of .* `specs`"),
        *(
            (("experiments", 0, "samples", 0, "figures"), {name: -1}, rf"figures\.{name}` is -1, expected at least 0")
            for name in PROCESS_SPECS
        ),
        (("experiments",), [], r"`\$\.experiments` holds no sample: nothing was measured"),
        (("experiments", 0, "samples"), [], r"nothing was measured"),
        (("baseline",), "who", r"`\$\.baseline` is 'who', expected the name of an entry of `\$\.peers`"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(
    tmp_path: Path, steps: tuple[str | int, ...], value: object, said: str
) -> None:
    with pytest.raises(ResultError, match=r"bad\.json: .*" + said):
        load(_written(tmp_path, _with(tmp_path, *steps, value=value)))


def test_a_damaged_compressed_file_is_refused_by_name(tmp_path: Path) -> None:
    save(GOOD, tmp_path / "whole.json.gz")
    damaged = tmp_path / "damaged.json.gz"
    damaged.write_bytes((tmp_path / "whole.json.gz").read_bytes()[:-20])
    with pytest.raises(ResultError, match=r"damaged\.json\.gz"):
        load(damaged)
