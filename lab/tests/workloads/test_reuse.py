"""The figures of `reuse` under three allocators whose answers are known: glibc, which hands out again what was freed
last and lays blocks side by side; one that never frees; and the hardened library."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest
import workload_tools as tools
from peers_tools import compiled

from freestone_lab.core import paths

CAP = 700
HARDENED = paths.build_dir() / "libfreestone-hardened.so"
SMALL = [f"{how}_{size}" for how in ("alone", "beside", "rested", "ended") for size in (24, 500, 4000)]
LARGE = [f"alone_{size}" for size in (200_000, 900_000, 3_500_000)]
Measure = Callable[..., tools.Outcome]


@pytest.fixture(scope="module")
def null(built: Path) -> Path:
    return compiled(built / "null.so", paths.root() / "lab/peers/controls/null.c", "-O2")


@pytest.fixture(scope="module")
def measure() -> Measure:
    @cache
    def run(part: str, preload: Path | None = None, rounds: int = 4) -> tools.Outcome:
        if preload == HARDENED and not HARDENED.exists():
            pytest.skip("the hardened library is not built")
        words = [f"--part={part}", f"--rounds={rounds}", f"--cap={CAP}", "--rest=1", "--idle-ms=0"]
        out = tools.run("reuse", *words, preload=preload)
        assert out.status == 0, out.stderr
        return out

    return run


def values(out: tools.Outcome, names: Iterable[str]) -> dict[str, float]:
    return {name: out.value(name) for name in names}


@pytest.mark.parametrize(("part", "stems"), [("small", SMALL), ("large", LARGE), ("huge", ["alone_48000000"])])
def test_an_address_returns_at_once_under_glibc_and_never_without_a_free(
    part: str, stems: list[str], measure: Measure, null: Path
) -> None:
    names = [f"{stem}_{which}" for stem in stems for which in ("least", "median")]
    soon, never = values(measure(part), names), values(measure(part, null), names)
    assert {name: n for name, n in soon.items() if not 1 <= n <= 8} == {}
    assert never == dict.fromkeys(names, CAP + 1)


@pytest.mark.parametrize(("part", "stems"), [("small", SMALL), ("large", LARGE), ("huge", ["alone_48000000"])])
def test_an_address_returns_late_under_the_hardened_library(part: str, stems: list[str], measure: Measure) -> None:
    out = measure(part, HARDENED)
    least = values(out, (f"{stem}_least" for stem in stems))
    early = {name: n for name, n in least.items() if n <= 400}
    # Of the larger small blocks fewer fit the quarantine.
    assert set(early) <= {"alone_4000_least", "beside_4000_least"} and all(n > 32 for n in early.values())
    assert all(out.value(f"{stem}_median") >= out.value(f"{stem}_least") for stem in stems)


def test_the_next_block_is_guessed_where_blocks_lie_side_by_side(measure: Measure) -> None:
    names = [f"guessed_{size}" for size in (24, 500, 4000, 100_000)]
    assert min(values(measure("layout"), names).values()) > 90
    assert 0 < max(values(measure("layout", HARDENED), names).values()) < 40


def test_a_freed_address_lies_inside_a_block_of_another_size_where_sizes_share_memory(measure: Measure) -> None:
    names = ["crossed_1000_2000", "crossed_100000_200000"]
    assert min(values(measure("layout"), names).values()) > 50
    assert values(measure("layout", HARDENED), names) == dict.fromkeys(names, 0)


@pytest.mark.skipif(
    Path("/proc/sys/kernel/randomize_va_space").read_text().strip() != "2", reason="the kernel draws no addresses"
)
def test_distances_are_counted_over_starts(measure: Measure) -> None:
    found, hardened = (measure("distances", library, 16) for library in (None, HARDENED))
    assert found.value("small_from_large") == 1  # both lie in the heap that grows by sbrk
    assert found.value("huge_from_code") < 16 and found.value("small_from_code") > 8
    assert all(hardened.value(name) > 8 for name in ("small_from_code", "huge_from_code", "small_from_large"))
