"""What a newcomer complained of, and the tests that keep it cured."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest
from rich.console import Console

from freestone_lab.analysis import changes
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.report import terminal

COMPLAINTS = {
    "a server is waited for until the limit": ["commands/test_advise::test_a_program_that_never_ends_is_recognised"],
    "of a daemon the launcher is measured": ["commands/test_advise::test_a_program_that_never_ends_is_recognised"],
    "state that is left behind makes every allocator fail": [
        "commands/test_advise::test_a_program_that_leaves_state_behind_is_recognised",
    ],
    "nothing compared, exit status 0": ["commands/test_advise::test_nothing_to_compare_is_an_exit_status"],
    "an output that cannot be written is a traceback after the run": [
        "commands/test_advise::test_an_output_that_cannot_be_written_is_said_before_measuring",
        "core/test_outputs::test_a_place_that_cannot_be_written_is_said_and_replaced",
    ],
    "a full disk is a traceback": ["core/test_outputs::test_a_disk_that_fills_up_loses_nothing"],
    "being ended loses what was measured": ["commands/test_advise::test_being_ended_leaves_what_was_measured"],
    "the baseline is called glibc where the program brings jemalloc": [
        "commands/test_advise::test_the_baseline_is_named_rightly_where_a_program_brings_an_allocator",
        "measure/test_proof::test_an_allocator_that_the_program_brings_is_named",
    ],
    "-63 % over six rounds is inconclusive": [
        "analysis/test_decision::test_minus_63_per_cent_over_six_rounds_is_a_difference",
    ],
    "memory of 1.41 after a few rounds is inconclusive": [
        "analysis/test_decision::test_memory_of_141_per_cent_is_shown_after_five_rounds",
    ],
    "memory is not in the verdict": ["report/test_page::test_verdict_names_the_winner_of_both"],
    "a budget is overrun": ["engine/test_budget::test_a_limit_is_kept_and_ends_in_an_answer"],
    "a budget ends in 48 lines without an answer": [
        "engine/test_budget::test_a_limit_is_kept_and_ends_in_an_answer",
        "engine/test_budget::test_nobody_is_left_out_before_all_had_a_look_and_who_was_is_named",
    ],
    "inconclusive, and no way to go on": [
        "engine/test_budget::test_going_on_gives_more_rounds_and_ending_ends",
        "report/test_card::test_enter_goes_on_and_anything_else_ends",
        "analysis/test_decision::test_what_more_would_settle_it_is_foretold",
    ],
    "the default jobs are ones where allocators hardly matter": [
        "workloads/test_tasks::test_the_default_jobs_are_a_server_a_heap_an_interpreter_a_database_and_a_compiler",
    ],
    "tables are cut at 80 columns": [
        "commands/test_advise::test_compare_leaves_its_results_where_the_user_is",
        "commands/test_complaints::test_the_tables_of_diff_fit_80_columns",
    ],
    "results land in the clone": ["core/test_outputs::test_results_lie_where_the_user_stands"],
    "an unknown name gets a list": ["commands/test_advise::test_wrong_usage_is_one_line"],
    "suite apps: 0 experiments": ["commands/test_complaints::test_a_suite_of_real_programs_says_why_it_is_empty"],
    "controls clutter the peers": ["commands/test_advise::test_controls_are_not_listed_as_allocators"],
}


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_the_tests_of_a_complaint_exist(complaint: str) -> None:
    for name in COMPLAINTS[complaint]:
        module, _, function = name.partition("::")
        tree = ast.parse((Path(__file__).parents[1] / f"{module}.py").read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_a_suite_of_real_programs_says_why_it_is_empty() -> None:
    out = Console(width=80, file=io.StringIO(), record=True)
    terminal.show_suites(out, {"apps": ()}, {}, {"redis": False, "git": False})
    assert "0 of 2 real programs are installed; `freestone setup --apps` installs more" in " ".join(
        out.export_text().split()
    )


def test_the_tables_of_diff_fit_80_columns() -> None:
    specs = {"wall": FigureSpec("s"), "rss": FigureSpec("KiB")}
    samples = [
        Sample(peer, n, "ok", figures={"wall": 1 + n / 100, "rss": 30_000 + n})
        for peer in ("glibc", "glibc again", "jemalloc-debian-package")
        for n in range(1, 8)
    ]
    peers = [Peer("glibc", None, "libc"), Peer("jemalloc-debian-package", "/p.so")]
    result = Result("", [], 0, {}, peers, [Experiment("a-long-experiment", "w", specs=specs, samples=samples)])
    out = Console(width=80, file=io.StringIO(), record=True, force_terminal=True)
    terminal.show_changes(out, changes.compare(result, result), changes.Objections([], []))
    text = out.export_text()
    assert max(map(len, text.splitlines())) <= 80 and "jemalloc-debian-package" in text and "-8.8 % … +9.6 %" in text
