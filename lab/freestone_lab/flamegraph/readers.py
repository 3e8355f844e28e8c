"""Reads profiles: pprof's profile.proto, collapsed stacks, and the heap_v2 text of jemalloc and gperftools.

Text forms may carry mappings, which let addresses be resolved: the lines of /proc/PID/maps after `MAPPED_LIBRARIES:`,
or comment lines `# mapping START-LIMIT OFFSET BUILD_ID PATH` (hexadecimal numbers, `-` for no build-id) in collapsed
stacks, whose frames may then be addresses such as 0x55d0c0.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from freestone_lab.flamegraph import pprof
from freestone_lab.flamegraph.model import Frame, Mapping, Profile, ProfileError, Sample, by_python

KINDS = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
COUNTS = re.compile(r"(\d+):\s*(\d+)\s*\[\s*(\d+):\s*(\d+)\]")
MAPS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ \d+\s+(/.*)$")
MAPPING = re.compile(r"^# mapping ([0-9a-fx]+)-([0-9a-fx]+) ([0-9a-fx]+) (\S+) (.+)$")
TYPE = re.compile(r"^# type (\S+) (\S+)$")


def read_profile(path: Path) -> Profile:
    """Reads the profile in `path`; its content tells the form. Raises ProfileError, one line that names the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    if not data:
        raise ProfileError(f"{path}: is empty; expected a pprof profile, collapsed stacks or heap_v2 text")
    return parse_profile(data, path.name)


def parse_profile(data: bytes, name: str) -> Profile:
    """The profile in the bytes of a file called `name`. Raises ProfileError."""
    if data.startswith((b"heap_v2/", b"heap profile:")):
        return heap_v2(data.decode(errors="replace"), name)
    if data[:2] == b"\x1f\x8b" or not is_text(data):
        return pprof.decode(data, name)
    return collapsed(data.decode(errors="replace"), name)


def is_text(data: bytes) -> bool:
    head = data[:4096]
    return all(byte >= 32 or byte in b"\t\r\n" for byte in head)


def collapsed(text: str, name: str) -> Profile:
    """One stack per line: frames joined by `;`, outermost first, a blank, the value.

    A line `# type NAME UNIT` says what the values are; without it they are live bytes.
    """
    kind = ("inuse_space", "bytes")
    mappings: list[Mapping] = []
    stacks: list[tuple[list[str], int]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        if line.startswith("#"):
            if found := MAPPING.match(line):
                start, limit, offset = (int(found[i], 16) for i in (1, 2, 3))
                mappings.append(Mapping(start, limit, offset, found[5], "" if found[4] == "-" else found[4]))
            elif found := TYPE.match(line):
                kind = (found[1], found[2])
            continue
        stack, _, value = line.rpartition(" ")
        if not stack or not value.lstrip("-").isdigit():
            raise ProfileError(f"{name}: line {number} is {line[:60]!r}, expected 'outer;inner VALUE'")
        stacks.append((stack.split(";"), int(value)))
    if not stacks:
        raise ProfileError(f"{name}: holds no stack; expected lines 'outer;inner VALUE'")
    samples: list[Sample] = [(tuple(text_frame(part, mappings) for part in stack), (value,)) for stack, value in stacks]
    return Profile([kind], samples, label=name, mappings=mappings)


def collapsed_text(profile: Profile, view: str) -> str:
    """What `collapsed` reads, of one view; of Python its lines."""
    profile, at = by_python(profile), profile.place(view)
    sums = Counter[str]()
    for stack, values in profile.samples:
        names = (f.function or f"{Path(f.module).name}+{f.address:#x}" for f in stack)
        sums[";".join(name.replace(";", ",").replace("\n", " ") for name in names)] += values[at]
    name, unit = profile.sample_types[at]
    return "".join([f"# type {name} {unit}\n", *(f"{stack} {value}\n" for stack, value in sums.items() if value)])


def text_frame(part: str, mappings: Iterable[Mapping]) -> Frame:
    if re.fullmatch(r"0x[0-9a-f]+", part):
        return address_frame(int(part, 16), mappings)
    return Frame(part.strip())


def address_frame(address: int, mappings: Iterable[Mapping]) -> Frame:
    module = next((m.path for m in mappings if m.start <= address < m.limit), "")
    return Frame(module=module, address=address)


def heap_v2(text: str, name: str) -> Profile:
    """The text heap profile of jemalloc (`heap_v2/RATE`, `@ stack` above `t*:` lines) or gperftools (one line each).

    Values are samples. Each is scaled to an estimate of the whole by 1 / (1 - exp(-size / RATE)). Addresses are return
    addresses, so subtracting one from each leads into the call.
    """
    lines = text.splitlines()
    rate_text = re.search(r"heap_v2/(\d+)", lines[0])
    rate = int(rate_text[1]) if rate_text else 0
    mappings = [mapping for line in lines if (mapping := maps_line(line)) is not None]
    samples: list[Sample] = []
    stack: tuple[Frame, ...] | None = None
    for line in lines[1:]:
        if line.startswith("MAPPED_LIBRARIES"):
            break
        before, at, addresses = line.partition("@")
        counts = COUNTS.search(before)
        if at:
            frames = [address_frame(max(0, int(a, 16) - 1), mappings) for a in addresses.split()]
            stack = tuple(reversed(frames))
        if counts is None or stack is None or (not at and not before.strip().startswith("t*:")):
            continue
        live, live_bytes, ever, ever_bytes = (int(counts[i]) for i in (1, 2, 3, 4))
        samples.append((stack, (*unbiased(ever, ever_bytes, rate), *unbiased(live, live_bytes, rate))))
    notes = [f"estimated from samples, one per {rate} bytes on average"] if rate > 1 else []
    if not samples:
        notes.append("no sample: the program allocated less than the sampling rate, or profiling was not active")
    return Profile(list(KINDS), samples, label=name, mappings=mappings, notes=notes)


def maps_line(line: str) -> Mapping | None:
    """An executable mapping of a file, from a line of /proc/PID/maps."""
    found = MAPS.match(line)
    if found is None or "x" not in found[3]:
        return None
    return Mapping(int(found[1], 16), int(found[2], 16), int(found[4], 16), found[5])


def unbiased(objects: int, size: int, rate: int) -> tuple[int, int]:
    """What `objects` sampled blocks, together `size` bytes, stand for."""
    if objects == 0 or rate <= 1:
        return objects, size
    scale = 1 / (1 - math.exp(-(size / objects) / rate))
    return round(objects * scale), round(size * scale)
