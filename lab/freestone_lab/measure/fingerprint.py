"""What one must know about a machine to judge a figure: processor, kernel, memory policy, libraries, load."""

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from freestone_lab.core import measured, paths
from freestone_lab.core.elf import Elf, ElfError
from freestone_lab.core.result import Peer
from freestone_lab.measure import provenance
from freestone_lab.measure.samples import digest

_CPU_KEYS = ("model name", "vendor_id", "cpu MHz", "cache size", "microcode", "flags")
_ALLOCATOR_NAMES = re.compile(r"(malloc|tcmalloc|mimalloc|scudo|hoard|rpmalloc)")


def read(path: str) -> str:
    """A kernel file's text, stripped; "" when it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def chosen(text: str) -> str:
    """The bracketed word of a kernel choice such as `always [madvise] never`."""
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else text


def cpu() -> dict[str, str]:
    """The first processor's description."""
    found: dict[str, str] = {}
    for line in read("/proc/cpuinfo").split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        if key.strip() in _CPU_KEYS:
            found[key.strip()] = value.strip()
    return found


def memory_kib() -> dict[str, int]:
    """Total, available and swap memory."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB", read("/proc/meminfo"), re.MULTILINE))
    return {name: int(found.get(name, 0)) for name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")}


def cgroup_limits() -> dict[str, str]:
    """Limits of this control group that a measurement may reach. Unlimited ones are left out."""
    files = {
        "memory.max": "/sys/fs/cgroup/memory.max",
        "cpu.max": "/sys/fs/cgroup/cpu.max",
        "memory.limit_in_bytes": "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "cpu.cfs_quota_us": "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    }
    values = {name: read(path) for name, path in files.items()}
    return {n: v for n, v in values.items() if v and not v.startswith("max") and v not in ("-1", "9223372036854771712")}


def compiler() -> str:
    """The first line of `cc --version`; "" without one."""
    try:
        done = subprocess.run(["cc", "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0]


def program(path: Path) -> dict[str, Any]:
    """A program's identity: its digest, its build-id, and the allocators among the libraries that it needs."""
    facts: dict[str, Any] = {"path": str(path), "sha256": digest(path)}
    try:
        with path.open("rb") as file:
            elf = Elf(file)
            if elf.build_id:
                facts["build_id"] = elf.build_id
            needed = elf.needed
    except ElfError:
        return facts
    facts["allocators_needed"] = [name for name in needed if _ALLOCATOR_NAMES.search(name)]
    return facts


def collect(peers: Iterable[Peer] = (), programs: Iterable[Path] = ()) -> dict[str, Any]:
    """Everything as a JSON object. Values that the machine does not tell are empty strings."""
    os_release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', read("/etc/os-release"), re.MULTILINE))
    return {
        "lab": paths.version(),
        "commit": provenance.commit(),
        "code": measured.code(paths.root()),
        "cpu": cpu(),
        "cpus": os.cpu_count() or 1,
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "turbo": read("/sys/devices/system/cpu/intel_pstate/no_turbo"),
        "smt": read("/sys/devices/system/cpu/smt/active"),
        "hypervisor": "hypervisor" in cpu().get("flags", "").split(),
        "memory_kib": memory_kib(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "distribution": os_release.get("PRETTY_NAME", ""),
        "libc": " ".join(platform.libc_ver()),
        "compiler": compiler(),
        "page_bytes": os.sysconf("SC_PAGESIZE"),
        "thp": chosen(read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "overcommit": read("/proc/sys/vm/overcommit_memory"),
        "max_map_count": read("/proc/sys/vm/max_map_count"),
        "aslr": read("/proc/sys/kernel/randomize_va_space"),
        "swappiness": read("/proc/sys/vm/swappiness"),
        "cgroup": cgroup_limits(),
        "load": os.getloadavg()[0],
        "libraries": {p.name: digest(Path(p.path)) for p in peers if p.path},
        "programs": [program(path) for path in programs],
    }
