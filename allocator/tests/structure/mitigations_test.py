"""Mitigations: the core with one mitigation, and those that it needs, works; without `trailer` the exported functions
are those of the fast build.

usage: mitigations_test.py COMPILER SOURCES BITS
"""

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

ROOMS = ("base", "config", "platform", "region", "span", "slab", "cache", "front", "hardened")
TRAILER = 1
FLAGS = ["-std=c++20", "-D_GNU_SOURCE", "-DFREESTONE_BUILD=\"one\"", "-DFREESTONE_VERSION=\"0\"",
         "-DFREESTONE_CHECKS=1", "-DFREESTONE_COUNT_LOCKS=0", "-DFREESTONE_PREFIXED=1", "-fno-exceptions", "-fno-rtti",
         "-fno-builtin-malloc", "-Wall", "-Wextra", "-Werror"]  # fmt: skip


def core_sources(sources: Path) -> list[list[Path]]:
    """By room."""
    listed = re.findall(r"^    src/(\w+/\w+\.cc)", (sources.parent / "CMakeLists.txt").read_text(), re.MULTILINE)
    return [[sources / path for path in listed if path.startswith(f"{room}/")] for room in ROOMS]


def compiled(compile_to: list[str], paths: list[Path], folder: Path) -> list[Path]:
    """The objects of a room, in one go because headers cost the most; a source with a name of another's goes apart."""
    made = folder / f"{paths[0].parent.name}_{paths[0].stem}.o"
    text = "".join(f'#include "{path}"\n' for path in paths)
    command = [*compile_to, "-O0", "-x", "c++", "-c", "-", "-o", str(made)]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode == 0:
        return [made]
    if len(paths) == 1:
        sys.exit(done.stderr)
    apart = next((path for path in paths if re.search(rf"^{path}:.* error: ", done.stderr, re.MULTILINE)), paths[-1])
    rest = [path for path in paths if path != apart]
    return compiled(compile_to, rest, folder) + compiled(compile_to, [apart], folder)


def main() -> int:
    compiler, sources, bits = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    compile_to = [compiler, *FLAGS, f"-DFREESTONE_MITIGATIONS={bits}", f"-I{sources}"]
    parts = [[sources / "abi/malloc.cc"], [Path(__file__).with_name("mitigations_probe.cc")], *core_sources(sources)]
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor() as team:
            entry, *objects = team.map(lambda paths: compiled(compile_to, paths, Path(folder)), parts)
        probe = Path(folder, "probe")
        subprocess.run([compiler, *chain(*objects), "-o", probe, "-lpthread", "-ldl"], check=True)
        ran = subprocess.run([probe], capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            print(f"status {ran.returncode}\n{ran.stdout}{ran.stderr}")
            return 1
        names = subprocess.run(["nm", "-C", *entry], capture_output=True, text=True, check=True).stdout
        if ("freestone::hardened::" in names) != (bits & TRAILER != 0):
            print("the exported functions take the wrong paths")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
