"""docs/BENCHMARKS.md and its drawings come from the stored results, and the committed ones are up to date."""

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import synthetic

from freestone_lab.commands import docs
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.core.result_file import load, save
from freestone_lab.docs import benchmarks, distance_table, pages, trace_results
from freestone_lab.measure.samples import PROCESS_SPECS
from freestone_lab.report import page
from freestone_lab.report.overview import analyse
from freestone_lab.workloads import suites

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "docs/results").mkdir(parents=True)
    stored = synthetic.suite(["glibc", "freestone", "mimalloc", "isoalloc", "tbbmalloc"], rounds=9)
    save(stored, folder / "docs/results/full.json.gz")
    pages.write_all(folder, benchmarks.documents(folder))
    return folder


def result_of(experiments: list[Experiment], *names: str) -> Result:
    peers = [Peer("glibc", None, "libc"), *(Peer(name, f"/lib{name}.so") for name in names)]
    return Result("2026-11-20T12:00:00Z", ["x"], 1, {}, peers, experiments)


def outdated(root: Path) -> list[str]:
    return pages.differences(root, benchmarks.documents(root))


@pytest.mark.all
def test_written_documents_are_up_to_date_and_an_edit_is_noticed(root: Path) -> None:
    assert outdated(root) == []
    page = root / benchmarks.DOCUMENT
    before = page.read_text()
    page.write_text(before.replace("0.", "9.", 1))
    assert outdated(root) == ["docs/BENCHMARKS.md differs from what `freestone docs` writes"]
    page.write_text(before)
    plot = next((root / benchmarks.PLOTS).glob("*-pareto.svg"))
    drawing = plot.read_text()
    plot.unlink()
    assert outdated(root) == [f"docs/plots/{plot.name} is missing"]
    plot.write_text(re.sub(r"(?<=\d)\.\d", ".7", drawing))
    assert outdated(root) == [], "where the library of drawings puts a letter is no difference"
    plot.write_text(re.sub(r'(data-shown=")[0-9a-f]+', r"\g<1>0123", drawing))
    assert outdated(root) == [f"docs/plots/{plot.name} differs from what `freestone docs` writes"]
    plot.write_text(drawing)


def test_document_names_command_failures_null_cost_and_every_experiment(root: Path) -> None:
    text = (root / benchmarks.DOCUMENT).read_text()
    assert "Reproduce: `freestone bench full`" in text
    assert "tbbmalloc in latency/threads=2,size=64 (was not loaded in" in text
    assert "| null |" in text
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()]
    stored = load(root / "docs/results/full.json.gz")
    assert {experiment.id for experiment in stored.experiments} <= set(rows)
    assert len(text.splitlines()) < 300


def test_a_shown_command_writes_where_results_are_stored() -> None:
    command = "freestone bench full --json /tmp/q/full.json.gz --report /tmp/q/full.html --rounds 5"
    assert pages.command_text(command.split()) == "freestone bench full --json docs/results/full.json.gz --rounds 5"


def test_the_distance_from_the_best_names_the_rows_behind() -> None:
    def sample(peer: str, seconds: float, kib: float) -> Sample:
        return Sample(peer, 1, "ok", figures={"wall": seconds, "rss": kib})

    experiments = [
        Experiment(name, name, specs=dict(PROCESS_SPECS), samples=[sample("glibc", wall, 100), other])
        for name, wall, other in (
            ("a", 2, sample("freestone", 1, 300)),
            ("b", 1, sample("freestone", 4, 100)),
            ("c", 1, sample("freestone", 1.2, 130)),
            ("d", 1, Sample("freestone", 1, "failed")),
        )
    ]
    result = result_of(experiments, "freestone")
    made = distance_table.section(page.part_of(result).analysis)
    assert made is not None
    assert "| freestone | 1.69 | 1 of 3 | b 4.00 | 1.57 | 1 of 3 | a 3.00 |" in made["all"]
    assert "| glibc | 1.26 | 1 of 3 | a 2.00 | 1.00 | 0 of 3 | a 1.00 |" in made["all"]
    assert "| time | b 4.00 (glibc) |" in made["ours"] and "| memory | a 3.00 (glibc) |" in made["ours"]


