"""Files that earlier releases wrote are read, and mean the same. A file in data/formats is never made anew.

docs/STABILITY.md is the promise. A format that gets a version adds a file here and keeps the older one.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from freestone_lab.core import result, result_file
from freestone_lab.heap import leak_search, snapshot
from freestone_lab.trace import describe

ROOT = Path(__file__).resolve().parents[2]
FORMATS = Path(__file__).parent / "data" / "formats"
PROMISE = ROOT / "docs" / "STABILITY.md"


def with_more_fields(value: Any) -> Any:
    """As a later release of the same version may write it."""
    if isinstance(value, dict):
        return {**{key: with_more_fields(one) for key, one in value.items()}, "of_a_later_release": {"more": [1]}}
    return [with_more_fields(one) for one in value] if isinstance(value, list) else value


def test_a_result_of_version_1_is_read() -> None:
    read = result_file.load(FORMATS / "result-1.json.gz")
    assert [peer.name for peer in read.peers] == ["glibc", "freestone"]
    assert read.experiments[0].id == "fx"
    assert len(read.experiments[0].samples) == 15
    assert all(sample.figures["cpu"] > 0 for sample in read.experiments[0].samples if sample.round > 0)


def test_a_leak_report_of_version_1_is_read() -> None:
    text = (FORMATS / "leaks-1.json").read_text()
    for given in (text, json.dumps(with_more_fields(json.loads(text)))):
        read = leak_search.read(given)
        assert (read.lost_blocks, read.lost_bytes, read.reachable_blocks) == (54, 39658, 47)


@pytest.mark.parametrize("more", [False, True])
def test_statistics_are_read(more: bool) -> None:
    text = (FORMATS / "statistics-1.json").read_text()
    data = json.loads(text)
    if more:
        figures, calls = {**data["figures"], "later_bytes": 7}, {**data["system_calls"], "later": 1}
        data = {**with_more_fields(data), "figures": figures, "system_calls": calls}
    read = snapshot.from_json(json.dumps(data), "statistics")
    assert (read.program, read.build, read.figure("live_bytes")) == ("fx", "fast", 76000)
    assert sum(one.live for one in read.classes) == 101


def test_a_trace_of_version_1_is_read() -> None:
    told = describe.facts(FORMATS / "trace-1.fst")
    malloc, free = (told["kinds"][kind] for kind in (describe.Kind.MALLOC, describe.Kind.FREE))
    assert (malloc, free, told["threads"], told["cut"]) == (201, 100, 1, "")


def test_every_promised_format_has_a_file_of_each_version() -> None:
    promised = re.findall(r"`([a-z]+)-(\d+)(\.[a-z.]+)`", PROMISE.read_text(encoding="utf-8"))
    assert {f"{name}-{version}{end}" for name, version, end in promised} == {path.name for path in FORMATS.iterdir()}
    assert result.SCHEMA == "freestone-result/1"
    assert leak_search.SCHEMA == "freestone-leaks/1"
