"""complete.py SHARE LIBRARIES VERSION: what an installation has beside the sources, made by the lab itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from freestone_lab.commands import manual
from freestone_lab.measure import native

share, libraries, version = sys.argv[1:]
manual.write(Path(share), version)
native.install(Path(libraries))
