"""Debian's source packages: fetched with apt, unpacked and prepared once, then kept.

State it owns: the folder FREESTONE_SOURCES. /etc/apt is read, never written: the lists of sources lie in that folder.
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path


class Unavailable(Exception):
    """The source cannot be had or not be prepared; the text says why, and names no host."""


def store() -> Path:
    return Path(os.environ.get("FREESTONE_SOURCES") or Path(tempfile.gettempdir()) / "freestone-sources")


def prepared(package: str, build: str) -> Path:
    """The unpacked source in which the shell script `build` ran. Raises Unavailable."""
    folder = store() / package
    if not (folder / "unpacked").is_dir():
        fetch(package, folder)
    stamp = folder / f"prepared-{hashlib.sha256(build.encode()).hexdigest()[:16]}"
    if not stamp.exists():
        with (folder / "build.log").open("wb") as log:
            done = subprocess.run(
                ["bash", "-e", "-c", build],
                cwd=folder / "unpacked",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
        if done.returncode != 0:
            raise Unavailable(f"the source of {package} does not build here: see {folder / 'build.log'}")
        stamp.touch()
    return folder / "unpacked"


def fetch(package: str, folder: Path) -> None:
    """Downloads the newest version that the mirror still has: a list may name one that it has dropped."""
    options = apt_options()
    listed = subprocess.run(
        ["apt-cache", *options, "showsrc", package], capture_output=True, text=True, check=False
    ).stdout
    versions = [line.split()[1] for line in listed.splitlines() if line.startswith("Version:")]
    folder.mkdir(parents=True, exist_ok=True)
    for version in dict.fromkeys(reversed(versions)):
        command = ["apt-get", *options, "-q", "source", "--download-only", f"{package}={version}"]
        if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode != 0:
            continue
        descriptions = sorted(folder.glob("*.dsc"), key=lambda path: path.stat().st_mtime)
        command = ["dpkg-source", "--no-check", "-x", descriptions[-1].name, "unpacked"]
        if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode != 0:
            raise Unavailable(f"dpkg-source cannot unpack the source of {package}")
        return
    raise Unavailable(f"no source package {package} to be had ({len(versions)} versions listed)")


def apt_options() -> list[str]:
    """Options with which apt sees the sources of the machine's own mirrors; fetches their lists once."""
    parts, lists = store() / "parts", store() / "lists"
    options = {"SourceList": "/dev/null", "SourceParts": str(parts), "Lists": str(lists)}
    words = [f"-oDir::{'State' if key == 'Lists' else 'Etc'}::{key}={value}" for key, value in options.items()]
    words.append("-oAPT::Sandbox::User=root")
    if not any(lists.glob("*_Sources*")):
        parts.mkdir(parents=True, exist_ok=True)
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
            text = path.read_text()
            lines = ["Types: deb-src" if line.startswith("Types:") else line for line in text.splitlines()]
            (parts / path.name).write_text("\n".join(lines) + "\n")
        old = Path("/etc/apt/sources.list")
        if old.is_file():
            lines = [
                line.replace("deb ", "deb-src ", 1) for line in old.read_text().splitlines() if line.startswith("deb ")
            ]
            (parts / "old.list").write_text("\n".join(lines) + "\n")
        if subprocess.run(["apt-get", *words, "-q", "update"], capture_output=True, check=False).returncode != 0:
            raise Unavailable("apt-get cannot fetch the lists of source packages")
    return words
