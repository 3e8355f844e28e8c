"""Makes the packages of a release from build/release: Debian's, a relocatable archive, a wheel, a container file.

Each holds both libraries, the command, and the recorder and replayer of traces. Files carry the time of
SOURCE_DATE_EPOCH, so that the same build gives the same archive and wheel. Standard library, CMake and dpkg-dev only.
"""

import base64
import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from freestone_lab.core import outputs, paths
from freestone_lab.core.errors import UserError

KINDS = ("deb", "tar", "wheel")
TOOLS = ("freestone_probe", "freestone-workload", "freestone_record", "freestone-record", "freestone-replay")
TARGETS = ("libraries", *TOOLS)
COMPONENTS = ("libfreestone1", "libfreestone-dev", "freestone-tools")
NOTICES = ("LICENSE", "README.md", "CHANGELOG.md")
CONTAINER = """\
# docker build -t freestone -f {name}.Containerfile .      then: docker run --rm freestone run -- CMD
# In an image of your own: COPY --from=freestone /opt/freestone /opt/freestone
ARG BASE=debian:12-slim
FROM $BASE
RUN apt-get update -q && apt-get install -y -q --no-install-recommends {needs} && rm -rf /var/lib/apt/lists/*
ADD {name}.tar.gz /opt
RUN ln -s /opt/{name} /opt/freestone && ln -s /opt/freestone/bin/freestone /usr/local/bin/freestone
ENTRYPOINT ["freestone"]
"""
CONTAINER_NEEDS = "python3 python3-venv libstdc++6 libzstd1 ca-certificates"


def make(folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Builds what is missing, makes `folder`, and writes the packages of these kinds into it."""
    folder = paths.folder(folder, "FOLDER")
    _call(str(paths.root() / "freestone"), "build", *TARGETS)
    made: list[Path] = []
    with outputs.Scratch("package") as scratch:
        for kind in kinds:
            made += {"deb": _debian, "tar": _archive, "wheel": _wheel}[kind](folder, Path(scratch))
    return made


def name() -> str:
    """What archive and folder are called, without their endings."""
    return f"freestone-{paths.version()}-linux-{platform.machine()}"


def _call(*command: str, folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise UserError(f"'{' '.join(command)}' failed:\n{done.stdout}{done.stderr}")


def _install(prefix: Path, components: Sequence[str]) -> None:
    for component in components:
        where = ("--prefix", str(prefix), "--component", component)
        _call("cmake", "--install", str(paths.build_dir()), "--strip", *where)


def _made_at() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))


def _debian(folder: Path, scratch: Path) -> list[Path]:
    if shutil.which("dpkg-shlibdeps") is None:
        raise UserError("Debian's packages need dpkg-shlibdeps (package dpkg-dev)")
    out = scratch / "deb"
    _call("cpack", "-G", "DEB", "--config", str(paths.build_dir() / "CPackConfig.cmake"), "-B", str(out))
    return [Path(shutil.copy(file, folder)) for file in sorted(out.glob("*.deb"))]


def _archive(folder: Path, scratch: Path) -> list[Path]:
    tree = scratch / name()
    _install(tree, COMPONENTS)
    for notice in NOTICES:
        shutil.copy(paths.root() / notice, tree)

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = _made_at()
        return entry

    archive, container = folder / f"{name()}.tar.gz", folder / f"{name()}.Containerfile"
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, _made_at()) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        tar.add(tree, name(), filter=plain)  # in the order of names
    container.write_text(CONTAINER.format(name=name(), needs=CONTAINER_NEEDS))
    return [archive, container]


def _wheel(folder: Path, scratch: Path) -> list[Path]:
    prefix, tree = scratch / "prefix", scratch / "wheel"
    _install(prefix, ("libfreestone1", "freestone-tools"))
    shared = prefix / "share" / "freestone"
    libraries = (shared / (shared / paths.MARKER).read_text().splitlines()[0]).resolve()
    shutil.copytree(shared / "lab" / "freestone_lab", tree / "freestone_lab")
    inside = tree / "freestone_lab" / "tree"
    shutil.copytree(shared / "allocator", inside / "allocator")
    shutil.copytree(shared / "trace", inside / "trace")
    shutil.copytree(shared / "lab" / "peers", inside / "lab" / "peers")
    shutil.copytree(libraries, inside / "lib", symlinks=False)
    (inside / paths.MARKER).write_text(f"lib\n{paths.version()}\n")
    for place in ("man", "bash-completion", "zsh", "fish"):
        shutil.copytree(prefix / "share" / place, tree / f"{_distribution()}.data/data/share" / place)
    return [_zip(tree, folder)]


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((paths.root() / "lab" / "pyproject.toml").read_text())["project"]
    return found


def _distribution() -> str:
    """What a wheel's file and folders begin with."""
    return f"freestone_lab-{_project()['version']}"


def _metadata(tag: str) -> dict[str, str]:
    """The files that make a folder a distribution, from lab/pyproject.toml."""
    project = _project()
    about = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    about += [f"Summary: {project['description']}", f"Requires-Python: {project['requires-python']}"]
    about += [f"License: {project['license']['text']}", *(f"Requires-Dist: {x}" for x in project["dependencies"])]
    scripts = "".join(f"{command} = {entry}\n" for command, entry in project["scripts"].items())
    return {
        "METADATA": "\n".join(about) + "\n\n" + (paths.root() / "README.md").read_text(),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: freestone\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": f"[console_scripts]\n{scripts}",
    }


def _zip(tree: Path, folder: Path) -> Path:
    tag = f"py3-none-manylinux_2_28_{platform.machine()}"
    about = f"{_distribution()}.dist-info"
    (tree / about).mkdir()
    for file, text in _metadata(tag).items():
        (tree / about / file).write_text(text)
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    record = ""
    for path in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        record += f"{path.relative_to(tree)},sha256={digest},{path.stat().st_size}\n"
    (tree / about / "RECORD").write_text(f"{record}{about}/RECORD,,\n")
    wheel = folder / f"{_distribution()}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [*files, tree / about / "RECORD"]:
            entry = zipfile.ZipInfo(str(path.relative_to(tree)), time.gmtime(max(_made_at(), 315532800))[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (path.stat().st_mode & 0o777 | 0o100000) << 16
            archive.writestr(entry, path.read_bytes())
    return wheel
