"""Reads the three formats of a profile without any library: the tests of the writer must not share its code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The (number, value) pairs of one protobuf message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            length = varint()
            assert at + length <= len(data), "a field reaches beyond its message"
            yield key >> 3, data[at : at + length]
            at += length
        else:
            raise AssertionError(f"wire type {key & 7} does not occur in a profile")


def packed(data: bytes) -> list[int]:
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    return values


@dataclass
class Sample:
    addresses: tuple[int, ...]  # innermost first
    values: dict[str, int]
    labels: dict[str, int] = field(default_factory=dict)


@dataclass
class Profile:
    types: list[str]
    samples: list[Sample]
    mappings: list[dict[str, int | str]]
    period: int
    default_type: str
    comments: list[str]
    duration_ns: int
    calls: set[tuple[str, str, int]]  # function, file and line of the places that name them

    def total(self, kind: str) -> int:
        return sum(s.values[kind] for s in self.samples)

    def file_offset(self, address: int) -> tuple[str, int]:
        """The file that is mapped at an address and the place in it."""
        for m in self.mappings:
            if int(m["start"]) <= address < int(m["limit"]):
                return str(m["file"]), address - int(m["start"]) + int(m["offset"])
        return "", address


def read_pprof(path: Path) -> Profile:
    strings: list[str] = []
    raw: dict[int, list[int | bytes]] = {}
    for number, value in fields_of(path.read_bytes()):
        if number == 6:
            assert isinstance(value, bytes)
            strings.append(value.decode())
        else:
            raw.setdefault(number, []).append(value)
    assert strings[0] == "", "the first string is the empty one"

    def message(value: int | bytes) -> dict[int, int | bytes]:
        assert isinstance(value, bytes)
        return dict(fields_of(value))

    types = [strings[int(message(v)[1])] for v in raw[1]]  # type: ignore[arg-type]
    mappings = []
    for v in raw.get(3, []):
        m = message(v)
        numbers = {"id": m[1], "start": m.get(2, 0), "limit": m.get(3, 0), "offset": m.get(4, 0)}
        mappings.append(numbers | {"file": strings[int(m.get(5, 0))], "build_id": strings[int(m.get(6, 0))]})
    ids = {m["id"] for m in mappings}
    locations: dict[int, int] = {}
    calls = set()
    functions = {int(f[1]): (strings[int(f[2])], strings[int(f[4])]) for f in map(message, raw.get(5, []))}
    for v in raw.get(4, []):
        m = message(v)
        assert m.get(2, 0) == 0 or m[2] in ids, "a location in an unknown mapping"
        locations[int(m[1])] = int(m.get(3, 0))
        if 4 in m:
            line = message(m[4])
            calls.add((*functions[int(line[1])], int(line.get(2, 0))))
    samples = []
    for v in raw.get(2, []):
        assert isinstance(v, bytes)
        sample = Sample((), {})
        for number, value in fields_of(v):
            if number == 1:
                sample.addresses = tuple(locations[i] for i in packed(value))  # type: ignore[arg-type]
            elif number == 2:
                numbers = packed(value)  # type: ignore[arg-type]
                assert len(numbers) == len(types), "one value per sample type"
                sample.values = dict(zip(types, numbers, strict=True))
            elif number == 3:
                label = message(value)
                sample.labels[strings[int(label[1])]] = int(label.get(3, 0))
        samples.append(sample)

    def number(which: int) -> int:
        return int(raw[which][0]) if which in raw else 0

    comments = [strings[int(i)] for i in raw.get(13, [])]
    return Profile(types, samples, mappings, number(12), strings[number(14)], comments, number(10), calls)


def read_collapsed(path: Path) -> dict[tuple[str, ...], int]:
    """Stack (outermost first) -> bytes."""
    result: dict[tuple[str, ...], int] = {}
    for line in path.read_text().splitlines():
        stack, value = line.rsplit(" ", 1)
        key = tuple(stack.split(";"))
        result[key] = result.get(key, 0) + int(value)
    return result


@dataclass
class HeapV2:
    period: int
    totals: tuple[int, int, int, int]
    stacks: dict[tuple[int, ...], tuple[int, int, int, int]]  # live count, live bytes, all count, all bytes, as sampled
    maps: list[str]


def read_heap_v2(path: Path) -> HeapV2:
    head, _, maps = path.read_text().partition("\nMAPPED_LIBRARIES:\n")
    lines = head.splitlines()
    first = re.fullmatch(r"heap_v2/(\d+)", lines[0])
    assert first, lines[0]
    row = re.compile(r"  t\*: (\d+): (\d+) \[(\d+): (\d+)\]")

    def numbers(line: str) -> tuple[int, int, int, int]:
        match = row.fullmatch(line)
        assert match, line
        a, b, c, d = (int(g) for g in match.groups())
        return a, b, c, d

    stacks: dict[tuple[int, ...], tuple[int, int, int, int]] = {}
    for i, line in enumerate(lines):
        if line.startswith("@"):
            stacks[tuple(int(word, 16) for word in line.split()[1:])] = numbers(lines[i + 1])
    return HeapV2(int(first[1]), numbers(lines[1]), stacks, maps.splitlines())
