"""Faults that were found, and the tests that show the lab immune to each.

MISTAKES were made in published measurements of allocators, COMPLAINTS by newcomers to the lab. Below each stand the
tests by module; they stand beside what they test, and here where they have no better place.
"""

import ast
import io
import re
from functools import cache
from pathlib import Path

import pytest
import workload_tools as tools
from rich.console import Console

from freestone_lab.analysis import changes
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.report import terminal

MISTAKES = """
F1 a random state of 0 stays 0: every step takes one slot and 5 bytes
    workloads/test_laws: test_folded_slots, test_sizes_of_the_program
    workloads/test_workload_program: test_the_seed_decides_the_work
F2 columns of two allocators are glibc's, because their library was not found
    measure/test_proof: test_who_serves_is_proven_or_refused
    engine/test_experiment: test_a_bad_allocator_is_a_failure_and_never_a_figure,
        test_a_workload_served_by_another_library_is_not_loaded
F3 the clock's cost inside the latency, a debug build, blocks never touched
    workloads/test_workload_program: test_the_clocks_cost_is_measured_and_removed,
        test_a_call_of_known_length_is_reported_at_that_length, test_memory_that_was_touched_is_seen
    test_known_faults: test_the_workload_program_is_a_release_build
F4 an example whose option means something else
    docs/test_documents_check: test_what_documents_name_exists
F5 no free in the timed part, and the clean-up counted as speed
    workloads/test_workload_program: test_every_allocation_of_the_timed_part_has_its_free_there,
        test_the_published_ring_frees_nothing_in_its_timed_part, test_the_corrected_ring_frees_almost_all_it_allocates
F6 NULL answers make less work and so more speed
    workloads/test_workload_program: test_an_allocator_that_answers_null_ends_in_status_3,
        test_every_allocator_gives_the_same_checksum_and_amount_of_work
    engine/test_experiment: test_a_workload_that_counts_failures_has_no_figures
F7 one allocator called inline, the others through symbols
    engine/test_experiment: test_all_peers_run_the_same_program_and_differ_only_in_their_environment
F8 ten samples, and a p99.9 of them
    workloads/test_workload_program: test_a_deep_percentile_needs_a_million_samples
    engine/test_experiment: test_workload_figures_carry_their_sample_counts
F9 the program's law of sizes is not the article's
    workloads/test_laws: test_the_two_size_laws_are_told_apart, test_sizes_of_the_article
F10 threads that end, and blocks that other threads free, were never tried
    workloads/test_workload_program: test_larsons_blocks_cross_threads, test_changed_contents_end_in_status_3
    workloads/test_suites: test_the_full_suite_uses_every_workload_but_those_of_hardening
F11 a fixed duration measured, the baseline always first and cold, the network in between
    engine/test_experiment: test_every_peer_runs_once_per_round_and_the_order_changes,
        test_the_order_is_repeatable_from_its_seed
    test_known_faults: test_no_workload_is_given_a_duration
F12 a slow wrapper taken for a slow glibc
    peers/test_controls: test_passthrough_is_glibc_in_every_answer
F13 names that promise another program
    test_known_faults: test_what_is_only_like_another_program_says_so
    workloads/test_workload_program: test_larsons_blocks_cross_threads
F14 two workloads decide
    workloads/test_suites: test_the_full_suite_uses_every_workload_but_those_of_hardening
F15 security tests that cannot fail, or cannot pass; an allocator that does not start has passed all
    attacks/test_enumerated: test_an_allocator_without_checks_stops_no_second_free,
        test_an_allocator_that_dies_at_start_or_serves_nothing_gets_no_marks,
        test_no_twin_of_any_kind_fails_under_glibc, test_accusing_a_correct_program_is_a_false_alarm
F16 exit statuses ignored, the wrapper's memory taken for the program's
    workloads/test_workload_program: test_a_crash_is_no_measurement
    engine/test_experiment: test_the_exit_status_of_success_is_the_users
    measure/test_process: test_peak_memory_is_the_trees_not_the_wrappers
F17 set-up and clean-up in the time, the same seed in every thread
    workloads/test_laws: test_a_law_is_that_of_its_formula
    workloads/test_workload_program: test_the_void_source_is_subtracted_and_calls_no_allocator
    test_known_faults: test_what_comes_before_and_after_is_not_in_the_time
F18 memory of the wrapper only, and none after the free
    measure/test_process: test_peak_memory_is_the_trees_not_the_wrappers, test_memory_curve_rises_and_falls
"""
COMPLAINTS = """
a server is waited for until the limit
    commands/test_advise: test_a_program_that_never_ends_is_recognised
of a daemon the launcher is measured
    commands/test_advise: test_a_program_that_never_ends_is_recognised
state that is left behind makes every allocator fail
    commands/test_advise: test_a_program_that_leaves_state_behind_is_recognised
nothing compared, exit status 0
    commands/test_cli: test_compare_shows_a_failing_allocator_in_its_row
an output that cannot be written is a traceback after the run
    commands/test_advise: test_an_output_that_cannot_be_written_is_said_before_measuring
    core/test_outputs: test_a_place_that_cannot_be_written_is_said_and_replaced
a full disk is a traceback
    core/test_outputs: test_a_disk_that_fills_up_loses_nothing
being ended loses what was measured
    commands/test_advise: test_being_ended_leaves_what_was_measured
the baseline is called glibc where the program brings jemalloc
    commands/test_advise: test_the_baseline_is_named_rightly_where_a_program_brings_an_allocator
    measure/test_proof: test_an_allocator_that_the_program_brings_is_named
-63 % over six rounds is inconclusive
    analysis/test_decision: test_minus_63_per_cent_over_six_rounds_is_a_difference
memory of 1.41 after a few rounds is inconclusive
    analysis/test_decision: test_memory_of_141_per_cent_is_shown_after_five_rounds
memory is not in the verdict
    report/test_page: test_verdict_names_the_winner_of_both
a budget is overrun
    engine/test_budget: test_a_limit_is_kept_and_ends_in_an_answer
a budget ends in 48 lines without an answer
    engine/test_budget: test_a_limit_is_kept_and_ends_in_an_answer,
        test_nobody_is_left_out_before_all_had_a_look_and_who_was_is_named
inconclusive, and no way to go on
    engine/test_budget: test_going_on_gives_more_rounds_and_ending_ends
    report/test_card: test_enter_goes_on_and_anything_else_ends
    analysis/test_decision: test_what_more_would_settle_it_is_foretold
the default jobs are ones where allocators hardly matter
    workloads/test_tasks: test_the_default_jobs_are_a_server_a_heap_an_interpreter_a_database_and_a_compiler
tables are cut at 80 columns
    commands/test_advise: test_compare_leaves_its_results_where_the_user_is
    test_known_faults: test_the_tables_of_diff_fit_80_columns
results land in the clone
    core/test_outputs: test_results_lie_where_the_user_stands
an unknown name gets a list
    commands/test_advise: test_wrong_usage_is_one_line
suite apps: 0 experiments
    test_known_faults: test_a_suite_of_real_programs_says_why_it_is_empty
controls clutter the peers
    commands/test_advise: test_controls_are_not_listed_as_allocators
"""
ENTRY = re.compile(r"^(\S.*)\n((?: +.*\n)+)", re.MULTILINE)
MODULE = re.compile(r"^    (\S+): ((?:.|\n {8})*)", re.MULTILINE)
FAULTS = dict(ENTRY.findall(MISTAKES + COMPLAINTS))
TIME = re.compile(r"second|duration|time|-ms$|^idle$")


