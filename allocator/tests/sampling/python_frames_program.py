"""Allocates where the test looks: each place by a path of its own through the interpreter. Lines are marked for it."""

import threading


class Store:
    def fill(self, count):
        return [bytes(3001) for _ in range(count)]  # line: fill


def by_c(word):
    return bytes(5003) + word  # line: by_c


def generated():
    for _ in range(20):
        yield bytes(7001)  # line: generated


def größe():
    return bytearray(9001)  # line: größe


def outer():
    kept = [Store().fill(30)]  # line: outer.fill
    kept += sorted([b"b", b"a"] * 20, key=by_c)  # line: outer.by_c
    kept += generated()  # line: outer.generated
    kept += [größe() for _ in range(20)]  # line: outer.größe
    return kept


def deep(depth):
    return deep(depth - 1) if depth else bytes(11003)  # line: deep


kept = [outer()]  # line: module
kept += [deep(40) for _ in range(20)]
thread = threading.Thread(target=lambda: kept.extend(bytes(13001) for _ in range(20)))
thread.start()
thread.join()
