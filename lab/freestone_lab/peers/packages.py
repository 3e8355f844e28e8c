"""Debian packages that the lab can use: finds the missing ones, and installs them if it may.

PROGRAMS is the one table of what tests and default comparisons need: program on PATH, or file -> package.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from freestone_lab.host.libraries import library_paths
from freestone_lab.peers.discover import ALIASES, PACKAGED

PROGRAMS: dict[str, str] = {
    "gcc": "gcc",
    "g++": "g++",
    "cmake": "cmake",
    "ninja": "ninja-build",
    "pkg-config": "pkg-config",
    "make": "make",
    "dpkg-shlibdeps": "dpkg-dev",
    "file": "file",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
    "git": "git",
    "perl": "perl",
    "sqlite3": "sqlite3",
    "jq": "jq",
    "lua5.4": "lua5.4",
    "redis-server": "redis-server",
    "redis-cli": "redis-tools",
    "nginx": "nginx-light",
    "java": "default-jre-headless",
    "node": "nodejs",
    "strace": "strace",
    "valgrind": "valgrind",
    "objdump": "binutils",
    "clang++-19": "clang-19",
    "chromium": "chromium",
    "musl-gcc": "musl-tools",
    "prometheus": "prometheus",
    "zsh": "zsh",
    "fish": "fish",
    "/usr/include/gtest/gtest.h": "libgtest-dev",
    "/usr/lib/llvm-19/lib/clang/19/lib/linux": "libclang-rt-19-dev",
}
# What the short form of the tests can do without.
ONLY_ALL = {"g++-aarch64-linux-gnu", "qemu-user", "clang-19", "chromium", "musl-tools", "libclang-rt-19-dev"}
ONLY_ALL |= {"prometheus", "zsh", "fish"}
SHORT_PROGRAMS = [name for name, package in PROGRAMS.items() if package not in ONLY_ALL]


def missing_programs(programs: Iterable[str] = PROGRAMS) -> list[str]:
    """The packages of those programs that are not on PATH, and of those files that do not exist."""
    packages = [PROGRAMS[p] for p in programs if not (Path(p).exists() if p.startswith("/") else shutil.which(p))]
    return list(dict.fromkeys(packages))


def installed_mib(wanted: Sequence[str]) -> float:
    """What these packages take on the disk, themselves; 0 if nobody knows."""
    try:
        command = ["apt-cache", "show", "--no-all-versions", *wanted]
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return 0.0
    return sum(int(kib) for kib in re.findall(r"^Installed-Size: (\d+)", done.stdout, re.MULTILINE)) / 1024


def missing_peers(only: Collection[str] = ()) -> list[str]:
    """The packages of Debian's allocators that are not here; with `only`, of those that it names."""
    named = {variant for name in only for variant in (name, *ALIASES.get(name, ()))}
    return [p.package for p in PACKAGED if (not only or {p.name, "all"} & named) and not library_paths(p.library)]


def is_installed(package: str) -> bool:
    try:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True
        )
    except OSError:
        return False
    return done.stdout == "installed"


def privilege() -> list[str] | None:
    """What to put before apt-get: nothing as root, `sudo` if it can ask for a password or needs none, or None."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    unasked = subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0
    return ["sudo"] if unasked or sys.stdin.isatty() else None


def command_line(packages: Sequence[str]) -> str:
    """The line that a user types to install them."""
    return f"sudo apt-get update && sudo apt-get install -y {' '.join(packages)}"


def install(packages: Sequence[str]) -> list[str]:
    """Installs what it can, one by one if they do not install together. Returns the packages that are still missing."""
    if not packages:
        return []
    before = privilege()
    if before is None:
        return list(packages)

    def apt(*arguments: str) -> bool:
        command = [*before, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-q", *arguments]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def add(*names: str) -> bool:
        return apt("install", "--no-install-recommends", *names)

    if add(*packages) or (apt("update") and add(*packages)):
        return []
    return [name for name in packages if not add(name)]
