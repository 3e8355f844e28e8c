"""The attack suite against allocators whose behaviour is known: glibc, one that checks nothing, and two broken ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from freestone_lab import attacks, attacks_processes, attacks_table, model, paths, peers
from freestone_lab.errors import UserError
from freestone_lab.model import Peer

GLIBC = Peer("glibc", None, "libc")


@pytest.fixture(scope="module")
def program() -> Path:
    return attacks.build_program()


@pytest.fixture(scope="module")
def cases(program: Path) -> tuple[attacks.AttackCase, ...]:
    return attacks.load_cases(program)


def control(program: Path, name: str) -> Peer:
    return Peer(name, str(program.parent / f"libattack-control-{name}.so"), "control")


def chosen(cases: tuple[attacks.AttackCase, ...], *patterns: str) -> list[attacks.AttackCase]:
    return attacks.select_cases(cases, patterns)


def test_suite_describes_at_least_150_distinct_cases(cases: tuple[attacks.AttackCase, ...]) -> None:
    assert len({case.id for case in cases}) == len(cases) >= 150
    for case in cases:
        assert case.about and case.neutralised
        assert case.sizes == ("any",) or set(case.sizes) <= set(attacks.SIZES), case.id
        assert set(case.apart_sizes) <= set(case.sizes), case.id
        assert bool(case.apart_sizes) == bool(case.apart_reason), case.id


def test_no_twin_of_any_case_fails_under_glibc(cases: tuple[attacks.AttackCase, ...]) -> None:
    result = attacks.run([GLIBC], cases, seeds=1)
    sums = attacks_table.totals(result, "glibc")
    wrong = [e for e in attacks_table.escapes(result, "glibc") if {"false_alarm", "failed"} & set(e.counts)]
    assert sums["false_alarm"] == sums["failed"] == 0, wrong
    assert sums["reported"] > 100 and sums["missed"] > 50  # glibc is neither blind nor perfect
    assert {attacks_table.family(e) for e in result.experiments} > {case.family for case in cases}


def test_glibc_reports_an_immediate_double_free(program: Path) -> None:
    for seed in (1, 2, 3):
        judgement = attacks.judge_pair(program, GLIBC, "double_free_immediate", "24", seed)
        assert judgement.verdict == "reported"
        assert "double free" in judgement.detail


def test_glibc_misses_a_byte_past_an_exactly_filled_block(program: Path) -> None:
    verdicts = {attacks.judge_pair(program, GLIBC, "overflow_store_1", "24", seed).verdict for seed in range(1, 9)}
    assert verdicts & {"missed", "late"}, verdicts


def test_glibc_shows_a_previous_owners_secret(program: Path) -> None:
    assert attacks.judge_pair(program, GLIBC, "uninitialised_malloc_1", "256", 1).verdict == "missed"


def test_glibc_hands_out_the_target_of_a_poisoned_list(program: Path) -> None:
    judgement = attacks.judge_pair(program, GLIBC, "freed_link_protected", "24", 1)
    assert judgement.verdict in ("missed", "late")
    assert "attacker's choice was handed out" in judgement.detail


def test_allocator_without_checks_defends_hardly_any_double_free(
    program: Path, cases: tuple[attacks.AttackCase, ...]
) -> None:
    result = attacks.run([GLIBC, control(program, "nocheck")], chosen(cases, "double-free", "metadata"), seeds=2)
    bad = attacks_table.defended_share(result, "nocheck")
    glibc = attacks_table.defended_share(result, "glibc")
    assert bad is not None and glibc is not None and bad < 0.5 < glibc
    assert attacks_table.totals(result, "nocheck")["reported"] == 0
    assert attacks_table.totals(result, "nocheck")["false_alarm"] == 0
    assert attacks_table.ranking(result) == ["glibc", "nocheck"]


def test_allocator_that_dies_at_start_gets_no_marks(program: Path, cases: tuple[attacks.AttackCase, ...]) -> None:
    result = attacks.run([control(program, "crash_at_start")], chosen(cases, "double-free"), seeds=1)
    sample = result.experiments[0].samples[0]
    assert sample.status == "failed" and "SIGABRT" in sample.detail
    assert sample.figures == {} and sample.counts == {}
    grid = attacks_table.summary(result)
    assert grid.rows[0][:2] == ("crash_at_start", "failed to start")
    assert grid.notes == [f"crash_at_start: failed to start: {sample.detail}"]


def test_library_that_does_not_serve_malloc_is_not_judged(cases: tuple[attacks.AttackCase, ...]) -> None:
    libm = str(peers.library_paths("libm.so.6")[0])
    result = attacks.run([Peer("libm", libm)], chosen(cases, "double_free_immediate"), seeds=1)
    sample = result.experiments[0].samples[0]
    assert sample.status == "not_loaded" and "malloc was served by" in sample.detail
    assert sample.figures == {}
    assert attacks_table.summary(result).rows[0][:2] == ("libm", "not loaded")


def test_accusing_a_correct_program_is_a_false_alarm(program: Path, cases: tuple[attacks.AttackCase, ...]) -> None:
    result = attacks.run([control(program, "false_alarm")], chosen(cases, "double-free"), seeds=1, sizes=["small"])
    sums = attacks_table.totals(result, "false_alarm")
    assert sums["false_alarm"] > sums["reported"] + sums["trapped"]
    detail = next(e.detail for e in attacks_table.escapes(result, "false_alarm") if "false_alarm" in e.counts)
    assert detail.startswith("twin: SIGABRT: false_alarm: double free")


def test_size_free_cases_run_once_and_others_at_the_sizes_asked_for(cases: tuple[attacks.AttackCase, ...]) -> None:
    result = attacks.run([GLIBC], chosen(cases, "invalid_free_stack", "invalid_free_plus_1"), seeds=2, sizes=["large"])
    counts = result.experiments[0].samples[0].counts
    pairs = {key.partition("=")[0] for key in counts if "/" in key}
    assert pairs == {"invalid_free_stack/any", "invalid_free_plus_1/large"}
    assert counts["runs"] == 4


def test_cases_beyond_software_are_counted_apart(cases: tuple[attacks.AttackCase, ...]) -> None:
    result = attacks.run([GLIBC], chosen(cases, "overread_32", "overflow_store_32"), seeds=1)
    by_name = {experiment.id: experiment for experiment in result.experiments}
    assert set(by_name) == {"attacks/overflow", "attacks/apart"}
    assert by_name["attacks/apart"].params["pairs"] == 2  # small and medium; the large one is counted
    assert by_name["attacks/overflow"].params["pairs"] == 4
    assert any("overread_32" in note for note in attacks_table.apart_notes(result))
    assert sum(attacks_table.totals(result, "glibc").values()) == 4


def test_missing_call_is_not_applicable(program: Path, cases: tuple[attacks.AttackCase, ...]) -> None:
    result = attacks.run([control(program, "nocheck")], chosen(cases, "free_sized_half"), seeds=2)
    sample = result.experiments[0].samples[0]
    assert sample.counts["not_applicable"] == 3 and sample.counts["runs"] == 0
    assert "defended" not in sample.figures
    assert attacks_table.defended_share(result, "nocheck") is None


def test_result_file_and_markdown_keep_the_account(
    program: Path, cases: tuple[attacks.AttackCase, ...], tmp_path: Path
) -> None:
    result = attacks.run([GLIBC, control(program, "nocheck")], chosen(cases, "double_free_immediate"), seeds=2)
    file = tmp_path / "attacks.json.gz"
    model.save(result, file)
    loaded = model.load(file)
    assert dataclasses.asdict(loaded) == dataclasses.asdict(result)
    text = attacks_table.markdown(loaded, ["nocheck"])
    assert "| glibc | 100.0 % |" in text
    assert "double_free_immediate/small" in text.partition("nocheck: what got through")[2]


def test_unknown_pattern_and_size_are_refused_by_name(cases: tuple[attacks.AttackCase, ...]) -> None:
    with pytest.raises(UserError, match=r"no attack case matches 'doublefree'; expected .*double-free"):
        attacks.select_cases(cases, ["doublefree"])
    with pytest.raises(UserError, match=r"no case is left for the sizes huge; expected some of small, medium, large"):
        attacks.run([GLIBC], chosen(cases, "double_free_immediate"), sizes=["huge"])


def test_same_seed_is_the_same_attack(program: Path) -> None:
    command = [str(program), "write_freed_one_bit", "--size", "small", "--seed", "7"]
    runs = [attacks_processes.spawn(command, attacks.environment(GLIBC), 10).markers for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["no_such_case"], "no such case: no_such_case"),
        (["double_free_immediate", "--size", "huge"], "not a size: huge"),
        (["double_free_immediate", "--seeds", "3"], "unknown argument: --seeds"),
        ([], "no case given"),
    ],
)
def test_program_names_a_wrong_argument(program: Path, arguments: list[str], named: str) -> None:
    outcome = attacks_processes.spawn([str(program), *arguments], {}, 10)
    assert outcome.exit_code == 2
    assert named in outcome.text and "expected CASE --size" in outcome.text


def test_run_without_names_includes_the_known_bad_control(program: Path) -> None:
    everything = attacks.discover((), program)
    assert [peer.name for peer in everything if peer.name == attacks.KNOWN_BAD] == [attacks.KNOWN_BAD]
    assert "glibc" in {peer.name for peer in everything}
    assert [peer.name for peer in attacks.discover([attacks.KNOWN_BAD, "glibc"], program)] == ["nocheck", "glibc"]


def test_both_builds_defend_what_they_promise(program: Path) -> None:
    if not (paths.build_dir() / "libfreestone-hardened.so").exists():
        pytest.skip("libfreestone-hardened.so is not built")
    chosen_peers = attacks.discover(["freestone-hardened", "freestone", "glibc"], program)
    result = attacks.run(chosen_peers, seeds=2)
    shares = {peer.name: attacks_table.defended_share(result, peer.name) or 0.0 for peer in chosen_peers}
    assert shares["freestone-hardened"] >= 0.99, attacks_table.escapes(result, "freestone-hardened")
    assert shares["freestone"] >= 0.65, shares
    assert shares["freestone-hardened"] > shares["glibc"] > 0.5, shares
    for peer in chosen_peers:
        sums = attacks_table.totals(result, peer.name)
        assert sums["false_alarm"] == sums["failed"] == 0, attacks_table.escapes(result, peer.name)
