"""The shape of one entry in the table of real programs."""

import hashlib
import struct
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
    words = "slab span block cache class shard unit purge refill flush live dirty clean decay".split()
    rows = (f"{i * 7919 % 10007} {words[i % 14]} {words[i * i % 13]} {'x' * (i % 50)}" for i in range(lines))
    return "\n".join(rows) + "\n"


def make_inputs(session: Session) -> None:
    """The same files everywhere: text, a table, a page, a program, a picture and a sound."""
    text = sample_text(6000)
    other = "\n".join(line for i, line in enumerate(text.splitlines()) if i % 7) + "\n"
    table = "".join(f"{i},n{i * 7919 % 10007},{i / 3:.2f}\n" for i in range(5000))
    page = "".join(f"<h2>{i}</h2><p>some <b>bold</b> text {'word ' * (i % 20)}</p>" for i in range(400))
    items = "".join(f"<item id='{i}'><name>{'n' * (i % 30)}</name></item>" for i in range(4000))
    for name, content in {
        "long.txt": sample_text(),
        "input.txt": text,
        "other.txt": other,
        "table.csv": f"id,name,value\n{table}",
        "page.html": f"<html><body>{page}</body></html>",
        "data.xml": f"<list>{items}</list>",
    }.items():
        session.write(name, content)
    pixels = bytes((x * y * k + x * 3) % 256 for y in range(160) for x in range(240) for k in (1, 2, 3))
    (session.folder / "picture.ppm").write_bytes(b"P6 240 160 255\n" + pixels)
    samples = b"".join(struct.pack("<h", (i * i // 7 % 20000) - 10000) for i in range(44100))
    sizes = (36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, 44100, 88200, 2, 16, b"data", len(samples))
    (session.folder / "sound.wav").write_bytes(struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", *sizes) + samples)


def scripted(script: str) -> Callable[[Session], str]:
    """A shell script in a folder with these inputs, which prints what is compared."""

    def play(session: Session) -> str:
        make_inputs(session)
        return session.run("bash", "-e", "-o", "pipefail", "-c", script)

    return play


def file(name: str, text: str) -> str:
    """The line of a script that writes a file."""
    return f"cat > {name} <<'END OF FILE'\n{text}\nEND OF FILE\n"
