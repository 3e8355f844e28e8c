"""Parses modules of Python's own library, turns the trees into JSON and back, and prints what was seen."""

import ast
import hashlib
import json
import re
import sysconfig
from pathlib import Path
from typing import Any

MODULES = ("json/decoder.py", "shlex.py", "queue.py", "heapq.py")


def as_data(node: Any) -> Any:
    if isinstance(node, ast.AST):
        return {"kind": type(node).__name__, **{name: as_data(value) for name, value in ast.iter_fields(node)}}
    if isinstance(node, list):
        return [as_data(value) for value in node]
    return node if isinstance(node, str | int | float | bool | None) else repr(node)


library = Path(sysconfig.get_paths()["stdlib"])
for name in MODULES:
    source = (library / name).read_text()
    text = json.dumps(as_data(ast.parse(source)), sort_keys=True)
    again = json.dumps(json.loads(text), sort_keys=True)
    words = re.findall(r"[A-Za-z_]+", source)
    print(name, len(words), len(set(words)), hashlib.sha256(again.encode()).hexdigest()[:16], text == again)
