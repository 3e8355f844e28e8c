"""Turns addresses into functions, offline: by llvm-symbolizer, else by addr2line, else by the file's own symbol table.

It ignores a file whose build-id differs from the profiled one, because a wrong name is worse than an address. Inlined
calls become frames of their own. C++ and Rust names are demangled.
"""

import bisect
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from freestone_lab.core import elf
from freestone_lab.core.elf import Elf, ElfError
from freestone_lab.flamegraph.model import Frame, Mapping, Profile, Sample

SYMBOLIZERS = ("llvm-symbolizer", *(f"llvm-symbolizer-{v}" for v in range(21, 13, -1)))
RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
MANGLED = re.compile(r"^_{1,3}[ZR]")


def symbolize(profile: Profile, root: str = "") -> Profile:
    """The profile with as many addresses resolved as possible.

    Notes name the files that did not help. `root` is where the process sees its files, such as /proc/PID/root.
    """
    wanted: dict[str, set[int]] = {}
    for stack, _ in profile.samples:
        for frame in stack:
            if not frame.function and frame.module:
                wanted.setdefault(frame.module, set()).add(frame.address)
    notes = list(profile.notes)
    resolved: dict[tuple[str, int], list[Frame]] = {}
    for module, addresses in wanted.items():
        file = root + module
        reason = unusable(file, {m.build_id.lower() for m in profile.mappings if m.path == module and m.build_id})
        if reason:
            notes.append(f"{module}: {reason}; its addresses are shown as they are")
            continue
        virtual = {a: v for a in addresses if (v := virtual_address(file, module, a, profile.mappings)) is not None}
        names = lookup(file, sorted(set(virtual.values())))
        for address, place in virtual.items():
            found = names.get(place, [])
            if found:
                resolved[module, address] = [replace(f, module=module, address=address) for f in found]
    samples = [
        (tuple(new for frame in stack for new in resolved.get((frame.module, frame.address), [frame])), values)
        if any(not frame.function for frame in stack)
        else (stack, values)
        for stack, values in profile.samples
    ]
    return replace(profile, samples=demangled(samples), notes=notes)


def by_place(profile: Profile) -> Profile:
    """The profile with `module+offset` where a name is missing, as for stripped programs: the same in every run."""

    def named(frame: Frame) -> Frame:
        offset = None if frame.function else file_offset(frame.module, frame.address, profile.mappings)
        return frame if offset is None else replace(frame, function=f"{Path(frame.module).name}+{offset:#x}")

    return replace(profile, samples=[(tuple(map(named, stack)), values) for stack, values in profile.samples])


def demangled(samples: list[Sample]) -> list[Sample]:
    """The samples with readable names."""
    names = sorted({f.function for stack, _ in samples for f in stack if MANGLED.match(f.function)})
    table = dict(zip(names, demangle(names), strict=True))

    def readable(frame: Frame) -> Frame:
        name = RUST_HASH.sub("", table.get(frame.function, frame.function))
        return frame if name == frame.function else replace(frame, function=name)

    return [(tuple(readable(f) for f in stack), values) for stack, values in samples]


