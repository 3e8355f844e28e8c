"""docs/BENCHMARKS.md and its drawings come from the stored results, and the committed ones are up to date."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import synthetic

from freestone_lab import documents
from freestone_lab.errors import UserError
from freestone_lab.model import save

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
