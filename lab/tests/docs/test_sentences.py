"""Figures in the prose of documents follow from the stored results."""

import json
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result_file import load
from freestone_lab.docs import pages, sentences


def sentence(text: str) -> sentences.Sentence:
    return sentences.Sentence(Path("X.md"), text, Path(), lambda _: [])


@pytest.mark.parametrize("place", range(len(sentences.SENTENCES)))
def test_a_figure_that_was_changed_by_hand_is_put_right(place: int) -> None:
    one = sentences.SENTENCES[place]
    page = (paths.root() / one.document).read_text(encoding="utf-8")
    wrong = sentences.filled(page, one, ["77.7"] * one.text.count("{}"))
    assert wrong != page
    assert sentences.filled(wrong, one, one.values(paths.root())) == page


@pytest.mark.parametrize("one", [s for s in sentences.SENTENCES if s.figures], ids=lambda s: s.text[:30])
def test_a_sentence_names_each_figure_as_its_stored_result_does(one: sentences.Sentence) -> None:
    experiments = load(paths.root() / one.of).experiments
    for figure in one.figures:
        names = {e.specs[figure].label or e.id for e in experiments if figure in e.specs}
        assert any(name in one.text for name in names), (figure, names)


def test_a_page_names_every_result_that_its_sentences_are_of() -> None:
    for one in sentences.SENTENCES:
        assert one.of == sentences.CORPUS or f"`{one.of}`" in (paths.root() / one.document).read_text(encoding="utf-8")


def test_only_the_figures_change_and_lines_may_break_anywhere() -> None:
    page = "# X\n\nIt takes 1.5 s\nof 24,288 (a * b).\n"
    shown = sentences.filled(page, sentence("takes {} s of {} (a * b)."), ["2", "3,000"])
    assert shown == "# X\n\nIt takes 2 s\nof 3,000 (a * b).\n"


def test_a_sentence_that_was_rewritten_is_asked_for() -> None:
    with pytest.raises(UserError, match=r"X\.md: expected the sentence 'takes \{\} s'"):
        sentences.filled("It takes long.", sentence("takes {} s"), ["2"])


def test_a_stored_file_of_something_else_is_refused(tmp_path: Path) -> None:
    for text in ("nothing", "[]", json.dumps({"schema": "other"})):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(UserError, match=r"x\.json.*freestone bench torture"):
            pages.stored(tmp_path / "x.json", "freestone-torture/1", "freestone bench torture")
