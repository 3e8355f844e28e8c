"""Where a sitting writes. It tries every file before it measures anything."""

import webbrowser
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from freestone_lab.analysis.claims import Table, spoken
from freestone_lab.core import outputs
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import save
from freestone_lab.engine import preparation
from freestone_lab.report import export, write_report

Write = Callable[[Result, Sequence[Table], Path], None]


@dataclass
class Places:
    """The files of one sitting. Making this tries them all, before anything is measured."""

    result: Path
    page: Path
    others: Mapping[Path, Write] = field(default_factory=dict)
    open_page: bool = False

    def keep(self, result: Result) -> None:
        """Stores the result so far, and goes elsewhere if its place fails."""
        at = outputs.write(self.result, lambda place: save(result, place), preparation.to_stderr)
        self.result = at or self.result

    def write(self, result: Result, analysed: list[Table]) -> list[Path]:
        """Writes everything that was asked for. Returns the files that it could write, the result first."""
        result.claims = spoken(analysed)
        self.keep(result)
        made: list[Path | None] = [self.result]
        for path, make in self.others.items():
            made.append(outputs.write(path, partial(make, result, analysed), preparation.to_stderr))
        page = partial(write_report, [result], tables=[analysed])
        made.append(outputs.write(self.page, page, preparation.to_stderr))
        if self.open_page and made[-1] is not None:
            webbrowser.open(made[-1].resolve().as_uri())
        return [path for path in made if path is not None]


def places(kind: str, options: Namespace) -> Places:
    """Where everything goes: to the files asked for, and the rest to the current folder."""
    say = preparation.to_stderr
    result = outputs.usable(options.json or outputs.new_name(kind), say)
    derived = result.with_name(result.name.removesuffix(".gz")).with_suffix(".html")
    page = options.report or outputs.ours(derived, options.force, options.inputs)
    asked = [(getattr(options, name, None), write) for name, write in export.FORMS.items()]
    others = {outputs.usable(path, say): write for path, write in asked if path is not None}
    return Places(result, outputs.usable(page, say), others, options.open_page)
