"""The command in the process of the tests, so that its imports are paid once."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from freestone_lab import cli


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def freestone(folder: Path, *words: str, **env: str) -> Done:
    """`freestone WORDS` in a folder; its output as a pipe would see it."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["freestone", *words])
        for name, value in env.items():
            patch.setenv(name, value)
        status = cli.run(list(words))
    return Done(status, out.getvalue(), err.getvalue())


def marked(mark: str, line: bytes = b"") -> list[int]:
    """The live processes that inherited the mark and whose command line begins so."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_ours = entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes()
            if is_ours and (entry / "cmdline").read_bytes().startswith(line):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
