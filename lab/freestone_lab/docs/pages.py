"""How to make a document: templates, sections between marked lines, and the check that the repository is up to date."""

import json
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2

from freestone_lab.core.errors import UserError
from freestone_lab.report.export import grid as grid
from freestone_lab.report.svg import DATA


def render(template: str, **values: Any) -> str:
    """The text of docs/templates/`template` with these values."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, from our own results
    )
    environment.filters["join_command"] = command_text
    return environment.get_template(template).render(**values)


def command_text(command: Sequence[str]) -> str:
    """A stored command, to make its result again: its file is the stored one's, its page is left out."""
    words = [f"docs/results/{Path(w).name}" if w.startswith("/tmp/") and ".json" in w else w for w in command]
    pages = {at for at, word in enumerate(words) if word.startswith("/tmp/")}
    return shlex.join(word for at, word in enumerate(words) if not {at, at + 1} & pages)


def cell_text(text: str) -> str:
    """Text that cannot break a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def wrapped(*words: str) -> str:
    """A paragraph."""
    return textwrap.fill(" ".join(filter(None, words)), 120, break_long_words=False, break_on_hyphens=False)


def below(said: str, headings: Sequence[str], rows: Iterable[Sequence[str]], rule: str = "---:") -> str:
    """A paragraph and its table."""
    return f"{wrapped(said)}\n\n{grid(headings, list(rows), rule)}"


def with_section(page: str, document: Path, name: str, text: str) -> str:
    """The page with `text` between its two marked lines of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise UserError(f"{document}: expected the lines {begin!r} and {end!r}, between which the table goes")
    return f"{head}{begin}\n{text}\n{end}{tail}"


def stored(path: Path, schema: str, command: str) -> dict[str, Any]:
    """What `command` stored as plain JSON. UserError if the file is something else."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as a result of `{command}`: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise UserError(f"{path}: expected a result of the schema {schema}, as `{command}` writes it")
    return found


def write_all(root: Path, made: dict[Path, str]) -> list[Path]:
    for path, text in made.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return sorted(made)


def differences(root: Path, made: dict[Path, str]) -> list[str]:
    """One line for each file of the repository that differs from what was made.

    For a drawing it compares the data behind it, because another version of matplotlib may place a label elsewhere.
    """
    lines = []
    for path, text in made.items():
        try:
            present = (root / path).read_text(encoding="utf-8")
        except OSError:
            lines.append(f"{path} is missing")
            continue
        drawn = path.suffix == ".svg"
        if present != text and not (drawn and DATA.findall(present) == DATA.findall(text)):
            lines.append(f"{path} differs from what `freestone docs` writes")
    return lines
