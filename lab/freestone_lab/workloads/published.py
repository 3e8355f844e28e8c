"""The suite `published`: what the articles measured, with their parameters."""

from __future__ import annotations

from freestone_lab.workloads.rows import WorkloadRun
from freestone_lab.workloads.rows import row as _run

_SIZES = "2^1..2^22"
_TEAMS = (1, 2, 4, 8)

PUBLISHED: tuple[WorkloadRun, ...] = (
    # Article 0: throughput, latency, overhead and resident memory of five allocators.
    *(_run(f"throughput/threads={t}", 0.5 if t == 1 else 0.9, 400, "article 0: items per second by size",
           size="2^1..2^25", threads=t) for t in _TEAMS),
    *(_run(f"latency/published/threads={t}", 1.0, 64, "article 0: latency by size, one block live, clock cost removed",
           size=_SIZES, live=1, samples=100000, touch="none", threads=t) for t in _TEAMS),
    *(_run(f"latency/live/threads={t}", 0.27, 64, "article 0: tail of malloc and free with 1000 live blocks",
           law="mixed", threads=t, idle_ms=10) for t in _TEAMS),
    _run("overhead/published", 1.3, 1100, "article 0: usable and resident bytes per request", grid="published"),
    _run("rss/threads", 0.65, 64, "article 0: resident memory by threads",
         threads="1,2,4,8", blocks=1000, steps=200000, idle=100),
    _run("rss/blocks", 1.0, 160, "article 0: resident memory by number of blocks",
         threads=4, blocks=",".join(f"{n}000" for n in range(1, 11)), steps=50000, idle=50),
    _run("rss/sizes", 1.5, 1600, "article 0: resident memory by size",
         threads=4, blocks=100, size="1K..1M", steps=400, idle=50, sample_ms=2),
    _run("rss/timeline", 1.0, 128, "article 0: resident memory over time, after stop, after idle",
         threads=4, blocks=10000, steps=300000, idle=600),
    # Article 1: random lifetimes.
    *(_run(f"lifetimes/program/threads={t}", 0.25, 300,
           "article 1: cost of a pair and memory overhead, the law that was run",
           slots="2^20", steps=2000000 // t, threads=t, idle_ms=10) for t in _TEAMS),
    *(_run(f"lifetimes/article/threads={t}", 0.2, 400, "article 1: the same with the law that was described",
           law="article", slots="2^14", steps=300000 // t, threads=t, idle_ms=10) for t in _TEAMS),
    *(_run(f"lifetimes/{touch}", 0.25, 300, "article 1: the lighter touching modes",
           slots="2^20", steps=2000000, idle_ms=10, touch=touch) for touch in ("single", "none")),
    # Article 2: alloc-test with one thread, and the mixtures of its project. Espresso is among the programs of `apps`.
    _run("lifetimes/alloc-test", 0.4, 40, "article 2: alloc-test, one thread",
         exponent=10, slots="2^18", steps=2000000),
    *(_run(f"larson/{name}", 0.3, 64, f"article 2: random mixed, 400 live blocks of {low} to {high} bytes",
           threads=1, generations=1, steps=steps, blocks=400, low=low, high=high)
      for name, low, high, steps in (("small", 16, 2048, 3000000), ("medium", 4096, 32768, 600000),
                                     ("mixed", 16, 32768, 600000))),
    *(_run(f"cross/remote-{remote}", 0.3, 200, f"article 2: {remote} % of the blocks freed by another thread",
           threads=4, remote=remote, blocks=1000000, low=16, high=2048) for remote in (0, 50, 90)),
    # Article 3: micro table, composite, threads, larson-like and cfrac-like; its programs are in `apps`.
    _run("micro/published", 0.7, 40, "article 3: latency table, calloc, realloc, threads, weighted composite",
         rounds=400000),
    _run("larson/like", 0.3, 16, "article 3: larson-like, 1000 slots of 8 to 512 bytes",
         threads=1, generations=4, steps=1000000),
    _run("cfrac-like/published", 0.45, 16, "article 3: cfrac-like, half of its 5,000,000 calls", steps=2500000),
    # Article 4: ring and batches. A tenth of the published slots: all 100,000 need 15 GiB with 128 threads.
    _run("ring/published", 1.6, 2000, "article 4: thread scaling as it was run",
         form="published", threads="1..128", slots=10000, steps=25000),
    _run("ring/published-full", 0.6, 1500, "article 4: all 100,000 slots, 8 threads", form="published", threads=8),
    _run("ring/corrected", 1.2, 1500, "article 4: thread scaling with frees",
         threads="1..128", steps=6000, sample_every=1),
    _run("batch/mixed", 0.3, 16, "article 4: batches of 128 mixed blocks"),
    _run("batch/fixed", 0.2, 16, "article 4: batches of 128 blocks of 64 bytes", law="fixed"),
    _run("batch/threads", 0.4, 64, "article 4: batches by threads", threads="1,2,4,8,16", rounds=3000),
)  # fmt: skip
