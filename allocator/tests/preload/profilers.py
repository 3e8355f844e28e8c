"""Profilers of memory beside the library: heaptrack, whose malloc lies ahead, and memray, which changes what is loaded.

Both must see what they see on the C library's malloc: NEW-2.
"""

import re
import subprocess
from pathlib import Path

from preload import sources
from preload.program import Program
from preload.session import Session

SOURCE = """
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <thread>
struct alignas(64) Wide { char bytes[1088]; };
struct Plain { char bytes[1000]; };
static void* kept[8000];
static int count;
extern "C" void by_malloc(int n) { while (n-- > 0) kept[count++] = malloc(1000); }
extern "C" void by_new(int n) { while (n-- > 0) kept[count++] = new Plain; }
extern "C" void by_new_array(int n) { while (n-- > 0) kept[count++] = new char[1000]; }
extern "C" void by_nothrow(int n) { while (n-- > 0) kept[count++] = new (std::nothrow) Plain; }
extern "C" void by_aligned_new(int n) { while (n-- > 0) kept[count++] = new Wide; }
extern "C" void delete_some(int n) { while (n-- > 0) delete (new Plain), delete (new Wide); }
extern "C" void in_thread(int n) { std::thread(by_new, n).join(); }
#ifdef ALONE
int main() {
  for (auto* work : {by_malloc, by_new, by_new_array, by_nothrow, by_aligned_new, delete_some, in_thread}) work(1000);
}
#endif
"""

TRACK = """
import collections, ctypes, memray, sys
count = int(sys.argv[1])
lib = ctypes.CDLL("./library.so")
names = "by_malloc by_new by_new_array by_nothrow by_aligned_new delete_some in_thread"
calls = [getattr(lib, name) for name in names.split()]
with memray.Tracker(f"{count}.bin"):
    for call in calls: call(count)
calls[1](count)  # seen by nobody
seen, live, freed = collections.Counter(), set(), 0
for a in memray.FileReader(f"{count}.bin").get_allocation_records():
    kind = memray.AllocatorType(a.allocator).name
    if kind == "FREE":
        freed += a.address in live
        live.discard(a.address)
    elif a.size in (1000, 1088):
        seen[kind] += 1
        live.add(a.address)
print(count, sorted(seen.items()), "freed", freed)
"""


def heaptrack(session: Session) -> str:
    session.write("program.cc", SOURCE)
    session.run("g++", "-O0", "-DALONE", "-w", "program.cc", "-o", "program")
    session.run("heaptrack", "-o", "seen", "./program")
    (data,) = session.folder.glob("seen.*")
    page = session.run("heaptrack_print", data.name)
    totals = re.findall(r"^(calls to allocation functions: \d+|total memory leaked: .*|peak heap .*: .*)", page, re.M)
    return "\n".join(totals)


def memray_itself() -> Path:
    """A virtual environment with it; Debian 12 has no package. Raises sources.Unavailable."""
    folder = sources.store() / "memray"
    steps = (["/usr/bin/python3", "-m", "venv", str(folder)], [f"{folder}/bin/pip", "install", "--quiet", "memray"])
    if not (folder / "bin" / "memray").exists():
        for step in steps:
            if subprocess.run(step, capture_output=True, check=False).returncode != 0:
                raise sources.Unavailable("pip cannot install memray here")
    return folder


def memray(session: Session) -> str:
    session.write("library.cc", SOURCE)
    session.run("g++", "-O0", "-w", "-shared", "-fPIC", "library.cc", "-o", "library.so")
    session.write("track.py", TRACK)
    return "".join(session.run(session.source / "bin" / "python3", "track.py", str(count)) for count in (10, 1000))


PROGRAMS: dict[str, Program] = {
    "heaptrack": Program(("heaptrack", "heaptrack_print", "g++"), "heaptrack_print", heaptrack),
    "memray": Program(("python3", "g++"), "python3", memray, prepare=memray_itself),
}
