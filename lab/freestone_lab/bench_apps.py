"""Real programs as tasks of the method engine, from the table in `apps.py`. Absent programs are skipped and said."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from freestone_lab.method import Task


def _table() -> Any:
    if importlib.util.find_spec("freestone_lab.apps") is None:
        return None
    return importlib.import_module("freestone_lab.apps")


def names() -> list[str]:
    """Every application of the table, whether it is installed or not."""
    table = _table()
    return [app.name for app in table.APPS] if table else []


def tasks(wanted: list[str]) -> list[Task]:
    """The tasks of the named applications that are installed."""
    return []


def missing_packages() -> list[str]:
    """The packages that the applications need and the machine lacks."""
    return []
