"""The workload programs: what they report, that they fail when the allocator does, and that they time what they say."""

import itertools
import json
import math
import os
import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import workload_tools as tools

PEERS = {
    "jemalloc": "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
    "tcmalloc": "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
    "mimalloc": "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2",
    "tbbmalloc": "/usr/lib/x86_64-linux-gnu/libtbbmalloc_proxy.so.2",
}
# mimalloc 2.0 answers posix_memalign(256, 256) with an address that is not a multiple of 256: the workload says so.
KNOWN_FAULT = {("aligned", "mimalloc")}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("libraries")


def test_every_workload_is_tested() -> None:
    assert set(tools.SMALL) <= set(tools.WORKLOADS) == set(tools.described())


@pytest.mark.parametrize("workload", tools.WORKLOADS)
def test_a_run_reports_figures_with_samples_and_nothing_failed(workload: str) -> None:
    out = tools.small(workload)
    assert out.status == 0, out.stderr
    raw = out.json
    assert raw["schema"] == "freestone-workload/1"
    assert raw["workload"] == workload
    assert raw["failures"] == 0
    assert "libc.so" in raw["malloc_owner"]
    assert raw["figures"]["peak_rss"]["value"] > 0
    for name, figure in raw["figures"].items():
        assert math.isfinite(figure["value"]), name
        assert figure["samples"] >= 1, name
        assert figure["better"] in ("lower", "higher", "neither"), name
    if workload not in ("startup", "overhead", "reuse"):
        assert raw["figures"]["timed_allocations"]["value"] > 0
        assert raw["figures"]["timed_frees"]["value"] > 0
        assert int(raw["checksum"], 16) != 0


@pytest.mark.parametrize("workload", [w for w in tools.WORKLOADS if w != "startup"])
def test_every_allocator_gives_the_same_checksum_and_amount_of_work(workload: str) -> None:
    present = {name: path for name, path in PEERS.items() if Path(path).exists()}
    if not present:
        pytest.skip("no other allocator is installed")
    expected = tools.small(workload)
    for name, path in present.items():
        out = tools.small(workload, preload=path)
        assert Path(out.json["malloc_owner"]).resolve() == Path(path).resolve()
        assert out.json["checksum"] == expected.json["checksum"], name
        for figure in ("timed_allocations", "timed_frees"):
            if figure in expected.json["figures"]:
                assert out.value(figure) == expected.value(figure), (name, figure)
        if (workload, name) not in KNOWN_FAULT:
            assert (out.status, out.json["failures"]) == (0, 0), name


@pytest.mark.parametrize("words", [[w] for w in tools.WORKLOADS] + [["aligned", "--call=aligned_alloc"]], ids=" ".join)
def test_no_call_is_one_that_a_standard_lets_an_allocator_refuse(words: list[str], libraries: Path) -> None:
    out = tools.small(*words, preload=tools.library(libraries, STRICT=1))
    assert (out.status, out.json["failures"]) == (0, 0), out.stderr


@pytest.mark.parametrize("workload", ["lifetimes", "ring", "cross", "larson", "cfrac-like"])
def test_the_seed_decides_the_work(workload: str) -> None:
    first = tools.small(workload, "--seed=1").json["checksum"]
    assert first == tools.small(workload, "--seed=1").json["checksum"]
    assert first != tools.small(workload, "--seed=2").json["checksum"]


@pytest.mark.parametrize("after", [0, 150])
@pytest.mark.parametrize("workload", [w for w in tools.WORKLOADS if w != "startup"])
def test_an_allocator_that_answers_null_ends_in_status_3(workload: str, after: int, libraries: Path) -> None:
    out = tools.small(workload, preload=tools.library(libraries, NULL_AFTER=after))
    assert out.status == 3, out.stderr
    assert out.json["failures"] > 0
    assert out.json["caveats"]


# The control changes the block before the newest one: workloads that never hold two blocks from malloc cannot see it.
HOLDING_TWO = [w for w in tools.WORKLOADS if w not in ("startup", "pair", "false-sharing", "aligned", "realloc")]


