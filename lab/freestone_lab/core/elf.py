"""What an ELF file says about itself: its kind, interpreter, build-id, needed libraries, segments and symbols.

It needs only the standard library, so `freestone run` and `freestone leaks` work on a bare machine. Every fault in the
file is an ElfError, even a table beyond its end.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

MACHINES = {3: "386", 8: "MIPS", 21: "PPC64", 22: "S390", 40: "ARM", 62: "X86_64", 183: "AARCH64", 243: "RISCV"}
TYPES = {1: "relocatable object", 2: "program", 3: "shared object", 4: "core dump"}
SHARED = 3

_SEGMENT_LOAD, _SEGMENT_INTERPRETER = 1, 3
_SECTION_STRINGS, _SECTION_DYNAMIC, _SECTION_NOTE, _SECTION_EMPTY = 3, 6, 7, 8
_SYMBOL_TABLES = {2: ".symtab", 11: ".dynsym"}
_TAG_NEEDED, _NOTE_BUILD_ID = 1, 3
FUNCTION = 2


class ElfError(ValueError):
    """The file is no ELF file, or is cut short or damaged."""


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


class Segment(NamedTuple):
    """A loaded part of the file: where it lies in the file, and at which address."""

    offset: int
    size: int
    address: int


@dataclass(frozen=True)
class Symbol:
    name: str
    address: int
    size: int
    kind: int
    defined: bool
    exported: bool  # other objects may bind to it


class Elf:
    """An open 64-bit ELF file. For a 32-bit file only `bits`, `machine` and `kind` are known."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        ident = self._bytes(0, 16)
        if ident[:4] != b"\x7fELF":
            raise ElfError("it does not begin as an ELF file")
        if ident[4] not in (1, 2):
            raise ElfError(f"its class is {ident[4]}, expected 1 (32 bits) or 2 (64 bits)")
        self.bits = 32 * ident[4]
        self._order = "<" if ident[5] == 1 else ">"
        self.kind, machine = self._unpack("HH", 16)
        self.machine = MACHINES.get(machine, f"machine {machine}")
        self.sections: list[_Section] = []
        self._segments: list[tuple[int, ...]] = []
        if self.bits == 64:
            segments_at, sections_at = self._unpack("QQ", 32)
            segment_size, segments, section_size, sections = self._unpack("HHHH", 54)
            self._segments = [self._unpack("IIQQQQQQ", segments_at + i * segment_size) for i in range(segments)]
            if sections_at:
                places = (sections_at + i * section_size for i in range(sections))
                self.sections = [_Section(*self._unpack("4xI16xQQI20x", at)) for at in places]

    def _bytes(self, offset: int, size: int) -> bytes:
        try:
            self._file.seek(offset)
            found = self._file.read(size)
        except (OverflowError, ValueError, MemoryError) as error:
            raise ElfError("a table lies beyond its end") from error
        if len(found) != size:
            raise ElfError("a table lies beyond its end")
        return found

    def _unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        return struct.unpack(self._order + layout, self._bytes(offset, struct.calcsize("=" + layout)))

    def _content(self, section: _Section) -> bytes:
        return b"" if section.kind == _SECTION_EMPTY else self._bytes(section.offset, section.size)

    def _strings(self, section: _Section) -> bytes:
        """The string table that `section` refers to."""
        if section.link >= len(self.sections) or self.sections[section.link].kind != _SECTION_STRINGS:
            raise ElfError("a table names no string table")
        return self._content(self.sections[section.link])

    @property
    def interpreter(self) -> str | None:
        """The dynamic linker that a program asks for; None for a static one."""
        for kind, _, offset, _, _, size, *_ in self._segments:
            if kind == _SEGMENT_INTERPRETER:
                return self._bytes(offset, size).rstrip(b"\0").decode(errors="replace")
        return None

    @property
    def segments(self) -> list[Segment]:
        return [Segment(s[2], s[5], s[3]) for s in self._segments if s[0] == _SEGMENT_LOAD]

    @property
    def build_id(self) -> str:
        """The build-id in lower-case hexadecimal; "" if there is none."""
        for section in self.sections:
            if section.kind != _SECTION_NOTE:
                continue
            notes, at = self._content(section), 0
            while at + 12 <= len(notes):
                name_size, size, kind = struct.unpack_from(self._order + "III", notes, at)
                content = at + 12 + (name_size + 3) // 4 * 4
                if kind == _NOTE_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
                    return notes[content : content + size].hex()
                at = content + (size + 3) // 4 * 4
        return ""

    @property
    def needed(self) -> list[str]:
        """The libraries that the dynamic linker loads for it."""
        found = []
        for section in self.sections:
            if section.kind == _SECTION_DYNAMIC:
                strings = self._strings(section)
                content = self._content(section)
                tags = struct.iter_unpack(self._order + "QQ", content[: len(content) // 16 * 16])
                found += [_text(strings, value) for tag, value in tags if tag == _TAG_NEEDED]
        return found

    def has(self, table: str) -> bool:
        """Whether the file has this symbol table: `.dynsym` or `.symtab`."""
        return any(_SYMBOL_TABLES.get(s.kind) == table for s in self.sections)

    def symbols(self, *tables: str) -> Iterator[Symbol]:
        """The symbols of `.dynsym`, `.symtab` or both."""
        for section in self.sections:
            if _SYMBOL_TABLES.get(section.kind) not in tables:
                continue
            strings, content = self._strings(section), self._content(section)
            entries = struct.iter_unpack(self._order + "IBBHQQ", content[: len(content) // 24 * 24])
            for name, info, other, place, address, size in entries:
                exported = info >> 4 in (1, 2, 10) and other & 3 in (0, 3)  # global, weak, unique; default, protected
                yield Symbol(_text(strings, name), address, size, info & 15, place != 0, exported)


def _text(strings: bytes, start: int) -> str:
    end = strings.find(b"\0", start)
    if end < 0:
        raise ElfError("a name lies beyond its end")
    return strings[start:end].decode(errors="replace")


def interpreter(path: Path) -> str | None:
    with path.open("rb") as file:
        return Elf(file).interpreter


def build_id(path: Path) -> str:
    with path.open("rb") as file:
        return Elf(file).build_id
