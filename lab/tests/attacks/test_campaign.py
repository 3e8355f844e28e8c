"""The attack suite against allocators whose behaviour is known: glibc, one that checks nothing, and two broken ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from freestone_lab.attacks import campaign, tables, trials
from freestone_lab.core import paths, result_file
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer, Result
from freestone_lab.peers import discover

GLIBC = Peer("glibc", None, "libc")


@pytest.fixture(scope="module")
def program() -> Path:
    return campaign.build_program()


@pytest.fixture(scope="module")
def cases(program: Path) -> tuple[campaign.AttackCase, ...]:
    return campaign.load_cases(program)


def peers(program: Path) -> list[Peer]:
    """glibc, and both builds where they are built."""
    built = (paths.build_dir() / "libfreestone-hardened.so").exists()
    return campaign.discover(["freestone-hardened", "freestone", "glibc"] if built else ["glibc"], program)


@pytest.fixture(scope="module")
def judged(program: Path) -> Result:
    """Every case of the suite, at one seed."""
    return campaign.run(peers(program), seeds=1)


def control(program: Path, name: str) -> Peer:
    return Peer(name, str(program.parent / f"libattack-control-{name}.so"), "control")


def chosen(cases: tuple[campaign.AttackCase, ...], *patterns: str) -> list[campaign.AttackCase]:
    return campaign.select_cases(cases, patterns)


def test_suite_describes_at_least_150_distinct_cases(cases: tuple[campaign.AttackCase, ...]) -> None:
    assert len({case.id for case in cases}) == len(cases) >= 150
    for case in cases:
        assert case.about and case.neutralised
        assert case.sizes == ("any",) or set(case.sizes) <= set(campaign.SIZES), case.id
        assert set(case.apart_sizes) <= set(case.sizes), case.id
        assert bool(case.apart_sizes) == bool(case.apart_reason), case.id


def test_no_twin_of_any_case_fails_under_glibc(judged: Result, cases: tuple[campaign.AttackCase, ...]) -> None:
    sums = tables.totals(judged, "glibc")
    wrong = [e for e in tables.escapes(judged, "glibc") if {"false_alarm", "failed"} & set(e.counts)]
    assert sums["false_alarm"] == sums["failed"] == 0, wrong
    assert sums["reported"] > 100 and sums["missed"] > 50  # glibc is neither blind nor perfect
    assert {tables.family(e) for e in judged.experiments} > {case.family for case in cases}


def test_glibc_reports_an_immediate_double_free(program: Path) -> None:
    for seed in (1, 2, 3):
        judgement = campaign.judge_pair(program, GLIBC, "double_free_immediate", "24", seed)
        assert judgement.verdict == "reported"
        assert "double free" in judgement.detail


def test_glibc_misses_a_byte_past_an_exactly_filled_block(program: Path) -> None:
    verdicts = {campaign.judge_pair(program, GLIBC, "overflow_store_1", "24", seed).verdict for seed in range(1, 9)}
    assert verdicts & {"missed", "late"}, verdicts


def test_glibc_shows_a_previous_owners_secret(program: Path) -> None:
    assert campaign.judge_pair(program, GLIBC, "uninitialised_malloc_1", "256", 1).verdict == "missed"


def test_glibc_hands_out_the_target_of_a_poisoned_list(program: Path) -> None:
    judgement = campaign.judge_pair(program, GLIBC, "freed_link_protected", "24", 1)
    assert judgement.verdict in ("missed", "late")
    assert "attacker's choice was handed out" in judgement.detail


def test_allocator_without_checks_defends_hardly_any_double_free(
    program: Path, cases: tuple[campaign.AttackCase, ...]
) -> None:
    result = campaign.run([GLIBC, control(program, "nocheck")], chosen(cases, "double-free", "metadata"), seeds=2)
    bad = tables.defended_share(result, "nocheck")
    glibc = tables.defended_share(result, "glibc")
    assert bad is not None and glibc is not None and bad < 0.5 < glibc
    assert tables.totals(result, "nocheck")["reported"] == 0
    assert tables.totals(result, "nocheck")["false_alarm"] == 0
    assert tables.ranking(result) == ["glibc", "nocheck"]


def test_allocator_that_dies_at_start_gets_no_marks(program: Path, cases: tuple[campaign.AttackCase, ...]) -> None:
    result = campaign.run([control(program, "crash_at_start")], chosen(cases, "double-free"), seeds=1)
    sample = result.experiments[0].samples[0]
    assert sample.status == "failed" and "SIGABRT" in sample.detail
    assert sample.figures == {} and sample.counts == {}
    grid = tables.summary(result)
    assert grid.rows[0][:2] == ("crash_at_start", "failed to start")
    assert grid.notes == [f"crash_at_start: failed to start: {sample.detail}"]


def test_library_that_does_not_serve_malloc_is_not_judged(cases: tuple[campaign.AttackCase, ...]) -> None:
    libm = str(discover.library_paths("libm.so.6")[0])
    result = campaign.run([Peer("libm", libm)], chosen(cases, "double_free_immediate"), seeds=1)
    sample = result.experiments[0].samples[0]
    assert sample.status == "not_loaded" and "malloc was served by" in sample.detail
    assert sample.figures == {}
    assert tables.summary(result).rows[0][:2] == ("libm", "not loaded")


def test_accusing_a_correct_program_is_a_false_alarm(program: Path, cases: tuple[campaign.AttackCase, ...]) -> None:
    result = campaign.run([control(program, "false_alarm")], chosen(cases, "double-free"), seeds=1, sizes=["small"])
    sums = tables.totals(result, "false_alarm")
    assert sums["false_alarm"] > sums["reported"] + sums["trapped"]
    detail = next(e.detail for e in tables.escapes(result, "false_alarm") if "false_alarm" in e.counts)
    assert detail.startswith("twin: SIGABRT: false_alarm: double free")


def test_size_free_cases_run_once_and_others_at_the_sizes_asked_for(cases: tuple[campaign.AttackCase, ...]) -> None:
    result = campaign.run([GLIBC], chosen(cases, "invalid_free_stack", "invalid_free_plus_1"), seeds=2, sizes=["large"])
    counts = result.experiments[0].samples[0].counts
    pairs = {key.partition("=")[0] for key in counts if "/" in key}
    assert pairs == {"invalid_free_stack/any", "invalid_free_plus_1/large"}
    assert counts["runs"] == 4


def test_cases_beyond_software_are_counted_apart(cases: tuple[campaign.AttackCase, ...]) -> None:
    result = campaign.run([GLIBC], chosen(cases, "overread_32", "overflow_store_32"), seeds=1)
    by_name = {experiment.id: experiment for experiment in result.experiments}
    assert set(by_name) == {"attacks/overflow", "attacks/apart"}
    assert by_name["attacks/apart"].params["pairs"] == 2  # small and medium; the large one is counted
    assert by_name["attacks/overflow"].params["pairs"] == 4
    assert any("overread_32" in note for note in tables.apart_notes(result))
    assert sum(tables.totals(result, "glibc").values()) == 4


def test_missing_call_is_not_applicable(program: Path, cases: tuple[campaign.AttackCase, ...]) -> None:
    result = campaign.run([control(program, "nocheck")], chosen(cases, "free_sized_half"), seeds=2)
    sample = result.experiments[0].samples[0]
    assert sample.counts["not_applicable"] == 3 and sample.counts["runs"] == 0
    assert "defended" not in sample.figures
    assert tables.defended_share(result, "nocheck") is None


def test_result_file_and_markdown_keep_the_account(
    program: Path, cases: tuple[campaign.AttackCase, ...], tmp_path: Path
) -> None:
    result = campaign.run([GLIBC, control(program, "nocheck")], chosen(cases, "double_free_immediate"), seeds=2)
    file = tmp_path / "attacks.json.gz"
    result_file.save(result, file)
    loaded = result_file.load(file)
    assert dataclasses.asdict(loaded) == dataclasses.asdict(result)
    text = tables.markdown(loaded, ["nocheck"])
    assert "| glibc | 100.0 % |" in text
    assert "double_free_immediate/small" in text.partition("nocheck: what got through")[2]


def test_unknown_pattern_and_size_are_refused_by_name(cases: tuple[campaign.AttackCase, ...]) -> None:
    with pytest.raises(UserError, match=r"no attack case matches 'doublefree'; expected .*double-free"):
        campaign.select_cases(cases, ["doublefree"])
    with pytest.raises(UserError, match=r"no case is left for the sizes huge; expected some of small, medium, large"):
        campaign.run([GLIBC], chosen(cases, "double_free_immediate"), sizes=["huge"])


def test_same_seed_is_the_same_attack(program: Path) -> None:
    command = [str(program), "write_freed_one_bit", "--size", "small", "--seed", "7"]
    runs = [trials.spawn(command, campaign.environment(GLIBC), 10).markers for _ in range(3)]
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
    outcome = trials.spawn([str(program), *arguments], {}, 10)
    assert outcome.exit_code == 2
    assert named in outcome.text and "expected CASE --size" in outcome.text


def test_run_without_names_includes_the_known_bad_control(program: Path) -> None:
    everything = campaign.discover((), program)
    assert [peer.name for peer in everything if peer.name == campaign.KNOWN_BAD] == [campaign.KNOWN_BAD]
    assert "glibc" in {peer.name for peer in everything}
    assert [peer.name for peer in campaign.discover([campaign.KNOWN_BAD, "glibc"], program)] == ["nocheck", "glibc"]


def defend_what_they_promise(result: Result, hardened: float, fast: float) -> None:
    shares = {peer.name: tables.defended_share(result, peer.name) or 0.0 for peer in result.peers}
    if "freestone-hardened" not in shares:
        pytest.skip("libfreestone-hardened.so is not built")
    assert shares["freestone-hardened"] >= hardened, tables.escapes(result, "freestone-hardened")
    assert shares["freestone"] >= fast, shares
    assert shares["freestone-hardened"] > shares["glibc"] > 0.5, shares
    for peer in result.peers:
        sums = tables.totals(result, peer.name)
        assert sums["false_alarm"] == sums["failed"] == 0, tables.escapes(result, peer.name)


def test_both_builds_defend_what_they_promise(judged: Result) -> None:
    defend_what_they_promise(judged, 0.98, 0.62)  # one seed: a per cent and three less, for chance


@pytest.mark.long
def test_both_builds_defend_what_they_promise_at_many_seeds(program: Path) -> None:
    defend_what_they_promise(campaign.run(peers(program), seeds=10), 0.99, 0.65)
