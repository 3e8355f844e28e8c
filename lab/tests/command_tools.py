"""The command in the process of the tests, so that its imports are paid once."""

import contextlib
import io
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from freestone_lab import cli
from freestone_lab.core import paths

CLI = [sys.executable, "-m", "freestone_lab.cli"]  # the command in a process of its own
LIBRARY = paths.build_dir() / "libfreestone.so"
needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason="libfreestone is not built")


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


def clone_into(folder: Path) -> None:
    """A clone of what is committed, with what this tree has beside it, and the packages of this Python."""
    root = paths.root()
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{root}", str(folder)], check=True)
    changed = subprocess.run(["git", "ls-files", "-mo", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    for name in changed.stdout.splitlines():
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
        elif not (root / name).exists():
            (folder / name).unlink()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=folder, check=True)
    packages = next((folder / ".venv/lib").glob("python3*/site-packages"))
    (packages / "freestone.pth").write_text(f"{folder}/lab\n{Path(pytest.__file__).parents[1]}\n")
    sums = subprocess.run(["cksum"], input=(folder / "lab/requirements.txt").read_bytes(), capture_output=True).stdout
    (folder / ".venv/runtime.stamp").write_text(f"{sums.decode().strip()} {folder}\n")
