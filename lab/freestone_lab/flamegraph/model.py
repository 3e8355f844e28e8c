"""What a profile is, whatever file it came from."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
    process: int = 0  # its number; 0 when unknown

    def total(self, index: int) -> int:
        return sum(values[index] for _, values in self.samples)

    def place(self, view: str) -> int:
        """Where the values of a view stand, or of the last one if the profile lacks it."""
        names = [name for name, _ in self.sample_types]
        return names.index(view) if view in names else len(names) - 1


def largest_first(profiles: Sequence[Profile], view: str) -> list[Profile]:
    return sorted(profiles, key=lambda profile: profile.total(profile.place(view)), reverse=True)


def of_processes(profiles: Sequence[Profile]) -> bool:
    """Whether these are several processes, the largest first, rather than one over time, the last of them now."""
    return len({profile.process for profile in profiles}) == len(profiles) > 1


def by_python(profile: Profile) -> Profile:
    """The profile with the calls of Python and their lines alone; unchanged without any.

    What C functions allocate counts for the Python line that called them. The import machinery of Python is left out.
    """
    if not any(_is_python(frame) for stack, _ in profile.samples for frame in stack):
        return profile
    outside = (Frame("outside Python"),)

    def lines(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
        calls = (frame for frame in stack if _is_python(frame) and not frame.file.startswith("<frozen importlib"))
        return tuple(replace(f, function=f.function.removesuffix(at) + at) for f in calls for at in [_at(f)]) or outside

    return replace(profile, samples=[(lines(stack), values) for stack, values in profile.samples])


def _at(frame: Frame) -> str:
    parts = Path(frame.file).parts
    return f" ({'/'.join(parts[-2 if parts[-1] == '__init__.py' else -1 :])}:{frame.line})"


def _is_python(frame: Frame) -> bool:
    """Code of C has an address, and a module if it is loaded."""
    return bool(frame.file) and not frame.module and not frame.address
