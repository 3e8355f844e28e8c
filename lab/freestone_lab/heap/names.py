"""How a process is called, on every page, in every table and message."""

from pathlib import Path

LETTERS = 100


def command_line(pid: int) -> str:
    """The command line of a process in at most 100 characters, the program without its folder; "" when it is gone.

    A script that was started by its own name is the program, not what reads it.
    """
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        called = Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""
    if " " not in words[0]:  # else a title that the process gave itself
        bare = [word.rpartition("/")[2] for word in words]
        first = next((k for k, word in enumerate(bare[:3]) if word[:15] == called), 0)
        words = [bare[first], *words[first + 1 :]]
    line = "".join(c if c.isprintable() else "?" for c in " ".join(" ".join(words).split()))
    return line if len(line) <= LETTERS else f"{line[: LETTERS - 1]}…"


def program(line: str) -> str:
    """The program alone, of a command line or of a title that a process gave itself."""
    return line.partition(" ")[0].rstrip(":")


def status(pid: int, key: str) -> list[str]:
    """The words of a line of /proc/PID/status; none when the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    return next((line.split()[1:] for line in lines if line.startswith(f"{key}:")), [])
