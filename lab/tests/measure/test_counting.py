"""A pass that counts runs the program as the others do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from freestone_lab.measure import counts


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_output_goes_to_a_file(tmp_path: Path) -> None:
    """grep ends at its first match when it writes to /dev/null."""
    script = "found=$(readlink /proc/$$/fd/1); echo $found > seen"
    assert counts.syscalls(("sh", "-c", script), dict(os.environ), tmp_path, None, tmp_path)
    assert (tmp_path / "seen").read_text().strip() != "/dev/null"
