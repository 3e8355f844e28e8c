"""Whether this Python has the packages of a pyproject.toml, each new enough: the exit status. Standard library only.

usage: python3 -B -I enough.py PYPROJECT
"""

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)[:2]]


def has(wanted: str) -> bool:
    name, _, least = wanted.partition(">=")
    try:
        return numbers(version(name)) >= numbers(least)
    except PackageNotFoundError:
        return False


if __name__ == "__main__":
    project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
    sys.exit(not all(has(wanted) for wanted in project["dependencies"]))
