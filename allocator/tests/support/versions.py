"""What an ELF file asks of glibc."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

CEILING = (2, 28)


def above_ceiling(file: Path) -> list[str]:
    """What `file` refers to and glibc 2.28 lacks: symbols as NAME@GLIBC_VERSION, and versions without a symbol."""
    command = ["readelf", "-VW", "--dyn-syms", str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = re.findall(r" UND (\w+@(GLIBC_\S+))", printed)
    versions = [(name, name) for name in re.findall(r"Name: (GLIBC_\S+)", printed)]
    used = {version for _, version in symbols}
    return sorted(
        {found for found, version in [*symbols, *(v for v in versions if v[0] not in used)] if not _is_old(version)}
    )


def _is_old(version: str) -> bool:
    numbers = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", version)  # GLIBC_ABI_DT_RELR and its like are new
    return numbers is not None and tuple(map(int, numbers[1].split("."))) <= CEILING
