"""docs/TUNING.md, made only from the allocator's option table."""

import re
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.docs.pages import render

DOCUMENT = Path("docs/TUNING.md")
TABLE = Path("allocator/src/config/options.def")

_ENTRY = re.compile(r'OPTION\((\w+), (\w+), ("[^"]*"|\d+), (\d+), (\d+), "([^"]*)", "([^"]*)"\)')
_LIMIT = "a size, `N%`, or 0"
_UNITS = ((1 << 50, "p"), (1 << 40, "t"), (1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k"))


@dataclass(frozen=True)
class Option:
    kind: str
    name: str
    default: str
    minimum: int
    maximum: int
    unit: str
    text: str

    @property
    def words(self) -> list[str]:
        return self.unit.split("|")

    def shown_default(self) -> str:
        match self.kind:
            case "flag":
                return f"`{'true' if self.default == '1' else 'false'}`"
            case "choice":
                return f"`{self.words[int(self.default)]}`"
            case "text":
                return f"`{self.default}`" if self.default else "empty"
            case "number":
                return f"`{self.default}`"
            case _:
                return f"`{size(int(self.default))}`"

    def shown_values(self) -> str:
        match self.kind:
            case "flag":
                return "`true`, `false`"
            case "choice":
                return ", ".join(f"`{word}`" for word in self.words)
            case "text":
                return f"a {self.unit}, at most {self.maximum} characters"
            case "number":
                unit = "" if self.unit in ("signal", "status") else f" {self.unit}"
                return f"{self.minimum} to {self.maximum}{unit}"
            case "limit":
                return _LIMIT
            case _:
                return f"{size(self.minimum)} to {size(self.maximum)}"

    def accepts(self, value: str) -> bool:
        """Whether the library takes this value."""
        match self.kind:
            case "flag":
                return value.lower() in ("true", "false", "on", "off", "yes", "no", "1", "0")
            case "choice":
                return value in self.words
            case "text":
                return len(value) <= self.maximum
            case "number":
                return value.isdigit() and self.minimum <= int(value) <= self.maximum
            case "limit" if value.endswith("%"):
                return value[:-1].isdigit() and 1 <= int(value[:-1]) <= 100
            case _:
                found = re.fullmatch(r"(\d+)([kmgt]?)", value)
                if found is None:
                    return False
                number = int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[found[2]]
                return self.minimum <= number <= self.maximum


def size(value: int) -> str:
    """A number of bytes as the options spell it."""
    for unit, letter in _UNITS:
        if value and value % unit == 0:
            return f"{value // unit}{letter}"
    return str(value)


def read_options(root: Path) -> list[Option]:
    """The option table. Raises UserError for a line that it does not understand."""
    options = []
    for number, line in enumerate((root / TABLE).read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("OPTION("):
            continue
        found = _ENTRY.fullmatch(line)
        if found is None:
            raise UserError(
                f"{TABLE}:{number}: expected OPTION(kind, name, default, minimum, maximum, unit, text): {line}"
            )
        kind, name, default, low, high, unit, text = found.groups()
        options.append(Option(kind, name, default.strip('"'), int(low), int(high), unit, text))
    if not options:
        raise UserError(f"{TABLE}: holds no option")
    return options


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content."""
    return {DOCUMENT: render("tuning.md.j2", options=read_options(root))}
