"""Invented results of every shape the report must show. The figures follow a seeded generator, not any allocator."""

import math
import random
from collections.abc import Sequence

from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample, control_name
from freestone_lab.measure.samples import PROCESS_SPECS
from freestone_lab.workloads.suites import WEIGHTS

PEERS = {  # name: (time factor, memory factor)
    "glibc": (1.0, 1.0),
    "freestone": (0.71, 0.97),
    "freestone-hardened": (0.97, 1.09),
    "mimalloc": (0.78, 1.31),
    "mimalloc-secure": (0.88, 1.36),
    "jemalloc": (0.83, 1.12),
    "tcmalloc": (0.76, 1.62),
    "gperftools": (0.80, 1.55),
    "snmalloc": (0.79, 1.22),
    "rpmalloc": (0.84, 1.18),
    "hardened-malloc": (3.4, 1.52),
    "scudo": (2.1, 1.25),
    "isoalloc": (2.6, 1.9),
    "tbbmalloc": (0.86, 1.71),
}
Figures = dict[str, tuple[float, FigureSpec]]
FINGERPRINT = {
    "cpu": {"model name": "Imaginary CPU 9000 @ 3.0 GHz", "flags": "fpu vme sse avx " * 30},
    "cpus": 2,
    "kernel": "6.1.0-test",
    "libc": "glibc 2.36",
    "thp": "madvise",
    "max_map_count": 65530,
    "served": {"glibc": {"malloc": "/lib/x86_64-linux-gnu/libc.so.6"}, "freestone": {"malloc": "/opt/libfreestone.so"}},
}


def peers(names: list[str], *, controls: bool = True) -> list[Peer]:
    found = [
        Peer(
            n, None if n == "glibc" else f"/opt/lib/{n}/lib{n}.so", "libc" if n == "glibc" else "preload", "1.2.3",
            f"package lib{n}", "00c0ffee" * 5, ("malloc", "free", "malloc_trim", "mallinfo2", "malloc_info", "mallctl"),
        )
        for n in names
    ]  # fmt: skip
    if controls:
        found += [Peer(control_name("glibc"), None, "control"), Peer("null", "/opt/libcontrol-null.so", "control")]
    return found


def factors(name: str) -> tuple[float, float]:
    if name == "null":
        return 0.3, 2.5
    return PEERS.get(name.removesuffix(" again"), (1.0, 1.0))


def samples(
    names: list[str], rounds: int, figures: Figures, seed: int, noise: float = 0.004, twist: float = 0.0
) -> list[Sample]:
    """One sample per allocator and round; the warm-up round 0 is among them. `twist` varies the order by experiment."""
    generator = random.Random(seed)
    bend = {n: math.exp(generator.gauss(0, twist)) if n not in ("glibc", "glibc again") else 1.0 for n in names}
    made = []
    for number in range(rounds + 1):
        weather = math.exp(generator.gauss(0, 0.02))
        for name in names:
            time, memory = factors(name)
            values = {}
            for figure, (scale, spec) in figures.items():
                factor = memory if spec.unit == "KiB" else time * weather * bend[name]
                factor = 1 / factor if spec.better == "higher" else factor
                values[figure] = scale * factor * math.exp(generator.gauss(0, noise))
            made.append(Sample(name, number, "ok", figures=values))
    return made


def program(names: list[str] | None = None, rounds: int = 12, *, controls: bool = True) -> Result:
    """What `freestone compare -- CMD` leaves: one experiment, time and memory, resident memory over time."""
    known = names or ["glibc", "freestone", "mimalloc", "jemalloc", "gperftools"]
    listed = peers(known, controls=controls)
    scales = {"wall": 1.84, "cpu": 1.8, "user": 1.7, "sys": 0.1, "rss": 81_200.0, "minor_faults": 20_000.0}
    figures = {name: (scale, PROCESS_SPECS[name]) for name, scale in scales.items()}
    experiment = Experiment(
        "program",
        "program",
        {"command": ["python3", "parse.py", "--input", "measurements.json"]},
        {name: spec for name, (_, spec) in figures.items()},
        ["Two CPUs are shared with the launcher."],
        samples([p.name for p in listed], rounds, figures, 7),
    )
    for sample in experiment.samples:
        peak = sample.figures["rss"]
        sample.series["rss"] = [
            [t * 10, peak * min(1, t / 60) * (0.55 if t > 150 and sample.peer in ("jemalloc", "freestone") else 1)]
            for t in range(180)
        ]
    command = ["freestone", "compare", "--", "python3", "parse.py"]
    return Result("2026-11-20T12:00:00Z", command, 7, FINGERPRINT, listed, [experiment])