@pytest.mark.parametrize("workload", HOLDING_TWO)
def test_changed_contents_end_in_status_3(workload: str, libraries: Path) -> None:
    out = tools.small(workload, preload=tools.library(libraries, CORRUPT=1))
    assert out.status == 3, out.stderr
    assert out.json["failure_kinds"]["corrupted"] > 0


def test_a_misaligned_answer_ends_in_status_3(libraries: Path) -> None:
    out = tools.small("aligned", preload=tools.library(libraries, MISALIGN=1))
    assert out.status == 3
    assert out.json["failure_kinds"]["misaligned"] > 0


@pytest.mark.parametrize("workload", ["throughput", "batch"])
def test_a_crash_is_no_measurement(workload: str, libraries: Path) -> None:
    out = tools.small(workload, preload=tools.library(libraries, CRASH_AFTER=150))
    assert out.status in (-11, 128 + 11)
    assert not out.json


TIMED = [w for w in tools.WORKLOADS if w not in ("startup", "overhead", "micro", "throughput", "latency", "reuse")]


@pytest.mark.parametrize("workload", TIMED)
def test_the_calls_reported_as_timed_are_timed(workload: str, libraries: Path) -> None:
    # Every call takes at least this much longer: a timed part that holds them all cannot be shorter than their sum.
    wait_ns = 20_000 if workload in ("large", "churn", "false-sharing", "realloc") else 1_000
    free = tools.small(workload, preload=tools.library(libraries, FREE_NS=wait_ns))
    malloc = tools.small(workload, preload=tools.library(libraries, MALLOC_NS=wait_ns))
    threads = free.json["params"].get("threads", 1)
    for out, figure in ((free, "timed_frees"), (malloc, "timed_allocations")):
        assert out.status == 0
        assert out.value("time") >= 0.99 * out.value(figure) * wait_ns * 1e-9 / threads, figure


WHOLE = ["throughput", "burst", "pair", "latency", "batch", "larson", "cfrac-like", "cross", "churn", "realloc"]
WHOLE += ["aligned", "large", "phases", "false-sharing", "rss", "calls", "idle-threads"]


@pytest.mark.parametrize("workload", WHOLE)
def test_every_allocation_of_the_timed_part_has_its_free_there(workload: str) -> None:
    out = tools.small(workload)
    assert out.value("timed_frees") == out.value("timed_allocations") > 0


def test_the_published_ring_frees_nothing_in_its_timed_part(libraries: Path) -> None:
    words = ["ring", "--form=published", "--slots=5000", "--steps=12500", "--idle-ms=0"]
    out = tools.run(*words, preload=tools.library(libraries, FREE_NS=100_000))
    assert out.value("timed_frees") == 0
    assert out.value("timed_allocations") == 5000
    assert out.value("timed_cpu") < 5000 * 100_000e-9
    assert out.value("published_score") == pytest.approx(2 * out.value("calls_per_second"))
    assert any("0 of 5000 frees happen in the timed part" in text for text in out.json["caveats"])


def test_the_corrected_ring_frees_almost_all_it_allocates() -> None:
    out = tools.run("ring", "--steps=50000", "--idle-ms=0")
    assert out.value("timed_allocations") == 50000
    assert out.value("timed_frees") > 0.95 * 50000


