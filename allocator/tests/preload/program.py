"""The shape of one entry in the table of real programs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from preload.session import Session


@dataclass(frozen=True)
class Program:
    """A real program and what it plays.

    `needs`: executables without which it is skipped. `served`: a prefix of the name of the program that must run on the
    library. `source`: the Debian source package that it reads as `session.source`; `build` prepares it once. `prepare`:
    makes what it reads as `session.source` where that is no source package; may raise sources.Unavailable.
    `own_malloc`: it brings a malloc of its own, as browsers do, so the library is loaded but serves nothing.
    """

    needs: tuple[str, ...]
    served: str
    play: Callable[[Session], str]
    source: str = ""
    build: str = ""
    prepare: Callable[[], Path] | None = None
    own_malloc: bool = False


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sample_text(lines: int = 20_000) -> str:
    """The same words everywhere: input for text tools."""
    words = [
        "slab",
        "span",
        "block",
        "cache",
        "class",
        "shard",
        "unit",
        "purge",
        "refill",
        "flush",
        "live",
        "dirty",
        "clean",
        "decay",
    ]
    return (
        "\n".join(f"{i * 7919 % 10007} {words[i % 14]} {words[i * i % 13]} {'x' * (i % 50)}" for i in range(lines))
        + "\n"
    )
