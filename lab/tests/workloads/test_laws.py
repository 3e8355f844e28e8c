"""Every generator against the formula of its law: chi-square over single values or groups of at least ten expected."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import workload_tools as tools
from numpy.typing import NDArray
from scipy import stats

LEAST_P = 1e-3  # the seeds are fixed: a law either passes always or never
Array = NDArray[np.float64]


@cache
def drawn() -> list[dict[str, Any]]:
    laws: list[dict[str, Any]] = tools.run("laws", "--json").json["laws"]
    return laws


def law(name: str, **parameter: int) -> tuple[Array, int]:
    """Observed counts by value, and the number of draws."""
    found = next(x for x in drawn() if x["law"] == name and all(x[k] == v for k, v in parameter.items()))
    assert found["outside"] == 0
    counts = np.zeros(max(v for v, _ in found["counts"]) + 1)
    for value, count in found["counts"]:
        counts[value] = count
    assert counts.sum() == found["draws"]
    return counts, found["draws"]


def p_value(observed: Array, probability: Array) -> float:
    """Chi-square, neighbours joined until each group expects at least ten."""
    assert probability.sum() == pytest.approx(1.0)
    size = max(len(observed), len(probability))
    seen = np.pad(observed, (0, size - len(observed)))
    expected = np.pad(probability, (0, size - len(probability))) * observed.sum()
    assert seen[expected == 0].sum() == 0, "a value that the law never gives was drawn"
    groups = [[0.0, 0.0]]
    for s, e in zip(seen, expected, strict=True):
        if groups[-1][1] >= 10:
            groups.append([0.0, 0.0])
        groups[-1][0] += s
        groups[-1][1] += e
    if groups[-1][1] < 10:
        rest = groups.pop()
        groups[-1] = [a + b for a, b in zip(groups[-1], rest, strict=True)]
    f_obs, f_exp = np.array(groups).T
    return float(stats.chisquare(f_obs, f_exp * f_obs.sum() / f_exp.sum()).pvalue)


def article(exponent: int) -> Array:
    """P(s) = ln((s+1)/s) / ln((2^E+1)/5)."""
    sizes = np.arange(2**exponent + 1, dtype=float)
    p = np.zeros_like(sizes)
    p[5:] = np.log1p(1 / sizes[5:]) / np.log((2**exponent + 1) / 5)
    return p


def program(exponent: int) -> Array:
    """Octave k has 2^-(k+1), the last one the rest; uniform inside 2^(k+2)+1 ... 2^(k+3)."""
    p = np.zeros(2**exponent + 1)
    last = exponent - 3
    for k in range(last + 1):
        share = 2.0 ** -(k + 1) if k < last else 2.0**-k
        p[2 ** (k + 2) + 1 : 2 ** (k + 3) + 1] = share / 2 ** (k + 2)
    return p


def uniform(low: int, high: int) -> Array:
    p = np.zeros(high + 1)
    p[low:] = 1 / (high - low + 1)
    return p


def mixture(*parts: tuple[float, Array]) -> Array:
    out = np.zeros(max(len(p) for _, p in parts))
    for share, p in parts:
        out[: len(p)] += share * p
    return out


@pytest.mark.parametrize("exponent", [10, 16])
def test_sizes_of_the_article(exponent: int) -> None:
    observed, _ = law("article", exponent=exponent)
    assert p_value(observed, article(exponent)) > LEAST_P
    assert observed[30] / observed[60] == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("exponent", [10, 16])
def test_sizes_of_the_program(exponent: int) -> None:
    observed, _ = law("program", exponent=exponent)
    assert p_value(observed, program(exponent)) > LEAST_P
    assert observed[30] / observed[60] == pytest.approx(4, rel=0.05)
    # An octave is half as likely as the one below, and twice as wide: the density falls as 1/size^2.
    assert observed[17:33].sum() / observed[33:65].sum() == pytest.approx(2, rel=0.02)


def test_the_two_size_laws_are_told_apart() -> None:
    observed, _ = law("program", exponent=16)
    assert p_value(np.pad(observed, (0, 1)), mixture((1 - 1e-9, article(16)), (1e-9, uniform(0, 65536)))) < 1e-9


@pytest.mark.parametrize("slots", [1000, 2**14])
def test_folded_slots(slots: int) -> None:
    share = stats.binom(6, 0.2).pmf(np.arange(7))
    observed, _ = law("folded-segments", slots=slots)
    assert p_value(observed, share) > LEAST_P
    # Segment i covers the share P[6-i] of the slots, at least one; inside it all slots are alike.
    edges = np.zeros(8, dtype=int)
    for i in range(7):
        edges[i + 1] = max(int(np.floor(share[::-1][: i + 1].sum() * slots + 0.5)), edges[i] + 1)
    edges[7] = slots
    widths = np.diff(edges)
    expected = np.concatenate([np.full(widths[i], share[i] / widths[i]) for i in range(7)])
    by_slot, _ = law("folded-slots", slots=slots)
    assert p_value(by_slot, expected) > LEAST_P
    ranked = np.sort(by_slot)[::-1].cumsum() / by_slot.sum()
    assert ranked[int(0.2 * slots)] > 0.8


def log_uniform() -> Array:
    sizes = np.arange(65537, dtype=float)
    p = np.zeros(65537)
    p[16:] = np.log1p(1 / sizes[16:]) / np.log(65537 / 16)
    return p


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bands", mixture((0.6, uniform(16, 256)), (0.3, uniform(512, 2048)), (0.1, uniform(4096, 32768)))),
        ("countdown", uniform(50, 2000)),
        ("log-uniform", log_uniform()),
        ("uniform", uniform(0, 999)),
        ("unit", uniform(0, 999)),
        ("two-streams", uniform(0, 255)),
    ],
)
def test_a_law_is_that_of_its_formula(name: str, expected: Array) -> None:
    assert p_value(law(name)[0], expected) > LEAST_P


def test_mixture_of_cfrac_like() -> None:
    observed, draws = law("cfrac")
    assert observed[256] / draws == pytest.approx(0.2, rel=0.01)  # a free carries no size
    for kind, share, low, high in ((0, 0.4, 16, 128), (2, 0.2, 16, 80), (3, 0.2, 32, 128)):
        part = np.pad(observed, (0, 1024 - len(observed)))[kind * 256 : kind * 256 + 256]
        assert part.sum() / draws == pytest.approx(share, rel=0.01)
        assert p_value(part[: high + 1], uniform(low, high)) > LEAST_P
