"""The engine on real processes: order, proof, controls, stop rules, and every way in which an allocator can fail.

Several tests stand for a fault found in published measurements; each names it.
"""

import copy
import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
from conftest import GLIBC
from peers_tools import build_library

from freestone_lab.analysis import changes
from freestone_lab.analysis import claims as compare
from freestone_lab.analysis.decision import Decision
from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, Peer, Result, Sample
from freestone_lab.engine import experiment as method
from freestone_lab.engine import plan as plans
from freestone_lab.engine import session
from freestone_lab.engine.budget import Budget
from freestone_lab.engine.experiment import Engine
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.measure import fingerprint, process, provenance
from freestone_lab.measure.process import Request, Run
from freestone_lab.measure.samples import digest
from freestone_lab.workloads.tasks import workload_program


def plan(rounds: int, **more: object) -> Plan:
    fixed = Plan(rounds=rounds, seed=1)
    return dataclasses.replace(fixed, **more)  # type: ignore[arg-type]


def task(work: Path, *arguments: str, **more: object) -> Task:
    command = (str(work), *(arguments or ("300", "64")))
    return Task("t", "work", command, cwd=work.parent, **more)  # type: ignore[arg-type]


def measured(the_task: Task, peers: list[Peer], the_plan: Plan) -> Experiment:
    return Engine(the_task, [GLIBC, *peers], "glibc", the_plan, lambda p: None).measure()


def statuses(experiment: Experiment, peer: str) -> set[str]:
    return {s.status for s in experiment.samples if s.peer == peer}


def test_every_peer_runs_once_per_round_and_the_order_changes(work: Path, controls: dict[str, Peer]) -> None:
    # Fault: one allocator always first, so that it alone pays for the cold cache.
    found = measured(task(work), [controls["passthrough"], controls["null"]], plan(12))
    orders = []
    for round_ in range(1, 13):
        names = [s.peer for s in found.samples if s.round == round_]
        assert sorted(names) == ["glibc", "glibc again", "null", "passthrough"]
        orders.append(tuple(names))
    assert len(set(orders)) > 6
    assert max(Counter(order[0] for order in orders).values()) < 12
    assert not [s for s in found.samples if s.round == 0], "the warm-up round is discarded"


def test_the_order_is_repeatable_from_its_seed(work: Path) -> None:
    runs = [[(s.round, s.peer) for s in measured(task(work), [], plan(6)).samples] for _ in range(2)]
    assert runs[0] == runs[1]


