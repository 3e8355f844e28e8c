"""What load generators print is read as requests per second and latencies in seconds."""

from pathlib import Path

import pytest

from freestone_lab.measure import load

OUTPUTS = Path(__file__).parents[1] / "data" / "loads"


@pytest.mark.parametrize(
    ("file", "generator", "figures"),
    [
        ("wrk", "wrk", {"requests": 1123.95, "p50": 0.00296, "p99": 0.01289}),
        ("ab", "ab", {"requests": 1281.98, "p50": 0.002, "p99": 0.011}),
        ("hey", "hey", {"requests": 12034.5512, "p50": 0.0039, "p99": 0.0142}),
        ("pgbench", "pgbench", {"requests": 850.363012, "latency": 0.004704}),
        (
            "memtier_benchmark",
            "memtier_benchmark",
            {"requests": 13234.6, "p50": 0.001519, "p99": 0.004079, "p999": 0.008127},
        ),
    ],
)
def test_each_generator_is_recognised_by_what_it_prints(file: str, generator: str, figures: dict[str, float]) -> None:
    found, read = load.read((OUTPUTS / f"{file}.txt").read_text())
    assert found == generator
    assert read == pytest.approx(figures)


@pytest.mark.parametrize("form", ["", "-csv", "-quiet"])
def test_the_tests_of_redis_benchmark_count_the_same(form: str) -> None:
    generator, figures = load.read((OUTPUTS / f"redis-benchmark{form}.txt").read_text())
    assert generator == "redis-benchmark"
    assert 50_000 < figures["requests"] < 500_000
    assert 0.0005 < figures["p50"] < 0.01


def test_the_figures_of_two_tests_are_their_geometric_mean() -> None:
    text = "SET: 100.00 requests per second, p50=1.000 msec\nGET: 400.00 requests per second, p50=4.000 msec\n"
    assert load.read(text)[1] == pytest.approx({"requests": 200.0, "p50": 0.002})


@pytest.mark.parametrize("text", ["", "all fine\n", "Requests/sec: soon", "Type  Ops/sec\n", "tps is good\n"])
def test_other_output_has_no_figures(text: str) -> None:
    assert load.read(text) == ("", {})
