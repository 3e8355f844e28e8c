"""The ABI matrix: known truths of glibc come out, and a false statistic would be seen."""

from __future__ import annotations

import io
from pathlib import Path

import peers_tools
import pytest
from rich.console import Console

from freestone_lab.peers import abi_probe, discover
from freestone_lab.report import terminal as render_text


@pytest.fixture(scope="module")
def glibc() -> abi_probe.PeerAnswers:
    return abi_probe.ask(discover.find("glibc"))


def test_every_question_is_answered_by_glibc(glibc: abi_probe.PeerAnswers) -> None:
    assert glibc.failures == {}
    assert set(glibc.answers) == set(abi_probe.QUESTIONS)


def test_glibc_names_are_served_by_libc(glibc: abi_probe.PeerAnswers) -> None:
    for name in ("malloc", "free", "malloc_info", "mallinfo2", "posix_memalign"):
        assert Path(glibc.owner(name)).name == "libc.so.6"
    assert Path(glibc.owner("_Znwm")).name.startswith("libstdc++")
    assert glibc.owner("mallctl") == ""


def test_glibc_rules_are_those_of_its_manual(glibc: abi_probe.PeerAnswers) -> None:
    assert glibc.answers["zero"] == {"malloc_0_unique": True, "realloc_to_0_not_null": False}
    assert glibc.answers["alignment"]["malloc_1_to_7"] == 16
    assert glibc.answers["alignment"]["posix_memalign_up_to"] == 1 << 20
    assert glibc.answers["usable"] == {"of_1": 24, "of_100": 104}
    assert abi_probe.refusals_broken(glibc) == {}


def test_glibc_statistics_are_found_true(glibc: abi_probe.PeerAnswers) -> None:
    for name in ("mallinfo", "mallinfo2", "malloc_stats", "malloc_info", "malloc_trim"):
        assert abi_probe.statistics_truth(glibc, name) == "true", name


LYING = (
    peers_tools.FORWARDING
    + """
#include <malloc.h>
#include <stdio.h>
struct mallinfo2 mallinfo2(void) { struct mallinfo2 m = {0}; return m; }
struct mallinfo mallinfo(void) { struct mallinfo m = {0}; m.uordblks = 77; return m; }
void malloc_stats(void) { static int n; fprintf(stderr, "in use %d bytes\\n", n += 5); }
int malloc_info(int o, FILE *f) { fprintf(f, "<malloc size=\\"123\\"/>\\n"); return 0; }
int malloc_trim(size_t k) { return 1; }
int mallopt(int a, int b) { return 0; }
"""
)


def asked(folder: Path, source: str, *questions: str) -> abi_probe.PeerAnswers:
    """The answers of a library made from this source."""
    library = peers_tools.build_library(folder, "subject", source)
    return abi_probe.ask(discover.find(f"subject={library}"), ("owners", *questions))


def test_false_statistics_are_told_apart(tmp_path: Path) -> None:
    found = asked(tmp_path, LYING, *abi_probe.STATISTICS)
    assert {name: abi_probe.statistics_truth(found, name) for name in abi_probe.STATISTICS} == {
        "mallinfo2": "zero", "mallinfo": "wrong", "malloc_stats": "wrong", "malloc_info": "unmoved",
        "malloc_trim": "keeps", "mallopt": "refuses",
    }  # fmt: skip


def test_a_name_that_the_peer_lacks_is_called_glibcs(tmp_path: Path) -> None:
    found = asked(tmp_path, LYING[: LYING.index("struct mallinfo2")], "mallinfo2")
    assert abi_probe.statistics_truth(found, "mallinfo2") == "glibc's"
    assert "mallinfo2" in abi_probe.matrix(found)["not its own (glibc's)"]


def test_a_crash_in_one_question_leaves_the_others(tmp_path: Path) -> None:
    aborting = "{ if (a > 99999999) __builtin_abort(); return __libc_calloc(a, b); }"
    source = LYING.replace("{ return __libc_calloc(a, b); }", aborting)
    found = asked(tmp_path, source, "zero", "calloc_overflow", "malloc_huge")
    assert found.failures == {"calloc_overflow": "SIGABRT"}
    assert found.answers["zero"]["malloc_0_unique"] is True
    assert abi_probe.refusals_broken(found) == {"calloc_overflow": "SIGABRT"}


def test_figures_of_a_report_are_read_with_their_units() -> None:
    text = 'in use:   12 KiB of 3.5 MiB\n<sizes size="10" count="3"/>\n<sizes size="20" count="2"/>\nx86_64 build'
    found = abi_probe.numbers_by_label(text)
    assert found["in use: # of #|0|1"] == 12 * 1024
    assert found["in use: # of #|1|1"] == 3.5 * 2**20
    assert found["sum of size times count"] == 70
    assert not any(label.startswith("x") for label in found)


@pytest.mark.parametrize(("terminal", "width"), [(False, 40), (True, 40), (True, 200)])
def test_no_cell_of_a_table_is_broken_however_narrow_the_output(terminal: bool, width: int) -> None:
    rows = [("glibc", "a whole page [sic]", "/usr/lib/somewhere/libc.so"), ("other", "", "/opt/quite/far/away/lib.so")]
    out = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    render_text.show_grid(out, ["allocator", "what it says", "path"], rows, "Rules")
    text = out.file.getvalue()  # type: ignore[attr-defined]
    for cell in ("Rules", "what it says", *rows[0], *rows[1]):
        assert cell in text
    assert len(text.splitlines()) == (6 if terminal and width == 40 else 4)
