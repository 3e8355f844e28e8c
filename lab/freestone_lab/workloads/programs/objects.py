"""Python's own data structures: trees of dicts and lists copied deeply, keys built from text, a graph walked."""

from __future__ import annotations

import copy
import hashlib
import random
from typing import Any

random.seed(7)


def tree(depth: int) -> object:
    if depth == 0:
        return [random.random(), str(random.getrandbits(48)), None]
    return {f"k{depth}-{i}": tree(depth - 1) for i in range(5)}


root = tree(5)
digest = hashlib.sha256()
for _ in range(9):
    root = copy.deepcopy(root)
digest.update(repr(root).encode())


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.links: list[Node] = []
        self.data: dict[str, Any] = {"name": name, "seen": 0}


nodes = [Node(f"node {i}") for i in range(40000)]
for node in nodes:
    node.links = random.sample(nodes, 4)
frontier, steps = [nodes[0]], 0
while frontier:
    node = frontier.pop()
    if node.data["seen"] < 2:
        node.data["seen"] += 1
        steps += 1
        frontier.extend(node.links)
words: dict[str, list[int]] = {}
for i in range(200000):
    words.setdefault(f"w{i * 7919 % 50021}", []).append(i)
digest.update(str(sorted((k, len(v), v[0]) for k, v in words.items())).encode())
print("steps", steps, "words", len(words), digest.hexdigest())
