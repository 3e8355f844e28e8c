"""The jobs that run on their own: none hangs for hours, or passes since there was nothing to run, or does what no page
says."""

import re
from pathlib import Path

import pytest

from freestone_lab.core import paths

ROOT = paths.root()
PAGES = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/CONTRIBUTING.md"))


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_each_job_has_a_limit_and_runs_what_a_page_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    jobs = re.split(r"^  (?=\w+:$)", text.partition("\njobs:\n")[2], flags=re.MULTILINE)[1:]
    assert jobs and [job for job in jobs if "\n    timeout-minutes: " not in job] == []
    assert [line for line in text.splitlines() if "ctest" in line and "--no-tests=error" not in line] == []
    ours = re.findall(r"- run: (?:sudo )?((?:\./freestone [a-z]|packaging/|allocator/)\S*)", text)
    assert ours and [words for words in ours if words not in PAGES] == []
