"""profile.proto, the format of pprof: its schema as a table, decoded by the protobuf library.

Field numbers are those of the published format (perftools.profiles.Profile); fields that no heap profile needs are left
out, and protobuf skips them.
"""

from __future__ import annotations

import gzip
import zlib
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from freestone_lab.flamegraph.model import Frame, Mapping, Profile, ProfileError

PACKAGE = "perftools.profiles"
# message: (field, number, type, repeated); a type that is a message's name refers to it
SCHEMA: dict[str, list[tuple[str, int, str, bool]]] = {
    "ValueType": [("type", 1, "int64", False), ("unit", 2, "int64", False)],
    "Label": [("key", 1, "int64", False), ("str", 2, "int64", False), ("num", 3, "int64", False)],
    "Sample": [("location_id", 1, "uint64", True), ("value", 2, "int64", True), ("label", 3, "Label", True)],
    "Mapping": [
        ("id", 1, "uint64", False),
        ("memory_start", 2, "uint64", False),
        ("memory_limit", 3, "uint64", False),
        ("file_offset", 4, "uint64", False),
        ("filename", 5, "int64", False),
        ("build_id", 6, "int64", False),
        ("has_functions", 7, "bool", False),
        ("has_filenames", 8, "bool", False),
        ("has_line_numbers", 9, "bool", False),
        ("has_inline_frames", 10, "bool", False),
    ],
    "Line": [("function_id", 1, "uint64", False), ("line", 2, "int64", False)],
    "Location": [
        ("id", 1, "uint64", False),
        ("mapping_id", 2, "uint64", False),
        ("address", 3, "uint64", False),
        ("line", 4, "Line", True),
    ],
    "Function": [
        ("id", 1, "uint64", False),
        ("name", 2, "int64", False),
        ("system_name", 3, "int64", False),
        ("filename", 4, "int64", False),
    ],
    "Profile": [
        ("sample_type", 1, "ValueType", True),
        ("sample", 2, "Sample", True),
        ("mapping", 3, "Mapping", True),
        ("location", 4, "Location", True),
        ("function", 5, "Function", True),
        ("string_table", 6, "string", True),
        ("time_nanos", 9, "int64", False),
        ("duration_nanos", 10, "int64", False),
        ("comment", 13, "int64", True),
        ("default_sample_type", 14, "int64", False),
    ],
}