@pytest.mark.parametrize("workload", ["batch", "pair", "lifetimes", "cross", "ring"])
def test_only_the_measured_calls_reach_the_allocator(workload: str, libraries: Path, tmp_path: Path) -> None:
    counting = tools.library(libraries, COUNT=1)

    def counts(*words: str) -> tuple[int, int]:
        target = tmp_path / "counts"
        out = tools.run(*words, preload=counting, COUNT_TO=str(target))
        assert out.status == 0
        mallocs, frees = target.read_text().split()
        return int(mallocs), int(frees)

    sizes = {
        "batch": ["--rounds=100"], "pair": ["--rounds=5000", "--size=64"], "cross": ["--blocks=5000"],
        "lifetimes": ["--steps=6400", "--slots=1024"], "ring": ["--steps=5000"],
    }  # fmt: skip
    threads = 2 if workload == "cross" else 1
    words = [workload, *sizes[workload], f"--threads={threads}", "--idle-ms=0"]
    reported = tools.run(*words)
    mallocs, frees = counts(*words)
    empty_mallocs, _ = counts("list")
    made = mallocs - empty_mallocs
    timed = reported.value("timed_allocations")
    untimed = {"pair": 1000, "lifetimes": 0.6 * 1024}.get(workload, 0)  # warm-up, set-up
    assert timed <= made <= timed + untimed + threads  # a thread may cost one call of the C library's
    assert frees >= reported.value("timed_frees")


LATENCY = ("latency", "--size=64", "--samples=20000", "--idle-ms=0")


def test_the_clocks_cost_is_measured_and_removed(libraries: Path) -> None:
    # Compared within one process, so that a slow moment of the machine is in both sides of each comparison.
    out = tools.run(*LATENCY, preload=tools.library(libraries, TRIVIAL=1))
    cost = out.value("clock_cost")
    assert cost > 0
    assert out.value("empty_p50") < cost / 2
    assert out.value("malloc_p50") < cost  # left in, the cost would be the least that any call can take
    assert out.value("free_p50") < cost


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the delay is counted in ticks of the x86 counter")
def test_a_call_of_known_length_is_reported_at_that_length(libraries: Path) -> None:
    # Ticks against ticks: no clock of the machine's, and half of the calls would have to be interrupted to change it.
    ticks = 40_000
    out = tools.run(*LATENCY, preload=tools.library(libraries, MALLOC_TICKS=ticks))
    assert out.value("malloc_p50") / out.value("tick") == pytest.approx(ticks, rel=0.05)
    assert out.value("free_p50") / out.value("tick") < ticks / 10
    assert out.json["figures"]["malloc_p50"]["samples"] == 20000


def test_the_length_of_a_tick_does_not_depend_on_what_else_runs() -> None:
    def tick(_: int) -> float:
        return tools.run("latency", "--size=64", "--samples=1000", "--idle-ms=0").value("tick")

    with ThreadPoolExecutor(4 * (os.cpu_count() or 1)) as crowd:
        ticks = list(crowd.map(tick, range(40)))
    assert max(ticks) == pytest.approx(min(ticks), rel=0.01)


def test_a_deep_percentile_needs_a_million_samples() -> None:
    few = tools.run("latency", "--samples=200000", "--idle-ms=0")
    assert "malloc_p99_9" in few.json["figures"]
    assert "malloc_p99_99" not in few.json["figures"]
    many = tools.run("latency", "--samples=1000000", "--idle-ms=0")
    assert many.json["figures"]["malloc_p99_99"]["samples"] == 1000000
    curve = many.json["series"]["malloc_ccdf"]
    assert all(b[0] > a[0] and b[1] < a[1] for a, b in itertools.pairwise(curve))


@pytest.mark.parametrize("top", [200, 5000, 10**7])
def test_percentiles_are_those_of_the_samples(top: int, tmp_path: Path) -> None:
    values = np.random.default_rng(7).lognormal(math.log(top / 20), 1.0, 20000).astype(np.int64)
    shares = [0.01, 0.5, 0.9, 0.99, 0.999, 1.0]

    done = subprocess.run(
        [str(tools.program()), "percentiles", *map(str, shares)],
        input="\n".join(map(str, values)),
        capture_output=True,
        text=True,
        check=True,
    )
    raw = json.loads(done.stdout)
    assert raw["count"] == len(values)
    expected = np.quantile(values, shares, method="inverted_cdf")
    assert raw["percentiles"] == pytest.approx(expected.tolist(), rel=1 / 128)
    assert raw["mean"] == pytest.approx(values.mean(), rel=1 / 256)


