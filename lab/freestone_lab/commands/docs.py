"""`freestone docs`: the documents that come from sources and stored results."""

from argparse import Namespace
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.docs import ages, benchmarks, pages, sentences, tables, tuning

# In this order: sections and sentences go into pages that a module before them wrote.
MODULES = (tuning, benchmarks, tables, sentences)


def run(options: Namespace) -> int:
    if not options.check and not options.release:
        for path in write(paths.root()):
            print(f"written: {path}")
        return 0
    root = paths.root()
    stale = [line for module in MODULES for line in pages.differences(root, module.documents(root))]
    stale += ages.unnamed(root) + (ages.other_than(root, paths.version()) if options.release else [])
    for line in stale:
        print(line)
    return 1 if stale else 0


def write(root: Path) -> list[Path]:
    """Writes every generated document, and removes drawings that no document shows."""
    written = [path for module in MODULES for path in pages.write_all(root, module.documents(root))]
    for drawing in sorted((root / benchmarks.PLOTS).glob("*.svg")):
        if benchmarks.PLOTS / drawing.name not in written:
            drawing.unlink()
    return written
