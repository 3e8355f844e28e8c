"""docs/BENCHMARKS.md and its drawings come from the stored results, and the committed ones are up to date."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import synthetic

from freestone_lab import documents, suites
from freestone_lab.errors import UserError
from freestone_lab.model import Experiment, Peer, Result, Sample, save

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "docs/results").mkdir(parents=True)
    save(
        synthetic.suite(["glibc", "freestone", "mimalloc", "isoalloc", "tbbmalloc"], rounds=9),
        folder / "docs/results/full.json.gz",
    )
    documents.write(folder)
    return folder


def test_committed_documents_follow_from_the_stored_results() -> None:
    if not any((ROOT / "docs/results").glob("*.json*")):
        pytest.skip("docs/results holds no result file")
    assert documents.outdated(ROOT) == []


def test_written_documents_are_up_to_date_and_an_edit_is_noticed(root: Path) -> None:
    assert documents.outdated(root) == []
    page = root / documents.DOCUMENT
    before = page.read_text()
    page.write_text(before.replace("0.", "9.", 1))
    assert documents.outdated(root) == ["docs/BENCHMARKS.md differs from what the stored results give"]
    page.write_text(before)
    plot = next((root / documents.PLOTS).glob("*-pareto.svg"))
    drawing = plot.read_text()
    plot.unlink()
    assert documents.outdated(root) == [f"docs/plots/{plot.name} is missing"]
    plot.write_text(drawing)


def test_document_names_command_failures_null_cost_and_caveats(root: Path) -> None:
    text = (root / documents.DOCUMENT).read_text()
    assert "Reproduce: `freestone bench full`" in text
    assert "| tbbmalloc | latency/threads=2,size=64 | was not loaded in" in text
    assert "| (null allocator) |" in text
    assert "Blocks above 128 KiB are mapped anew by glibc." in text
    assert len(text.splitlines()) < 300


def test_every_picture_exists_and_is_an_image_on_its_own(root: Path) -> None:
    text = (root / documents.DOCUMENT).read_text()
    names = re.findall(r"!\[[^\]]+\]\((plots/[^)]+)\)", text)
    assert len(names) >= 6
    for name in names:
        tree = ElementTree.parse(root / "docs" / name)
        assert tree.getroot().tag.endswith("svg")
        style = tree.getroot().find("{http://www.w3.org/2000/svg}style")
        assert style is not None
        assert "--ink" in (style.text or "")


def test_drawings_nobody_calls_for_are_removed(root: Path) -> None:
    stray = root / documents.PLOTS / "old.svg"
    stray.write_text("<svg/>")
    documents.write(root)
    assert not stray.exists()


def test_no_stored_result_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no result file"):
        documents.documents(tmp_path)


def test_every_published_experiment_of_the_suite_has_its_line_and_its_section() -> None:
    experiments = [
        Experiment(run.id, run.workload, samples=[Sample("glibc", 1, "ok", figures={"wall": 1.0})])
        for run in suites.PUBLISHED
    ]
    result = Result("2026-11-20T12:00:00Z", ["x"], 1, {}, [Peer("glibc", None, "libc")], experiments)
    lines = documents.published(result)
    text = "\n".join(lines)
    for run in suites.PUBLISHED:
        assert f"`{run.id}`" in text, run.id
        assert f"(#{documents.slug(run.workload)})" in text
    assert {line.split("|")[1].strip() for line in lines if line.startswith("| ")} >= {"0", "1", "2", "3", "4"}
    assert documents.published(dataclasses.replace(result, experiments=[])) == []