def test_the_void_source_is_subtracted_and_calls_no_allocator(libraries: Path, tmp_path: Path) -> None:
    def measured(void: str) -> tuple[tools.Outcome, str]:
        target = tmp_path / void
        counting = tools.library(libraries, COUNT=1)
        words = ["--threads=1", f"--void={void}"]
        return tools.small("lifetimes", *words, preload=counting, COUNT_TO=str(target)), target.read_text()

    (out, calls), (without, same_calls) = measured("yes"), measured("no")
    assert calls == same_calls
    assert out.value("void_pair_ns") > 0
    assert out.value("net_pair_ns") == pytest.approx(out.value("pair_ns") - out.value("void_pair_ns"), rel=1e-6)
    assert "net_pair_ns" not in without.json["figures"]
    assert without.json["checksum"] == out.json["checksum"]


def test_larsons_blocks_cross_threads() -> None:
    out = tools.small("larson", "--threads=3")
    # Every array of every generation but the first was filled by a thread that has ended, or by the main thread.
    assert out.value("crossed_frees") > 0.9 * 4 * 3 * 200
    assert out.value("threads_ended") == 12


def test_points_of_a_list_are_fresh_processes_with_the_same_result_as_alone() -> None:
    swept = tools.run("burst", "--size=32,64", "--rounds=3", "--blocks=100")
    alone = [tools.run("burst", f"--size={s}", "--rounds=3", "--blocks=100") for s in (32, 64)]
    total = sum(int(out.json["checksum"], 16) for out in alone) % 2**64
    assert int(swept.json["checksum"], 16) == total
    points = [swept.value("pair_ns_size_32"), swept.value("pair_ns_size_64")]
    assert swept.value("pair_ns") == pytest.approx(math.sqrt(points[0] * points[1]))
    assert swept.value("timed_frees") == sum(out.value("timed_frees") for out in alone)


def test_memory_that_was_touched_is_seen() -> None:
    out = tools.run("phases", "--peak-mib=32", "--idle=10", "--idle-ms=0")
    assert out.value("live_peak") == pytest.approx(32 * 1024, rel=0.01)
    assert 1.0 <= out.value("rss_peak") / out.value("live_peak") < 2.5
    assert out.value("peak_rss") >= out.value("rss_peak") + out.value("own_tables") * 0.9


def test_usable_size_is_not_asked_of_a_library_that_lacks_it(libraries: Path) -> None:
    out = tools.small("overhead", preload=tools.library(libraries))
    assert out.status == 0
    assert "usable_overhead_small" not in out.json["figures"]
    assert "rss_overhead_small" in out.json["figures"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "no workload"),
        (["burts"], "burts"),
        (["pair", "--size=abc"], "--size=abc"),
        (["pair", "--size=0"], "from 1 to"),
        (["pair", "--size"], "a value is missing"),
        (["pair", "--colour=1"], "--colour"),
        (["pair", "64"], "'64'"),
        (["pair", "--touch=some"], "none|single|ends"),
        (["ring", "--threads=1,2", "--steps=10"], "--steps=10"),
        (["burst", "--size=1,2", "--threads=1,2"], "only one parameter"),
        (["larson", "--low=9", "--high=8"], "--low=9"),
        (["aligned", "--high=100"], "power of two"),
        (["lifetimes", "--slots=64", "--threads=2"], "--slots=64"),
        (["list", "--yaml"], "--yaml"),
    ],
)
def test_wrong_usage_gets_one_line_and_status_2(words: list[str], named: str) -> None:
    out = tools.run(*words)
    assert out.status == 2
    assert len(out.stderr.strip().splitlines()) == 1
    assert out.stderr.startswith("freestone-workload")
    assert named in out.stderr


def test_help_names_every_parameter_with_its_default() -> None:
    for name, workload in tools.described().items():
        done = subprocess.run([str(tools.program()), name, "--help"], capture_output=True, text=True, check=True)
        for param in workload["params"]:
            assert f"--{param['name']}={param['default']}" in done.stdout, name
