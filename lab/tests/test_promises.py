"""The interface that docs/STABILITY.md promises. data/promises-1.0.txt has it as 1.0 had it; it is never made anew."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from freestone_lab.core import paths
from freestone_lab.docs import tuning

ROOT = paths.root()
DATA = Path(__file__).parent / "data"
LIBRARY = paths.build_dir() / "libfreestone.so"


def promised(kind: str) -> list[str]:
    lines = (DATA / "promises-1.0.txt").read_text().splitlines()
    found = [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]
    assert found
    return found


def declared() -> dict[str, list[str]]:
    """What the header declares: calls, and the members of structures and enumerations in their order."""
    text = (ROOT / "allocator/include/freestone/freestone.h").read_text()
    code = " ".join(re.sub(r"/\*.*?\*/|^#.*?$", "", text, flags=re.DOTALL | re.MULTILINE).split())
    found = {"call": re.findall(r"(?<=[;}] )[\w ]+ \**freestone_\w+\([^{};]*\)(?=;)", code), "member": []}
    for kind, name, body in re.findall(r"(struct|enum) (freestone_\w+) \{(.*?) \};", code):
        members = [part.strip() for part in body.split(";" if kind == "struct" else ",") if part.strip()]
        found["member"] += [f"{name}: {member}" for member in members]
    return found


def test_calls_stay() -> None:
    assert [call for call in promised("call") if call not in declared()["call"]] == []


def test_structures_and_enumerations_grow_at_their_end_only() -> None:
    now = declared()["member"]
    for name in dict.fromkeys(line.partition(":")[0] for line in promised("member")):
        before, after = ([line for line in all_ if line.startswith(f"{name}:")] for all_ in (promised("member"), now))
        assert after[: len(before)] == before


@pytest.mark.parametrize("line", promised("option"))
def test_an_option_keeps_its_unit_and_takes_what_it_took(line: str) -> None:
    name, kind, lowest, highest, *unit = line.split()
    option = {option.name: option for option in tuning.read_options(ROOT)}[name]
    assert option.kind == kind
    if kind == "choice":
        assert set(unit[0].split("|")) <= set(option.unit.split("|"))
    else:
        assert option.unit == " ".join(unit)
        assert option.minimum <= int(lowest) and option.maximum >= int(highest)


def lacks(before: Any, now: Any, place: str = "") -> list[str]:
    """The fields of `before` that `now` has not; of lists, those of their first elements."""
    if isinstance(before, dict):
        absent = [f"{place}.{key}" for key in before if key not in now]
        kept = before.keys() & now.keys()
        return absent + [field for key in kept for field in lacks(before[key], now[key], f"{place}.{key}")]
    return lacks(before[0], now[0], f"{place}[]") if isinstance(before, list) and before and now else []


@pytest.mark.skipif(not LIBRARY.exists(), reason="libfreestone.so is not built")
@pytest.mark.parametrize(
    ("stored", "conf"),
    [("statistics-1.json", "stats_file:{}"), ("leaks-1.json", "leak:exact,leak_file:{}")],
)
def test_what_is_written_has_every_field_of_its_version(stored: str, conf: str, tmp_path: Path) -> None:
    file = tmp_path / "written.json"
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "FREESTONE_CONF": conf.format(file)}
    subprocess.run(["ls", "/"], env=env, check=True, stdout=subprocess.DEVNULL)
    assert lacks(json.loads((DATA / "formats" / stored).read_text()), json.loads(file.read_text())) == []