@cache
def message_class() -> Any:
    """The class of perftools.profiles.Profile."""
    field = descriptor_pb2.FieldDescriptorProto
    kinds = {
        "int64": field.TYPE_INT64,
        "uint64": field.TYPE_UINT64,
        "string": field.TYPE_STRING,
        "bool": field.TYPE_BOOL,
    }
    file = descriptor_pb2.FileDescriptorProto(name="freestone/profile.proto", package=PACKAGE, syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind, repeated in fields:
            entry = message.field.add(name=field_name, number=number)
            entry.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if kind in kinds:
                entry.type = kinds[kind]
            else:
                entry.type, entry.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.Profile"))


def decode(data: bytes, name: str) -> Profile:
    """A profile from the bytes of a profile.proto, gzipped or plain. `name` is for messages and the label."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ProfileError(f"{name}: its gzip data is damaged: {error}") from error
    raw = message_class()()
    try:
        raw.ParseFromString(data)
    except DecodeError as error:
        raise ProfileError(f"{name}: is not a pprof profile (profile.proto): {error}") from error
    strings = list(raw.string_table)
    if not strings or not raw.sample_type:
        raise ProfileError(f"{name}: is not a pprof profile (profile.proto): it names no sample type")
    try:
        return convert(raw, strings, name)
    except (IndexError, KeyError) as error:
        raise ProfileError(f"{name}: its tables refer to an entry that is missing ({error})") from error


def convert(raw: Any, strings: list[str], name: str) -> Profile:
    mappings = {
        m.id: Mapping(m.memory_start, m.memory_limit, m.file_offset, strings[m.filename], strings[m.build_id])
        for m in raw.mapping
    }
    functions = {f.id: (strings[f.name] or strings[f.system_name], strings[f.filename]) for f in raw.function}
    frames: dict[int, list[Frame]] = {}
    for location in raw.location:
        module = mappings[location.mapping_id].path if location.mapping_id else ""
        found = []
        # The first line is the innermost: every line but the last was inlined into the next.
        for place, line in enumerate(location.line):
            function, file = functions[line.function_id]
            inlined = place < len(location.line) - 1
            found.append(Frame(function, file, line.line, inlined, module, location.address))
        frames[location.id] = found[::-1] or [Frame(module=module, address=location.address)]
    samples = []
    for sample in raw.sample:
        if len(sample.value) != len(raw.sample_type):
            raise ProfileError(f"{name}: a sample has {len(sample.value)} values, expected {len(raw.sample_type)}")
        stack = [frame for ident in reversed(sample.location_id) for frame in frames[ident]]
        samples.append((tuple(stack), tuple(int(v) for v in sample.value)))
    return Profile(
        [(strings[t.type], strings[t.unit]) for t in raw.sample_type],
        samples,
        raw.time_nanos / 1e9,
        raw.duration_nanos / 1e9,
        name,
        list(mappings.values()),
        [strings[c] for c in raw.comment],
    )


class _Numbers(dict[Any, int]):
    """Gives each new key the next number, counted from `first`."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first

    def __missing__(self, key: Any) -> int:
        self[key] = len(self) + self.first
        return self[key]


def encode(profile: Profile, default_type: str = "") -> bytes:
    """The profile as a gzipped profile.proto with its names, files and lines inside, so that every reader shows it
    the same. `default_type` is the name of the view that readers open first."""
    raw = message_class()()
    strings = _Numbers(0)
    strings[""] = 0
    functions, locations = _Numbers(1), _Numbers(1)
    mappings = {m.path: number for number, m in reversed(list(enumerate(profile.mappings, start=1)))}
    for name, unit in profile.sample_types:
        raw.sample_type.add(type=strings[name], unit=strings[unit])
    for stack, values in profile.samples:
        sample = raw.sample.add(value=list(values))
        for group in reversed(_groups(stack)):
            known = len(locations)
            number = locations[group]
            if len(locations) == known:
                sample.location_id.append(number)
                continue
            sample.location_id.append(number)
            outer = group[0]
            location = raw.location.add(id=number, address=outer.address, mapping_id=mappings.get(outer.module, 0))
            for frame in reversed(group):
                if frame.function:
                    location.line.add(function_id=functions[frame.function, frame.file], line=frame.line)
    for (name, file), number in functions.items():
        raw.function.add(id=number, name=strings[name], system_name=strings[name], filename=strings[file])
    for number, m in enumerate(profile.mappings, start=1):
        raw.mapping.add(
            id=number,
            memory_start=m.start,
            memory_limit=m.limit,
            file_offset=m.offset,
            filename=strings[m.path],
            build_id=strings[m.build_id],
            has_functions=True,
            has_filenames=True,
            has_line_numbers=True,
            has_inline_frames=True,
        )
    raw.time_nanos = int(profile.time * 1e9)
    raw.duration_nanos = int(profile.duration * 1e9)
    raw.comment.extend(strings[note] for note in profile.notes)
    if default_type:
        raw.default_sample_type = strings[default_type]
    raw.string_table.extend(strings)
    return gzip.compress(raw.SerializeToString(), mtime=0)


def _groups(stack: tuple[Frame, ...]) -> list[tuple[Frame, ...]]:
    """The stack, outermost first. Frames inlined into one call form a group."""
    groups: list[tuple[Frame, ...]] = []
    for frame in stack:
        if frame.inlined and groups:
            groups[-1] = (*groups[-1], frame)
        else:
            groups.append((frame,))
    return groups
