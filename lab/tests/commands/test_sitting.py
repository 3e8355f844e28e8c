"""What compare and bench do with a result: each experiment is analysed once, for the terminal and every file."""

import os
from argparse import Namespace
from pathlib import Path

import pytest
import synthetic

from freestone_lab.analysis import claims
from freestone_lab.commands import places, sitting
from freestone_lab.core.result import Experiment
from freestone_lab.engine.session import Outcome


def test_every_experiment_is_analysed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = synthetic.program()
    seen: list[str] = []
    real = claims.table_of

    def counted(experiment: Experiment, *rest: object) -> claims.Table:
        seen.append(experiment.id)
        return real(experiment, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(claims, "table_of", counted)
    monkeypatch.chdir(tmp_path)
    files = {name: tmp_path / f"out.{name}" for name in ("json", "csv", "markdown")}
    to = places.places("compare", Namespace(report=tmp_path / "out.html", open_page=False, **files))
    assert sitting.finish(Outcome(result, interrupted=False), to, []) == os.EX_OK
    assert seen == [e.id for e in result.experiments]
    shown = capsys.readouterr().out
    for written in (*files.values(), tmp_path / "out.html"):
        assert written.stat().st_size > 0
        assert str(written) in shown.replace("\n", "")
