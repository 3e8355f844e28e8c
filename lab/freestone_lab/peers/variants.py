"""Allocators with options: `dirty_bytes=0,8m,64m` makes three of libfreestone, `jemalloc:narenas=1,4` two of jemalloc.

Each family takes its options through a variable of its own; a name in capital letters is the variable itself.
"""

import difflib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer

OWN = "freestone"
_FORM = "expected OPTION=VALUE,VALUE... or ALLOCATOR:OPTION=VALUE,VALUE..."
_NAME = re.compile(r"^OPTION\(\w+, (\w+),", re.MULTILINE)


def variable(family: str, option: str, value: str) -> tuple[str, str]:
    """The environment that sets one option of an allocator family."""
    if option.isupper():
        return option, value
    if family.startswith(OWN):
        return "FREESTONE_CONF", f"{option}:{value}"
    if family.startswith("jemalloc"):
        return "MALLOC_CONF", f"{option}:{value}"
    if family.startswith("mimalloc"):
        return f"MIMALLOC_{option.upper()}", value
    if family.startswith(("tcmalloc", "gperftools")):
        return f"TCMALLOC_{option.upper()}", value
    if family.startswith("glibc"):
        return "GLIBC_TUNABLES", f"glibc.malloc.{option}={value}"
    if family.startswith("scudo"):
        return "SCUDO_OPTIONS", f"{option}={value}"
    unknown = f"it is not known how {family} takes options; name its variable in capitals"
    raise UserError(f"--option {family}:{option}: {unknown}")


def _parsed(text: str) -> tuple[str, str, list[str]]:
    head, equals, values = text.partition("=")
    family, colon, option = head.rpartition(":")
    family = family if colon else OWN
    found = [v.strip() for v in values.split(",")]
    if not equals or not re.fullmatch(r"\w[\w.-]*", option) or not family or not all(found):
        raise UserError(f"--option '{text}': {_FORM}")
    return family, option, found


def _expect_known(option: str, text: str) -> None:
    """Refuses an option that libfreestone does not have, if its table is at hand."""
    table = paths.root() / "allocator" / "src" / "config" / "options.def"
    if option.isupper() or not table.is_file():
        return
    known = _NAME.findall(table.read_text())
    if option not in known:
        near = difflib.get_close_matches(option, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else "docs/TUNING.md lists them"
        raise UserError(f"--option '{text}': libfreestone has no option '{option}'; {hint}")


def _expect_accepted(variant: Peer, text: str) -> None:
    """Refuses a value that libfreestone refuses: it would be measured with the default under the value's name."""
    if variant.path is None or not Path(variant.path).is_file():
        return
    env = {**os.environ, **dict(variant.env), "LD_PRELOAD": variant.path}
    done = subprocess.run(["/bin/sh", "-c", ":"], env=env, capture_output=True)
    for line in done.stderr.decode(errors="replace").splitlines():
        if (wrong := line.removeprefix("freestone: FREESTONE_CONF: ")) != line:
            raise UserError(f"--option '{text}': {wrong}")


def with_options(chosen: Sequence[Peer], options: Sequence[str]) -> list[Peer]:
    """`chosen` with a variant for each value of each option, placed behind its allocator."""
    made: dict[str, list[Peer]] = {}
    for text in options:
        family, option, values = _parsed(text)
        base = next((p for p in chosen if p.name == family), None)
        base = base or next((p for p in chosen if p.name.startswith(family)), None)
        if base is None:
            raise UserError(f"--option '{text}': '{family}' is not measured; expected one of {names(chosen)}")
        if base.name.startswith(OWN):
            _expect_known(option, text)
        for value in values:
            key, setting = variable(base.name, option, value)
            env = (*((k, v) for k, v in base.env if k != key), (key, _joined(dict(base.env).get(key), setting)))
            variant = replace(base, name=f"{base.name} {option}={value}", env=env)
            if base.name.startswith(OWN):
                _expect_accepted(variant, text)
            made.setdefault(base.name, []).append(variant)
    return [p for base in chosen for p in (base, *made.get(base.name, []))]


def _joined(before: str | None, setting: str) -> str:
    return f"{before},{setting}" if before else setting


def names(chosen: Sequence[Peer]) -> str:
    return ", ".join(p.name for p in chosen)
