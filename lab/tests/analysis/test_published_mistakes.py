"""The mistakes found in published measurements of allocators, and the tests that show the lab immune to each.

The table is the index; the tests stand beside what they test, and here where they have no better place.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import workload_tools as tools

MISTAKES: dict[str, tuple[str, tuple[str, ...]]] = {
    "F1": (
        "a random state of 0 stays 0: every step takes one slot and 5 bytes",
        (
            "workloads/test_laws::test_folded_slots",
            "workloads/test_laws::test_sizes_of_the_program",
            "workloads/test_workload_program::test_the_seed_decides_the_work",
        ),
    ),
    "F2": (
        "columns of two allocators are glibc's, because their library was not found",
        (
            "measure/test_proof::test_a_library_without_malloc_is_refused",
            "measure/test_proof::test_a_preload_that_the_linker_ignores_is_refused",
            "engine/test_experiment::test_a_bad_allocator_is_a_failure_and_never_a_figure",
            "engine/test_experiment::test_a_workload_served_by_another_library_is_not_loaded",
        ),
    ),
    "F3": (
        "the clock's cost inside the latency, a debug build, blocks never touched",
        (
            "workloads/test_workload_program::test_the_clocks_cost_is_measured_and_removed",
            "workloads/test_workload_program::test_a_call_of_known_length_is_reported_at_that_length",
            "workloads/test_workload_program::test_memory_that_was_touched_is_seen",
            "analysis/test_published_mistakes::test_the_workload_program_is_a_release_build",
        ),
    ),
    "F4": (
        "an example whose option means something else",
        ("docs/test_documents_check::test_what_documents_name_exists",),
    ),
    "F5": (
        "no free in the timed part, and the clean-up counted as speed",
        (
            "workloads/test_workload_program::test_every_allocation_of_the_timed_part_has_its_free_there",
            "workloads/test_workload_program::test_the_published_ring_frees_nothing_in_its_timed_part",
            "workloads/test_workload_program::test_the_corrected_ring_frees_almost_all_it_allocates",
        ),
    ),
    "F6": (
        "NULL answers make less work and so more speed",
        (
            "workloads/test_workload_program::test_an_allocator_that_answers_null_ends_in_status_3",
            "workloads/test_workload_program::test_every_allocator_gives_the_same_checksum_and_amount_of_work",
            "engine/test_experiment::test_a_workload_that_counts_failures_has_no_figures",
        ),
    ),
    "F7": (
        "one allocator called inline, the others through symbols",
        ("engine/test_experiment::test_all_peers_run_the_same_program_and_differ_only_in_their_environment",),
    ),
    "F8": (
        "ten samples, and a p99.9 of them",
        (
            "workloads/test_workload_program::test_a_deep_percentile_needs_a_million_samples",
            "engine/test_experiment::test_workload_figures_carry_their_sample_counts",
        ),
    ),
    "F9": (
        "the program's law of sizes is not the article's",
        (
            "workloads/test_laws::test_the_two_size_laws_are_told_apart",
            "workloads/test_laws::test_sizes_of_the_article",
        ),
    ),
    "F10": (
        "threads that end, and blocks that other threads free, were never tried",
        (
            "workloads/test_workload_program::test_larsons_blocks_cross_threads",
            "workloads/test_workload_program::test_changed_contents_end_in_status_3",
            "workloads/test_suites::test_the_full_suite_uses_every_workload",
        ),
    ),
    "F11": (
        "a fixed duration measured, the baseline always first and cold, the network in between",
        (
            "engine/test_experiment::test_every_peer_runs_once_per_round_and_the_order_changes",
            "engine/test_experiment::test_the_order_is_repeatable_from_its_seed",
            "analysis/test_published_mistakes::test_no_workload_is_given_a_duration",
        ),
    ),
    "F12": (
        "a slow wrapper taken for a slow glibc",
        ("peers/test_controls::test_passthrough_is_glibc_in_every_answer",),
    ),
    "F13": (
        "names that promise another program",
        (
            "analysis/test_published_mistakes::test_what_is_only_like_another_program_says_so",
            "workloads/test_workload_program::test_larsons_blocks_cross_threads",
        ),
    ),
    "F14": ("two workloads decide", ("workloads/test_suites::test_the_full_suite_uses_every_workload",)),
    "F15": (
        "security tests that cannot fail, or cannot pass; an allocator that does not start has passed all",
        (
            "attacks/test_enumerated::test_an_allocator_without_checks_stops_no_second_free",
            "attacks/test_enumerated::test_an_allocator_that_dies_at_start_or_serves_nothing_gets_no_marks",
            "attacks/test_enumerated::test_no_twin_of_any_kind_fails_under_glibc",
            "attacks/test_enumerated::test_accusing_a_correct_program_is_a_false_alarm",
        ),
    ),
    "F16": (
        "exit statuses ignored, the wrapper's memory taken for the program's",
        (
            "workloads/test_workload_program::test_a_crash_is_no_measurement",
            "engine/test_experiment::test_a_failing_command_is_an_error_not_a_table",
            "measure/test_process::test_peak_memory_is_the_trees_not_the_wrappers",
        ),
    ),
    "F17": (
        "set-up and clean-up in the time, the same seed in every thread",
        (
            "workloads/test_laws::test_threads_have_independent_streams",
            "workloads/test_workload_program::test_the_void_source_is_subtracted_and_calls_no_allocator",
            "analysis/test_published_mistakes::test_what_comes_before_and_after_is_not_in_the_time",
        ),
    ),
    "F18": (
        "memory of the wrapper only, and none after the free",
        (
            "measure/test_process::test_peak_memory_is_the_trees_not_the_wrappers",
            "measure/test_process::test_memory_curve_rises_and_falls",
        ),
    ),
}


TIME = re.compile(r"second|duration|time|-ms$|^idle$")


def functions_of(module: str) -> set[str]:
    tree = ast.parse((Path(__file__).parents[1] / f"{module}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_mistake_is_listed() -> None:
    assert list(MISTAKES) == [f"F{n}" for n in range(1, 19)]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_tests_named_for_a_mistake_exist(mistake: str) -> None:
    for name in MISTAKES[mistake][1]:
        module, _, function = name.partition("::")
        assert function in functions_of(module), name


def test_the_workload_program_is_a_release_build() -> None:
    cache = (tools.program().parent / "CMakeCache.txt").read_text()
    assert "CMAKE_BUILD_TYPE:STRING=Release" in cache.replace("UNINITIALIZED", "STRING")


def test_no_workload_is_given_a_duration() -> None:
    for name, workload in tools.described().items():
        timed = [p["name"] for p in workload["params"] if p.get("unit") in ("s", "ms") or TIME.search(p["name"])]
        assert {*timed} <= {"idle", "idle-ms", "sample-ms"}, f"{name}: its work is to be counted, not timed"


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