@pytest.mark.parametrize(("time", "said"), [("whole", "the whole replay, less its own"), ("calls", "inside the calls")])
def test_recorded_programs_have_a_table_that_names_the_worst_rows(time: str, said: str) -> None:
    def sample(peer: str, round_: int, by: float) -> Sample:
        figures = {"calls": 0.1, time: 0.1 * by, "rss": 2048 * by, "rss_mean": 1024 * by}
        return Sample(peer, round_, "ok", figures=figures)

    specs = {name: FigureSpec("s") for name in {"calls", time}}
    programs = [
        Experiment(
            f"replay/p{n}", f"p{n}", {}, specs,
            samples=[s for r in range(1, 6) for s in (sample("glibc", r, 1), sample("own", r, 0.5 + n / 10))],
        )
        for n in range(12)
    ]  # fmt: skip
    programs.append(Experiment("replay/short", "short", {}, specs, samples=[]))
    for round_ in range(1, 6):  # a tenth of the least time that counts
        programs[-1].samples += [sample("glibc", round_, 0.01), sample("own", round_, 1)]
    result = result_of(programs, "own")
    made = trace_results.section(result)
    assert said in made["about"]
    assert "p11 1.60, p10 1.50, p9 1.40" in made["grid"] and "| own | 0.99 (" in made["grid"]
    assert ") of 12 | " in made["grid"] and ") of 13 | " in made["grid"]
    assert made["failures"] == ""
    programs[3].samples.append(Sample("own", 2, "wrong_output", "checksum differs from glibc's"))
    assert trace_results.section(result)["failures"] == "own in replay/p3 (1 of 6 runs: checksum differs from glibc's)"


def test_every_picture_exists_and_is_an_image_on_its_own(root: Path) -> None:
    text = (root / benchmarks.DOCUMENT).read_text()
    names = re.findall(r"!\[[^\]]+\]\((plots/[^)]+)\)", text)
    assert len(names) >= 6
    for name in names:
        tree = ElementTree.parse(root / "docs" / name)
        assert tree.getroot().tag.endswith("svg")
        style = tree.getroot().find("{http://www.w3.org/2000/svg}style")
        assert style is not None
        assert "--ink" in (style.text or "")


def test_drawings_nobody_calls_for_are_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "MODULES", (benchmarks,))
    stray = root / benchmarks.PLOTS / "old.svg"
    stray.write_text("<svg/>")
    written = docs.write(root)
    assert not stray.exists()
    assert all((root / path).is_file() for path in written)


def test_no_stored_result_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no result file"):
        benchmarks.documents(tmp_path)


def test_every_published_experiment_of_the_suite_is_named() -> None:
    experiments = [
        Experiment(run.id, run.workload, samples=[Sample("glibc", 1, "ok", figures={"wall": 1.0})])
        for run in suites.suite("published")
    ]
    result = result_of(experiments)
    text = benchmarks.published(result)
    for run in suites.suite("published"):
        assert f"`{run.id}`" in text, run.id
    articles = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")}
    assert articles >= set("01234")
    assert benchmarks.published(dataclasses.replace(result, experiments=[])) == ""


def test_programs_small_heaps_and_synthetic_workloads_have_columns_of_their_own() -> None:
    def sample(peer: str, number: int, time: float, memory: float) -> Sample:
        noise = 1 + number % 3 / 1000
        return Sample(peer, number, "ok", figures={"wall": time * noise, "cpu": time * noise, "rss": memory * noise})

    kinds = {"app": (0.97, 1.1), "micro": (0.5, 1.0)}
    peaks = {"app": 10_000, "micro": 1000}  # KiB
    experiments = [
        Experiment(
            f"{kind}/p{n}", f"{kind}{n}", specs=dict(PROCESS_SPECS),
            caveats=["run with HEAP=off: every object comes from the allocator"] if kind == "app" and n < 4 else [],
            rounds_fixed=True,
            samples=[
                s
                for r in range(1, 6)
                for s in (
                    sample("glibc", r, 1, peaks[kind]),
                    sample("glibc again", r, 1, peaks[kind]),
                    sample("own", r, by[0], by[1] * peaks[kind]),
                )
            ],
        )
        for kind, by in kinds.items()
        for n in range(15)
    ]  # fmt: skip
    table = benchmarks.by_kind(analyse(result_of(experiments, "own")))
    heads, _, own = (line.strip("| ").split(" | ") for line in table.splitlines())
    programs = ("15 real programs", "11 with their own heap on", "15 with 5 to 40 MiB")
    assert heads[1:] == [
        f"{kind}: {what}" for kind in (*programs, "15 rows of 15 synthetic workloads") for what in ("time", "memory")
    ]
    assert [cell.split(" (")[0] for cell in own] == ["own", *["**0.97", "*1.10"] * 3, "**0.50", "1.00"]