def demangle(names: Sequence[str]) -> list[str]:
    """C++ and Rust names made readable by c++filt. Unchanged if c++filt is missing."""
    tool = shutil.which("c++filt") or shutil.which("llvm-cxxfilt")
    if tool is None or not names:
        return list(names)
    done = subprocess.run([tool], input="\n".join(names) + "\n", capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return lines if done.returncode == 0 and len(lines) == len(names) else list(names)


def unusable(file: str, expected: set[str]) -> str | None:
    """Why the file on disk cannot name the addresses, or None. `expected` are the build-ids that it may have."""
    if not Path(file).is_file():
        return "no such file here"
    try:
        found = build_id(file)
    except (OSError, ElfError):
        return "not an ELF file"
    if expected and found not in expected:
        return f"its build-id is {found or 'absent'}, the profiled one was {', '.join(sorted(expected))}"
    return None


@lru_cache(maxsize=256)
def build_id(module: str) -> str:
    return elf.build_id(Path(module))


@lru_cache(maxsize=256)
def segments(module: str) -> list[elf.Segment]:
    with Path(module).open("rb") as file:
        return Elf(file).segments


def file_offset(module: str, address: int, mappings: Iterable[Mapping]) -> int | None:
    """How far from the file's start a run-time address lies, by its mapping."""
    mapping = next((m for m in mappings if m.path == module and m.start <= address < m.limit), None)
    return None if mapping is None else address - mapping.start + mapping.offset


def virtual_address(file: str, module: str, address: int, mappings: Iterable[Mapping]) -> int | None:
    """The file's own virtual address for a run-time address, by its mapping and segments."""
    offset = file_offset(module, address, mappings)
    if offset is None:
        return None
    for start, size, virtual in segments(file):
        if start <= offset < start + size:
            return offset - start + virtual
    return None


def lookup(module: str, addresses: Sequence[int]) -> dict[int, list[Frame]]:
    """Virtual address to frames, outermost first. Unknown addresses are absent."""
    for tool in SYMBOLIZERS:
        path = shutil.which(tool)
        if path and (found := by_llvm(path, module, addresses)) is not None:
            return found
    path = shutil.which("addr2line")
    found = by_addr2line(path, module, addresses) if path else {}
    missing = [a for a in addresses if a not in found]
    return {**by_symbols(module, missing), **found}


def by_llvm(tool: str, module: str, addresses: Sequence[int]) -> dict[int, list[Frame]] | None:
    """Answers of llvm-symbolizer; None when this version does not speak JSON."""
    command = [tool, "--output-style=JSON", "--inlines", "--demangle", f"--obj={module}"]
    text = "".join(f"{a:#x}\n" for a in addresses)
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    found: dict[int, list[Frame]] = {}
    try:
        for line in done.stdout.splitlines():
            answer = json.loads(line)
            for one in answer if isinstance(answer, list) else [answer]:
                symbols = [s for s in one.get("Symbol", []) if s.get("FunctionName")]
                frames = [
                    Frame(s["FunctionName"], s.get("FileName", ""), int(s.get("Line", 0)), place < len(symbols) - 1)
                    for place, s in enumerate(symbols)
                ]
                if frames:
                    found[int(one["Address"], 16)] = frames[::-1]
    except (ValueError, KeyError, TypeError):
        return None
    return found if done.returncode == 0 else None


def by_addr2line(tool: str, module: str, addresses: Sequence[int]) -> dict[int, list[Frame]]:
    command = [tool, "-e", module, "-a", "-f", "-i", "-C"]
    text = "".join(f"{a:#x}\n" for a in addresses)
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    found: dict[int, list[Frame]] = {}
    for block in re.split(r"^(?=0x[0-9a-f]+$)", done.stdout, flags=re.MULTILINE):
        lines = block.splitlines()
        if len(lines) < 3:
            continue
        pairs = list(zip(lines[1::2], lines[2::2], strict=False))
        frames = []
        for place, (function, where) in enumerate(pairs):
            caller = pairs[place + 1][0] if place + 1 < len(pairs) else ""
            if function in ("??", caller):  # some versions give an inlined call its caller's name
                continue
            file, _, line = where.split(" (discriminator")[0].rpartition(":")
            number = int(line) if line.isdigit() else 0
            frames.append(Frame(function, "" if file == "??" else file, number, place < len(pairs) - 1))
        if frames:
            found[int(lines[0], 16)] = frames[::-1]
    return found


@lru_cache(maxsize=64)
def function_table(module: str) -> tuple[list[int], list[tuple[int, str]]]:
    """Start addresses in order, and (end, name) of each function that the file's symbol tables name."""
    table: dict[int, tuple[int, str]] = {}
    with Path(module).open("rb") as file:
        for symbol in Elf(file).symbols(".dynsym", ".symtab"):
            if symbol.kind == elf.FUNCTION and symbol.address and symbol.name:
                table[symbol.address] = (symbol.address + max(1, symbol.size), symbol.name)
    starts = sorted(table)
    return starts, [table[s] for s in starts]


def by_symbols(module: str, addresses: Sequence[int]) -> dict[int, list[Frame]]:
    """The function around each address, only by the symbol tables. Names stay mangled."""
    starts, functions = function_table(module)
    found = {}
    for address in addresses:
        place = bisect.bisect_right(starts, address) - 1
        if place >= 0 and address < functions[place][0]:
            found[address] = [Frame(functions[place][1])]
    return found
