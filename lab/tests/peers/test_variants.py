"""Allocators with options: which variants a setting makes, and which settings are refused."""

import pytest

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.peers import variants

CHOSEN = [Peer("glibc", None, "libc"), Peer("freestone", "/f.so"), Peer("jemalloc", "/j.so")]


def test_each_value_is_an_allocator_behind_the_one_that_it_is_a_variant_of() -> None:
    made = variants.with_options(CHOSEN, ["dirty_bytes=0,8m", "jemalloc:narenas=1"])
    assert [p.name for p in made] == [
        *("glibc", "freestone", "freestone dirty_bytes=0", "freestone dirty_bytes=8m", "jemalloc", "jemalloc narenas=1")
    ]
    assert dict(made[3].env) == {"FREESTONE_CONF": "dirty_bytes:8m"}
    assert dict(made[5].env) == {"MALLOC_CONF": "narenas:1"}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("dirty_byte=1", "libfreestone has no option 'dirty_byte'; did you mean 'dirty_bytes'?"),
        ("flag=1", "libfreestone has no option 'flag'; docs/TUNING.md lists them"),
        ("freestone:nosuch=1", "libfreestone has no option 'nosuch'; docs/TUNING.md lists them"),
        ("dirty_bytes", "expected OPTION=VALUE"),
        ("scudo:x=1", "'scudo' is not measured; expected one of glibc, freestone, jemalloc"),
    ],
)
def test_an_option_that_nobody_has_is_refused(option: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        variants.with_options(CHOSEN, [option])
    assert said in str(refused.value)


def test_a_value_that_the_library_refuses_is_not_measured_as_the_default() -> None:
    library = paths.build_dir() / "libfreestone.so"
    if not library.exists():
        pytest.skip("libfreestone.so is not built")
    own = Peer("freestone", str(library))
    assert len(variants.with_options([own], ["dirty_bytes=0,8m", "thp=off"])) == 4
    for option in ("dirty_bytes=0,lots", "thp=maybe", "cache_bytes=9m"):
        with pytest.raises(UserError, match=f"--option '{option}': option .* cannot be"):
            variants.with_options([own], [option])
