"""What a profile is, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass, field

from freestone_lab.core.errors import UserError


class ProfileError(UserError):
    """A profile that cannot be read. The message names the file and what was expected."""


@dataclass(frozen=True)
class Frame:
    """One function call. Unresolved frames have no `function` and, where known, a `module` and an `address`.

    `address` lies inside the calling instruction, relative to nothing: a run-time address of the profiled process.
    """

    function: str = ""
    file: str = ""
    line: int = 0
    inlined: bool = False
    module: str = ""
    address: int = 0


@dataclass(frozen=True)
class Mapping:
    """A part of a file that was mapped into the profiled process."""

    start: int
    limit: int
    offset: int
    path: str
    build_id: str = ""


Sample = tuple[tuple[Frame, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Profile:
    """Stacks with values. A stack runs from the outermost call to the allocation; a value per sample type."""

    sample_types: list[tuple[str, str]]  # name and unit, such as ("inuse_space", "bytes")
    samples: list[Sample]
    time: float = 0.0  # seconds since 1970 when the profile was taken; 0 when unknown
    duration: float = 0.0  # seconds that it covers; 0 when unknown
    label: str = ""
    mappings: list[Mapping] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what must be read with it
    period: int = 0  # mean bytes between two samples; 0 when unknown, 1 when each block is one

    def total(self, index: int) -> int:
        return sum(values[index] for _, values in self.samples)