def suite(names: list[str] | None = None, rounds: int = 12, threads: tuple[int, ...] = (1, 2), step: int = 6) -> Result:
    """What `freestone bench full` leaves: sweeps, percentiles, curves, the composite, failures."""
    known = names or list(PEERS)
    listed = peers(known)
    everyone = [p.name for p in listed]
    found: list[Experiment] = []
    for count in threads:
        for exponent in range(1, 23, step):
            specs = {"throughput": (8e7 / count / (1 + exponent / 6), FigureSpec("ops/s", "higher"))}
            params = {"size": 2**exponent, "threads": count}
            found.append(make("throughput", params, specs, everyone, rounds, len(found)))
    percentiles = {"50": 18.0, "99": 61.0, "99.9": 410.0, "99.99": 2900.0}
    latency = {f"malloc_p{percent}": (ns, FigureSpec("ns")) for percent, ns in percentiles.items()}
    one = make("latency", {"threads": 2, "size": 64}, latency, everyone, rounds, 91)
    for sample in one.samples:
        scale = factors(sample.peer)[0]
        sample.series["malloc_ccdf"] = [[18 * scale * 1.25**i, 10 ** (-i / 3.2)] for i in range(17)]
    found.append(one)
    micro = {f"malloc_free_{size}": (12.0 + size**0.4, FigureSpec("ns")) for size in WEIGHTS}
    micro["weighted"] = (30.0, FigureSpec("ns"))
    caveats = ["Blocks above 128 KiB are mapped anew by glibc."]
    found.append(make("micro", {"threads": 1}, micro, everyone, rounds, 92, caveats))
    overhead = make("overhead", {}, {"mean_overhead": (11.0, FigureSpec("percent"))}, everyone, rounds, 93)
    for sample in overhead.samples:
        step = 8 + 4 * (len(sample.peer) % 5)
        sample.series["usable_overhead_percent"] = [
            [size, 100 * (-(-size // step) * step - size) / size + 0.5]
            for size in (int(1.35**i) + 1 for i in range(48))
        ]
    found.append(overhead)
    memory = make("rss", {"threads": 4}, {"peak_rss": (51_000.0, FigureSpec("KiB"))}, everyone, rounds, 94)
    for sample in memory.samples:
        peak = sample.figures["peak_rss"]
        sample.series["resident"] = [[t * 0.05, peak * (1 - math.exp(-t / 12))] for t in range(120)]
    found.append(memory)
    for number, sample in enumerate(s for s in found[1].samples if s.peer == "isoalloc"):
        why = "killed by signal 6 (Aborted)" if number < 4 else "exit status 3: 12 allocations returned NULL"
        sample.status, sample.detail, sample.figures = "failed", why, {}
    for sample in (s for s in one.samples if s.peer == "tbbmalloc"):
        sample.status, sample.detail = "not_loaded", "malloc was bound to libc.so.6"
        sample.figures, sample.series = {}, {}
    return Result("2026-11-20T12:00:00Z", ["freestone", "bench", "full"], 11, FINGERPRINT, listed, found)


def make(
    workload: str, params: dict[str, int], figures: Figures, names: list[str], rounds: int, seed: int,
    caveats: Sequence[str] = (),
) -> Experiment:  # fmt: skip
    name = "/".join([workload, ",".join(f"{k}={v}" for k, v in params.items())]).rstrip("/")
    specs = {figure: spec for figure, (_, spec) in figures.items()}
    made = samples(names, rounds, figures, seed, twist=0.08)
    return Experiment(name, workload, dict(params), specs, list(caveats), made)