@cache
def functions_of(module: str) -> set[str]:
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_mistake_is_listed() -> None:
    assert [fault.split()[0] for fault, _ in ENTRY.findall(MISTAKES)] == [f"F{n}" for n in range(1, 19)]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_tests_of_a_fault_exist(fault: str) -> None:
    named = MODULE.findall(FAULTS[fault])
    assert named
    for module, functions in named:
        assert set(re.split(r",\s+", functions.strip())) <= functions_of(module)


def test_the_workload_program_is_a_release_build() -> None:
    cache = (tools.program().parent / "CMakeCache.txt").read_text()
    assert "CMAKE_BUILD_TYPE:STRING=Release" in cache.replace("UNINITIALIZED", "STRING")


def test_no_workload_is_given_a_duration() -> None:
    for name, workload in tools.described().items():
        timed = [p["name"] for p in workload["params"] if p.get("unit") in ("s", "ms") or TIME.search(p["name"])]
        assert {*timed} <= {"idle", "idle-ms", "rest", "sample-ms"}, f"{name}: its work is to be counted, not timed"


def test_what_is_only_like_another_program_says_so() -> None:
    assert any("not the program cfrac" in text for text in tools.small("cfrac-like").json["caveats"])
    assert "cfrac" not in tools.described()


def test_what_comes_before_and_after_is_not_in_the_time(tmp_path: Path) -> None:
    # 2^16 blocks are set up before the timed part and freed after it; every free takes 20 µs there: more than a second.
    slow = tools.library(tmp_path, FREE_NS=20_000)
    words = ["--slots=131072", "--steps=640", "--threads=1", "--void=no", "--idle-ms=0"]
    out = tools.run("lifetimes", *words, preload=slow)
    assert out.value("timed_cpu") < 0.25 * 65536 * 20e-6
    assert out.value("timed_frees") < 640


def test_a_suite_of_real_programs_says_why_it_is_empty() -> None:
    out = Console(width=80, file=io.StringIO(), record=True)
    terminal.show_suites(out, {"apps": ()}, {}, {"redis": False, "git": False})
    said = " ".join(out.export_text().split())
    assert "0 of 2 real programs are installed; `freestone setup --apps` installs more" in said


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
    assert max(map(len, text.splitlines())) <= 80 and "jemalloc-debian-package" in text and "-8.3 % … +9.0 %" in text
