"""JSON written and read, XML parsed and searched, regular expressions over a long text."""

from __future__ import annotations

import hashlib
import json
import random
import re
import xml.etree.ElementTree as xml
from typing import Any

random.seed(11)
WORDS = [hashlib.md5(str(i).encode()).hexdigest()[: 3 + i % 9] for i in range(3000)]


def record(i: int) -> dict[str, Any]:
    return {
        "id": i,
        "name": " ".join(random.choice(WORDS) for _ in range(4)),
        "tags": [random.choice(WORDS) for _ in range(random.randrange(8))],
        "position": {"x": random.random(), "y": random.random()},
        "active": i % 3 == 0,
        "parent": None if i % 5 else i // 5,
    }


records = [record(i) for i in range(16000)]
text = json.dumps(records, sort_keys=True)
for _ in range(3):
    again = json.loads(text)
    assert json.dumps(again, sort_keys=True) == text
rows = []
for r in records:
    cells = "".join(f"<tag>{t}</tag>" for t in r["tags"])
    rows.append(f'<row id="{r["id"]}"><name>{r["name"]}</name>{cells}</row>')
root = xml.fromstring("<table>" + "".join(rows) + "</table>")
tags = sum(len(row.findall("tag")) for row in root)
written = xml.tostring(root)
prose = " ".join(r["name"] for r in records)
found = re.findall(r"\b([a-f]+)(\d+)\w*", prose)
swapped = re.sub(r"(\w+) (\w+)", r"\2 \1", prose)
digest = hashlib.sha256(text.encode() + written + repr(found[:5000]).encode() + swapped.encode())
print("records", len(again), "tags", tags, "found", len(found), digest.hexdigest())