def test_all_peers_run_the_same_program_and_differ_only_in_their_environment(
    work: Path, controls: dict[str, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Fault: one allocator called inline, the others through malloc.
    seen: list[Request] = []
    real = process.run

    def spy(request: Request, stdout: Path, stderr: Path, *_: object) -> Run:
        seen.append(request)
        return real(request, stdout, stderr)

    monkeypatch.setattr(process, "run", spy)
    measured(task(work), [controls["passthrough"]], plan(4))
    assert {tuple(r.argv) for r in seen} == {(str(work), "300", "64")}
    own = ("LD_PRELOAD", "LD_DEBUG", "LD_DEBUG_OUTPUT", plans.PADDING)
    rest = {tuple(sorted((k, v) for k, v in r.env.items() if k not in own)) for r in seen}
    assert len(rest) == 1
    timed = [r for r in seen if "LD_DEBUG" not in r.env]
    assert len({len(r.env[plans.PADDING]) for r in timed}) > 4, "the environment's size must vary"
    assert all(len(r.env[plans.PADDING]) < 4096 for r in timed)


@pytest.mark.parametrize(
    ("control", "status", "detail"),
    [
        ("crashing", "failed", "killed by SIGABRT"),
        ("returning-null", "failed", "answered NULL"),
        ("corrupting", "wrong_output", "stdout differs from glibc's"),
        ("not-loading", "not_loaded", "malloc was bound to libc.so.6"),
    ],
)
def test_a_bad_allocator_is_a_failure_and_never_a_figure(
    work: Path, controls: dict[str, Peer], control: str, status: str, detail: str
) -> None:
    # Faults: crashes counted as fast runs; NULL answers skipped; libraries that were never loaded.
    env = (("FREESTONE_CONTROL_AFTER", "50"), ("FREESTONE_CONTROL_EVERY", "20"))
    peer = dataclasses.replace(controls[control], env=env)
    found = measured(task(work, "3000", "64"), [peer], plan(3))
    assert statuses(found, control) == {status}
    assert not any(s.figures for s in found.samples if s.peer == control)
    row = compare.table_of(found, "glibc").row(control)
    assert row is not None and row.cells == {} and row.status == status
    assert detail in row.detail
    assert statuses(found, "glibc") == {"ok"}


def test_an_allocator_that_hangs_is_stopped_and_not_tried_again(built: Path, work: Path) -> None:
    source = "#include <unistd.h>\nvoid* malloc(unsigned long n) { (void)n; for (;;) pause(); }\n"
    library = build_library(built, "hang", source)
    found = measured(task(work, timeout_s=4), [Peer("hang", str(library))], plan(3))  # glibc's runs need milliseconds
    failed = [s for s in found.samples if s.peer == "hang"]
    assert [s.status for s in failed] == ["timeout"]


@pytest.mark.timing
def test_a_slow_allocator_is_found_slow(work: Path, controls: dict[str, Peer]) -> None:
    """Five per cent more CPU time are found within 25 rounds."""
    costly = dataclasses.replace(controls["costly"], env=(("FREESTONE_CONTROL_CPU_PERMILLE", "50"),))
    table = compare.table_of(measured(task(work, "300000", "256"), [costly], plan(25)), "glibc")
    if table.floors["cpu"] > 0.03:
        pytest.skip(f"the baseline differs from itself by {table.floors['cpu']:.1%}")
    row = table.row("costly")
    assert row is not None and row.cells["cpu"].verdict == "worse", row


def test_a_leaking_allocator_is_found_large(work: Path, controls: dict[str, Peer]) -> None:
    leaking = dataclasses.replace(controls["leaking"], env=(("FREESTONE_CONTROL_EVERY", "2"),))
    found = measured(task(work, "5000", "4096"), [leaking], plan(8))
    row = compare.table_of(found, "glibc").row("leaking")
    assert row is not None and row.cells["rss"].verdict == "worse"


@pytest.mark.timing
def test_a_hundred_comparisons_of_glibc_with_itself_claim_a_difference_in_at_most_five(work: Path) -> None:
    # The same claim is made of simulated noise, without a clock, by analysis/test_known_costs.
    twin = Peer("twin", None, "libc")
    claims = 0
    for seed in range(100):
        found = measured(task(work, "2000", "64"), [twin], plan(10, seed=seed))
        row = compare.table_of(found, "glibc").row("twin")
        assert row is not None and row.status == "ok"
        claims += row.cells["wall"].verdict in ("better", "worse")
    assert claims <= 5


def test_an_experiment_says_what_it_was_made_of(work: Path, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("a")
    reads = Task("t", "t", (str(work), "10", "5", "input"), cwd=tmp_path, stdin=tmp_path / "input")
    found = Engine(reads, [GLIBC], "glibc", plan(1), lambda p: None).measure()
    assert found.made_of["argv"] == list(reads.argv)
    assert found.made_of["program"]["sha256"] == digest(work)
    assert found.made_of["inputs"] == {str(tmp_path / "input"): digest(tmp_path / "input")}
    again = dataclasses.replace(found, made_of=copy.deepcopy(found.made_of))
    again.made_of["inputs"] = {"/elsewhere/input": "0"}
    a, b = (Result("", [], 0, {}, [GLIBC], [one]) for one in (found, again))
    assert changes.compare(a, a).apart == []
    assert changes.compare(a, b).apart == ["t: other content of input"]
    again.made_of["program"] = {"path": "x", "sha256": "1", "version": "work 2"}
    assert changes.compare(a, b).apart[0].startswith("t: another program: ")
    assert provenance.commit() and fingerprint.collect()["commit"] == provenance.commit()


def test_a_run_that_the_limit_cuts_is_no_failure(controls: dict[str, Peer]) -> None:
    slow = Task("t", "sh", ("/bin/sh", "-c", '[ -z "$LD_PRELOAD" ] || sleep 60'), cwd=Path("/"), timeout_s=90)
    engine = Engine(slow, [GLIBC, controls["passthrough"]], "glibc", plan(2), lambda p: None, budget=Budget(4))
    found = engine.measure()
    assert engine.not_run is found.not_run and found.not_run["passthrough"] == "no time within 4 s"
    assert all(s.status == "ok" for s in found.samples)


def test_the_exit_status_of_success_is_the_users() -> None:
    broken = Task("t", "false", ("/bin/false",), cwd=Path("/"))
    with pytest.raises(UserError, match="'/bin/false' fails under glibc: exit status 1"):
        measured(broken, [], plan(2))
    assert statuses(measured(dataclasses.replace(broken, expect_exit=1), [], plan(2)), "glibc") == {"ok"}


def test_output_that_differs_from_run_to_run_is_not_compared_and_that_is_said() -> None:
    dated = Task("t", "date", ("/bin/sh", "-c", "echo $$; date +%N"), cwd=Path("/"))
    found = measured(dated, [], plan(2))
    assert statuses(found, "glibc") == {"ok"}
    assert any("differs between two runs" in text for text in found.caveats)


def test_an_output_that_seldom_differs_makes_no_allocator_wrong(tmp_path: Path, controls: dict[str, Peer]) -> None:
    """Each allocator's and the control's output differs from the fourth run of all on, in every second run."""
    count = tmp_path / "count"
    script = f"echo >> {count}; n=$(wc -l < {count}); [ $n -lt 6 ] || [ $((n % 2)) = 0 ] || echo odd"
    found = measured(Task("t", "sh", ("/bin/sh", "-c", script), cwd=tmp_path), [controls["passthrough"]], plan(8))
    assert {s.status for s in found.samples} == {"ok"} and all(s.figures for s in found.samples if s.round > 0)
    assert any("differs between two runs" in text for text in found.caveats)


@pytest.mark.parametrize(
    "command",
    [
        'if [ -n "$LD_PRELOAD" ]; then echo changed; else echo right; fi > result.txt',
        '[ -n "$LD_PRELOAD" ] || echo right > result.txt',  # what an earlier run left does not stand for this one's
    ],
)
def test_written_files_are_compared_too(command: str, tmp_path: Path, controls: dict[str, Peer]) -> None:
    writer = Task("t", "sh", ("/bin/sh", "-c", command), cwd=tmp_path, output_files=(Path("result.txt"),))
    found = measured(writer, [controls["passthrough"]], plan(2))
    assert statuses(found, "passthrough") == {"wrong_output"}
    assert "result.txt differs" in next(s.detail for s in found.samples if s.peer == "passthrough")


def test_a_check_of_the_users_decides() -> None:
    def check(stdout: Path, cwd: Path) -> str | None:
        return None if stdout.read_text() == "right\n" else f"unexpected {stdout.read_text().strip()!r}"

    good = Task("t", "echo", ("/bin/echo", "right"), cwd=Path("/"), check=check)
    assert statuses(measured(good, [], plan(2)), "glibc") == {"ok"}
    bad = dataclasses.replace(good, argv=("/bin/echo", "other"))
    with pytest.raises(UserError, match="unexpected 'other'"):
        measured(bad, [], plan(2))


def _json_task(folder: Path, **fields: object) -> Task:
    report = {
        "schema": "freestone-workload/1", "workload": "w", "params": {}, "failures": 0, "checksum": "aa",
        "figures": {"malloc_p50": {"value": 20.5, "unit": "ns", "better": "lower", "samples": 1000000}},
        "series": {"curve": [[1, 2], [2, 3]]}, "caveats": ["the clock's cost is removed"], **fields,
    }  # fmt: skip
    path = folder / "report.json"
    path.write_text("chatter\n" + json.dumps(report) + "\n")
    return Task("t", "w", ("/bin/cat", str(path)), cwd=folder, read="workload")


def test_workload_figures_carry_their_sample_counts(tmp_path: Path) -> None:
    # Fault: percentiles of ten samples printed as P99.9.
    found = measured(_json_task(tmp_path), [], plan(2))
    sample = found.samples[0]
    assert (sample.figures["malloc_p50"], sample.counts["malloc_p50"]) == (20.5, 1000000)
    assert found.specs["malloc_p50"].unit == "ns"
    assert sample.series["curve"] == [[1, 2], [2, 3]]
    assert "the clock's cost is removed" in found.caveats


def test_a_workload_that_counts_failures_has_no_figures(tmp_path: Path) -> None:
    # Fault: allocations that answered NULL were skipped, which made the allocator look fast.
    with pytest.raises(UserError, match="3 allocations failed"):
        measured(_json_task(tmp_path, failures=3), [], plan(2))


def test_a_workload_served_by_another_library_is_not_loaded(tmp_path: Path, controls: dict[str, Peer]) -> None:
    found = measured(_json_task(tmp_path, malloc_owner="/lib/other.so"), [controls["passthrough"]], plan(2))
    assert statuses(found, "passthrough") == {"not_loaded"}


def test_a_workload_that_prints_no_json_is_a_failure(tmp_path: Path) -> None:
    silent = Task("t", "w", ("/bin/echo", "hello"), cwd=tmp_path, read="workload")
    with pytest.raises(UserError, match="its last line is not JSON"):
        measured(silent, [], plan(2))


def test_a_settled_question_ends_the_rounds_early(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "decide", lambda _: Decision("glibc", "", (), (), (), 0))
    found = measured(task(work), [Peer("twin", None, "libc")], Plan(rounds=50, decide=True, seed=1, precision=100))
    assert max(s.round for s in found.samples) == LEAST_ROUNDS


def test_too_few_rounds_are_said(work: Path) -> None:
    found = measured(task(work), [], plan(2))
    assert any("too few for a verdict" in text for text in found.caveats)


def test_interruption_keeps_the_rounds_that_were_measured(work: Path) -> None:
    def stop(progress: plans.Progress) -> None:
        if progress.round == 4:
            raise KeyboardInterrupt

    outcome = session.Sitting([(task(work), plan(9))], [GLIBC], ["x"], stop).run()
    assert outcome.interrupted
    assert {s.round for s in outcome.result.experiments[0].samples} == {1, 2, 3}


def test_shown_controls_run_in_a_few_rounds_only(work: Path, controls: dict[str, Peer]) -> None:
    null = dataclasses.replace(controls["null"], kind="control")
    found = measured(task(work), [null], plan(6, control_rounds=2))
    runs = Counter(s.peer for s in found.samples)
    assert runs == {"glibc": 6, "glibc again": 6, "null": 2}


def test_counts_come_from_passes_of_their_own(work: Path, controls: dict[str, Peer]) -> None:
    found = measured(task(work, "2000", "64"), [controls["passthrough"]], plan(2, counts=True))
    counted = {s.peer: s.figures for s in found.samples if s.round == -1}
    assert counted.keys() == {"glibc", "passthrough"}
    assert counted["passthrough"]["instructions"] > counted["glibc"]["instructions"] > 100_000
    assert counted["glibc"]["syscalls"] > 10
    row = compare.table_of(found, "glibc").row("passthrough")
    assert row is not None and row.counts == counted["passthrough"] and row.runs == 2


def test_a_missing_baseline_and_a_path_that_the_linker_would_split_are_named(work: Path) -> None:
    with pytest.raises(UserError, match="baseline 'x' is not among"):
        Engine(task(work), [GLIBC], "x", plan(1), lambda p: None)
    with pytest.raises(UserError, match="blanks or colons"):
        measured(task(work), [Peer("bad", "/tmp/a b.so")], plan(1))


def test_stolen_time_is_said() -> None:
    engine = Engine(Task("t", "w", ("/bin/true",)), [GLIBC], "glibc", plan(1), lambda p: None)
    engine.experiment.samples = [Sample("glibc", r, "ok", gauges={"steal": 0.2}) for r in range(1, 10)]
    engine.sampler.closing_caveats()
    assert engine.experiment.caveats == ["in 9 of 9 runs the host took more than 5% of the CPU time"]


def test_a_workload_program_is_warmed_up_and_proven_once_per_allocator(controls: dict[str, Peer]) -> None:
    words = {n: (str(workload_program()), "pair", "--size=64", f"--rounds={n}", "--idle-ms=0") for n in (1000, 2000)}
    seen: list[tuple[str, str, int]] = []
    proven: set[tuple[str, str]] = set()
    peers = [GLIBC, controls["passthrough"], controls["not-loading"]]
    for n, argv in words.items():
        pair = Task(f"pair{n}", "pair", argv, read="workload")
        engine = Engine(pair, peers, "glibc", plan(1), lambda p: seen.append((p.task, p.peer, p.round)), proven)
        experiment = engine.measure()
        assert statuses(experiment, "not-loading") == {"not_loaded"}
        assert [s.status for s in experiment.samples if s.peer == "passthrough"] == ["ok"]
    assert ("pair1000", "passthrough", 0) in seen and ("pair2000", "passthrough", 0) not in seen
    assert ("pair2000", "glibc", 0) in seen, "the golden output is learnt for each experiment"
    assert ("pair2000", "not-loading", 0) in seen, "who was refused is asked again"


def test_an_unfit_allocator_is_left_out_and_said(work: Path, controls: dict[str, Peer]) -> None:
    found = measured(task(work, "5", "5", "5", unfit={"null": "it never frees"}), [controls["null"]], plan(1))
    assert {s.peer for s in found.samples} == {"glibc", "glibc again"}
    assert "null is left out: it never frees" in found.caveats
