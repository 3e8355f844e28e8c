"""profile.proto, the format of pprof: its schema, and the wire format of protobuf as far as that needs it.

Field numbers are those of the published format (perftools.profiles.Profile); fields that no heap profile needs are left
out, and are skipped.
"""

import gzip
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from freestone_lab.flamegraph.model import Frame, Mapping, Profile, ProfileError, by_python

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # how a field is stored
# By message its fields: NUMBER NAME TYPE, a star for a repeated one. A type that is a message's name refers to it.
_MESSAGES = {
    "ValueType": "1 type int64, 2 unit int64",
    "Label": "1 key int64, 2 str int64, 3 num int64",
    "Sample": "1 location_id uint64 *, 2 value int64 *, 3 label Label *",
    "Mapping": "1 id uint64, 2 memory_start uint64, 3 memory_limit uint64, 4 file_offset uint64, 5 filename int64, "
    "6 build_id int64, 7 has_functions bool, 8 has_filenames bool, 9 has_line_numbers bool, 10 has_inline_frames bool",
    "Line": "1 function_id uint64, 2 line int64",
    "Location": "1 id uint64, 2 mapping_id uint64, 3 address uint64, 4 line Line *",
    "Function": "1 id uint64, 2 name int64, 3 system_name int64, 4 filename int64",
    "Profile": "1 sample_type ValueType *, 2 sample Sample *, 3 mapping Mapping *, 4 location Location *, "
    "5 function Function *, 6 string_table string *, 9 time_nanos int64, 10 duration_nanos int64, "
    "11 period_type ValueType, 12 period int64, 13 comment int64 *, 14 default_sample_type int64",
}
SCHEMA = {
    message: [
        (name, int(number), type_, bool(star)) for number, name, type_, *star in map(str.split, fields.split(", "))
    ]
    for message, fields in _MESSAGES.items()
}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends. IndexError where the data ends first, ValueError if it is longer than 64 bits."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _stored(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Each stored field of a message: its number, how it is stored, its value."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, way = key >> 3, key & 7
        if number == 0 or way not in (VARINT, FIXED64, BYTES, FIXED32):
            raise ValueError(f"byte {at} begins no field")
        if way == VARINT:
            value, at = _varint(data, at)
            yield number, way, value
            continue
        length, at = _varint(data, at) if way == BYTES else (8 if way == FIXED64 else 4, at)
        if length > len(data) - at:
            raise ValueError("a field is longer than what is left")
        yield number, way, data[at : at + length]
        at += length


def _signed(value: int, type_: str) -> int:
    return value - (1 << 64) if type_ == "int64" and value >> 63 else value


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def parse(message: str, data: bytes) -> Any:
    """A message of SCHEMA with its fields as attributes. ValueError or IndexError for damaged data."""
    fields = {number: (name, type_, repeated) for name, number, type_, repeated in SCHEMA[message]}
    empty: dict[str, Any] = {
        name: [] if repeated else "" if type_ == "string" else 0 for name, type_, repeated in fields.values()
    }
    found = SimpleNamespace(**empty)
    for number, way, value in _stored(data):
        if number not in fields:
            continue
        name, type_, repeated = fields[number]
        values: list[Any]
        if isinstance(value, int):
            values = [_signed(value, type_)] if type_ not in SCHEMA and type_ != "string" else []
        elif way != BYTES:
            continue
        elif type_ == "string":
            values = [value.decode()]
        elif type_ in SCHEMA:
            values = [parse(type_, value)]
        else:
            values = [_signed(one, type_) for one in _packed(value)]
        if repeated:
            getattr(found, name).extend(values)
        elif values:
            setattr(found, name, values[-1])
    return found


def _number(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def serialize(message: str, values: dict[str, Any]) -> bytes:
    """The bytes of a message of SCHEMA. Fields that are 0 or empty are left out, as protobuf does."""
    out = []

    def add(number: int, data: bytes) -> None:
        out.append(_number(number << 3 | BYTES) + _number(len(data)) + data)

    for name, number, type_, repeated in SCHEMA[message]:
        value = values.get(name)
        every = value if repeated else [value] if value else []
        if type_ in SCHEMA or type_ == "string":
            for one in every or ():
                add(number, one.encode() if type_ == "string" else serialize(type_, one))
        elif repeated and every:
            add(number, b"".join(map(_number, every)))
        elif every:
            out.append(_number(number << 3 | VARINT) + _number(int(every[0])))
    return b"".join(out)


def decode(data: bytes, name: str) -> Profile:
    """A profile from the bytes of a profile.proto, gzipped or plain. `name` is for messages and the label."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ProfileError(f"{name}: its gzip data is damaged: {error}") from error
    try:
        raw = parse("Profile", data)
    except (ValueError, IndexError) as error:
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
        raw.period,
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
    the same; of Python its lines, as a page. `default_type` is the name of the view that readers open first."""
    profile = by_python(profile)
    strings = _Numbers(0)
    strings[""] = 0
    functions, locations = _Numbers(1), _Numbers(1)
    mappings = {m.path: number for number, m in reversed(list(enumerate(profile.mappings, start=1)))}
    samples, places = [], []
    types = [{"type": strings[name], "unit": strings[unit]} for name, unit in profile.sample_types]
    for stack, values in profile.samples:
        numbers = []
        for group in reversed(_groups(stack)):
            known = len(locations)
            numbers.append(locations[group])
            if len(locations) == known:
                continue
            outer = group[0]
            lines = [
                {"function_id": functions[frame.function, frame.file], "line": frame.line}
                for frame in reversed(group)
                if frame.function
            ]
            mapping = mappings.get(outer.module, 0)
            places.append({"id": numbers[-1], "address": outer.address, "mapping_id": mapping, "line": lines})
        samples.append({"location_id": numbers, "value": list(values)})
    message = {
        "sample_type": types,
        "sample": samples,
        "mapping": [
            {
                "id": number, "memory_start": m.start, "memory_limit": m.limit, "file_offset": m.offset,
                "filename": strings[m.path], "build_id": strings[m.build_id], "has_functions": 1, "has_filenames": 1,
                "has_line_numbers": 1, "has_inline_frames": 1,
            }
            for number, m in enumerate(profile.mappings, start=1)
        ],
        "location": places,
        "function": [
            {"id": number, "name": strings[name], "system_name": strings[name], "filename": strings[file]}
            for (name, file), number in functions.items()
        ],
        "time_nanos": int(profile.time * 1e9),
        "duration_nanos": int(profile.duration * 1e9),
        "comment": [strings[note] for note in profile.notes],
        "default_sample_type": strings[default_type] if default_type else 0,
    }  # fmt: skip
    if profile.period > 0:
        message["period_type"] = {"type": strings["space"], "unit": strings["bytes"]}
        message["period"] = profile.period
    message["string_table"] = list(strings)
    return gzip.compress(serialize("Profile", message), mtime=0)


def _groups(stack: tuple[Frame, ...]) -> list[tuple[Frame, ...]]:
    """The stack, outermost first. Frames inlined into one call form a group."""
    groups: list[tuple[Frame, ...]] = []
    for frame in stack:
        if frame.inlined and groups:
            groups[-1] = (*groups[-1], frame)
        else:
            groups.append((frame,))
    return groups
