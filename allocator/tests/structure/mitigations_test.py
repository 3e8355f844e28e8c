"""Mitigations: the core with one mitigation, and those that it needs, works; without `trailer` the exported functions
are those of the fast build.

usage: mitigations_test.py COMPILER SOURCES BITS
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOMS = ("base", "config", "platform", "region", "span", "slab", "cache", "front", "hardened")
TRAILER = 1
FLAGS = ["-std=c++20", "-D_GNU_SOURCE", "-DFREESTONE_BUILD=\"one\"", "-DFREESTONE_VERSION=\"0\"",
         "-DFREESTONE_CHECKS=1", "-DFREESTONE_COUNT_LOCKS=0", "-DFREESTONE_PREFIXED=1", "-fno-exceptions", "-fno-rtti",
         "-fno-builtin-malloc", "-Wall", "-Wextra", "-Werror"]  # fmt: skip


def core_sources(sources: Path) -> list[Path]:
    listed = re.findall(r"^    src/((\w+)/\w+\.cc)", (sources.parent / "CMakeLists.txt").read_text(), re.MULTILINE)
    return [sources / path for path, room in listed if room in ROOMS]


def checked_calls(compile_to: list[str], sources: Path, folder: Path) -> bool:
    """Whether the code of the exported functions calls the hardened room."""
    made = folder / "malloc.o"
    subprocess.run([*compile_to, "-O1", "-c", str(sources / "abi/malloc.cc"), "-o", str(made)], check=True)
    names = subprocess.run(["nm", "-C", str(made)], capture_output=True, text=True, check=True).stdout
    return "freestone::hardened::" in names


def main() -> int:
    compiler, sources, bits = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    compile_to = [compiler, *FLAGS, f"-DFREESTONE_MITIGATIONS={bits}", f"-I{sources}"]
    with tempfile.TemporaryDirectory() as made:
        probe = Path(made) / "probe"
        core = map(str, core_sources(sources))
        subprocess.run(
            [*compile_to, "-O0", str(Path(__file__).with_name("mitigations_probe.cc")), *core, "-o", str(probe),
             "-lpthread", "-ldl"], check=True)  # fmt: skip
        ran = subprocess.run([str(probe)], capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            print(f"status {ran.returncode}\n{ran.stdout}{ran.stderr}")
            return 1
        if checked_calls(compile_to, sources, Path(made)) != (bits & TRAILER != 0):
            print("the exported functions take the wrong paths")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
