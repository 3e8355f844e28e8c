"""What a stored result says of the code that it measured: the lab's stamp."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "lab"))

from freestone_lab.core.measured import stamp as stamp  # noqa: E402
