"""What an ELF file asks of glibc and of gcc's libraries."""

import platform
import re
import subprocess
from pathlib import Path

# What a system of the platform manylinux_2_28 has.
CEILINGS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7,)}


def of_glibc() -> tuple[int, ...]:
    """The version of this machine's, () where there is none."""
    return tuple(map(int, re.findall(r"\d+", platform.libc_ver()[1])))


def above_ceiling(file: Path) -> list[str]:
    """What `file` refers to and such a system lacks: symbols as NAME@VERSION, and versions without a symbol."""
    command = ["readelf", "-VW", "--dyn-syms", str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = re.findall(r" UND (\w+@(\w[\w.]*))", printed)
    versions = set(re.findall(r"Name: (\w[\w.]*) +Flags:", printed)) - {version for _, version in symbols}
    return sorted({found for found, version in [*symbols, *zip(versions, versions, strict=True)] if _is_new(version)})


def _is_new(version: str) -> bool:
    kind, _, number = version.partition("_")
    if kind not in CEILINGS:
        return False
    # GLIBC_ABI_DT_RELR and its like are newer than all numbers below the ceiling.
    return not re.fullmatch(r"[\d.]+", number) or tuple(map(int, number.split("."))) > CEILINGS[kind]
