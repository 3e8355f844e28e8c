"""Inputs of the real programs: generated from a fixed seed, so that every machine and every run reads the same bytes.

Each function writes one input below `folder`, unless it exists already, and returns its path. The caller keeps one
folder per version of this file. With these sizes a run under glibc takes 0.3 to 3 seconds on a machine of 2026.
"""

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path

SEED = 20260101


def _kept(name: str) -> Callable[[Callable[..., bytes]], Callable[..., Path]]:
    """Turns a function that makes bytes into one that writes them to `folder / name` once. `{}` takes the argument."""

    def wrap(make: Callable[..., bytes]) -> Callable[..., Path]:
        @functools.wraps(make)
        def write(folder: Path, *arguments: int) -> Path:
            path = folder / name.format(*arguments)
            if not path.is_file():
                folder.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(f"{path.name}.partial")
                partial.write_bytes(make(*arguments))
                partial.replace(path)
            return path

        return write

    return wrap


def _word(draw: random.Random, longest: int = 9) -> str:
    return "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randint(2, longest)))


@_kept("table.pla")
def truth_table(inputs: int = 11, outputs: int = 8, density: float = 0.52) -> bytes:
    """A PLA of random products, for espresso to minimise."""
    draw = random.Random(SEED)
    lines = [f".i {inputs}", f".o {outputs}"]
    for minterm in range(1 << inputs):
        bits = "".join("1" if draw.random() < density else "0" for _ in range(outputs))
        lines.append(f"{minterm:0{inputs}b} {bits}")
    return "\n".join([*lines, ".e", ""]).encode()


@_kept("people.json")
def people_json(count: int = 12000) -> bytes:
    """An array of flat records with a short list in each."""
    draw = random.Random(SEED + 1)
    cities = [f"{_word(draw)} {number}" for number in range(60)]
    people = [
        {
            "name": f"{_word(draw)} {_word(draw)}",
            "city": draw.choice(cities),
            "values": [draw.randrange(1000) for _ in range(draw.randint(1, 8))],
            "note": " ".join(_word(draw) for _ in range(5)),
        }
        for _ in range(count)
    ]
    return json.dumps(people).encode()


@_kept("people-{}.xml")
def people_xml(count: int) -> bytes:
    """Records with attributes and child elements."""
    draw = random.Random(SEED + 2)
    lines = ["<people>"]
    for number in range(count):
        note = " ".join(_word(draw) for _ in range(6))
        lines.append(
            f'<person id="p{number}" city="city{draw.randrange(90)}"><name>{_word(draw)} {_word(draw)}</name>'
            f"<score>{draw.randrange(10000)}</score><note>{note}</note></person>"
        )
    return "\n".join([*lines, "</people>", ""]).encode()


@_kept("words.txt")
def word_table(lines: int = 40000) -> bytes:
    """A text of eight words a line, from a vocabulary of 40,000."""
    draw = random.Random(SEED + 3)
    vocabulary = [f"{_word(draw)}{number % 977}" for number in range(40000)]
    text = "\n".join(" ".join(draw.choices(vocabulary, k=8)) for _ in range(lines))
    return text.encode() + b"\n"


@_kept("graph.dot")
def graph(nodes: int = 1500, edges: int = 2200) -> bytes:
    """A sparse directed graph for a layered layout."""
    draw = random.Random(SEED + 5)
    lines = ["digraph g {", "rankdir=LR;"]
    lines += [f'n{node} [label="{_word(draw)} {node}"];' for node in range(nodes)]
    for _ in range(edges):
        low, high = sorted(draw.sample(range(nodes), 2))
        lines.append(f"n{low} -> n{min(high, low + 25)};")
    return "\n".join([*lines, "}", ""]).encode()


@_kept("problem.smt2")
def smt_problem(variables: int = 24, clauses: int = 90) -> bytes:
    """Bit-vector sums and products with a known model, so the solver must find one."""
    draw = random.Random(SEED + 6)
    width = 16
    model = [draw.getrandbits(width) for _ in range(variables)]
    lines = ["(set-logic QF_BV)"]
    lines += [f"(declare-const x{number} (_ BitVec {width}))" for number in range(variables)]
    for _ in range(clauses):
        first, second, third = draw.sample(range(variables), 3)
        operator = draw.choice(["bvadd", "bvxor", "bvand", "bvor", "bvmul"])
        left, right = model[first], model[second]
        values = {"bvadd": left + right, "bvxor": left ^ right, "bvand": left & right, "bvor": left | right}
        total = (values.get(operator, left * right) + model[third]) % (1 << width)
        lines.append(f"(assert (= (bvadd ({operator} x{first} x{second}) x{third}) (_ bv{total} {width})))")
    return "\n".join([*lines, "(check-sat)", ""]).encode()


@_kept("templates.cpp")
def template_source(types: int = 3) -> bytes:
    """C++ that makes a compiler instantiate containers, algorithms and small class hierarchies."""
    draw = random.Random(SEED + 7)
    headers = ("algorithm", "functional", "map", "memory", "string", "unordered_map", "vector")
    lines = [*(f"#include <{header}>" for header in headers), "namespace made {"]
    lines.append("struct base { virtual ~base() = default; virtual long value() const = 0; };")
    for number in range(types):
        fields = [f"f{index}" for index in range(draw.randint(2, 6))]
        lines.append(f"struct t{number} final : base {{")
        lines += [f"  long {field} = {draw.randrange(1000)};" for field in fields]
        lines.append(f"  long value() const override {{ return {' + '.join(fields)}; }}")
        lines.append(f"  bool operator<(const t{number}& o) const {{ return value() < o.value(); }}\n}};")
        lines.append(f"template <typename T> T mix{number}(std::vector<T> v) {{")
        lines.append("  std::sort(v.begin(), v.end(), std::greater<T>());")
        lines.append(f"  T sum{{}}; for (const T& e : v) sum = sum * {draw.randrange(3, 99)} + e; return sum; }}")
        lines.append(
            f"long use{number}(int n) {{ std::map<t{number}, std::string> m; std::vector<std::unique_ptr<base>> v;"
        )
        lines.append(f"  for (int i = 0; i < n; ++i) {{ t{number} k; k.f0 = i; m.emplace(k, std::to_string(i));")
        lines.append(f"    v.push_back(std::make_unique<t{number}>(k)); }}")
        lines.append("  long sum = static_cast<long>(m.size()); for (const auto& e : v) sum += e->value();")
        lines.append(f"  return sum + mix{number}(std::vector<long>(static_cast<std::size_t>(n), sum)); }}")
    lines.append("}  // namespace made")
    return "\n".join([*lines, ""]).encode()


@_kept("history.stream")
def git_stream(commits: int = 500, files: int = 60) -> bytes:
    """A history for `git fast-import`: small edits to text files, with fixed authors and dates."""
    draw = random.Random(SEED + 8)
    contents = [[_word(draw) * 2 for _ in range(draw.randint(40, 400))] for _ in range(files)]
    out: list[bytes] = []
    for commit in range(commits):
        message = f"change {commit}: {_word(draw)} {_word(draw)}\n".encode()
        out.append(b"commit refs/heads/main\n")
        out.append(f"committer A U Thor <author@example.org> {1700000000 + commit * 3600} +0000\n".encode())
        out.append(b"data %d\n%s" % (len(message), message))
        for number in range(files) if commit == 0 else draw.sample(range(files), 4):
            lines = contents[number]
            for _ in range(6):
                lines[draw.randrange(len(lines))] = f"{_word(draw)} {_word(draw)} {commit}"
            lines.insert(draw.randrange(len(lines)), _word(draw))
            text = ("\n".join(lines) + "\n").encode()
            out.append(f"M 100644 inline dir{number % 7}/file{number}.txt\n".encode())
            out.append(b"data %d\n%s\n" % (len(text), text))
    return b"".join(out) + b"done\n"


def _resp(*words: str) -> bytes:
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        data = word.encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


@_kept("commands.resp")
def redis_commands(commands: int = 300000) -> bytes:
    """A pipelined conversation: makes strings, lists, hashes and sorted sets, deletes half of them, and quits."""
    draw = random.Random(SEED + 10)
    out = bytearray()
    values = [_word(draw, 60) * draw.randint(1, 6) for _ in range(2000)]
    keys = commands // 8
    for _ in range(commands):
        kind, key, value = draw.randrange(10), draw.randrange(keys), draw.choice(values)
        if kind < 3:
            out += _resp("SET", f"string:{key}", value)
        elif kind < 5:
            out += _resp("GET", f"string:{key}")
        elif kind == 5:
            out += _resp("LPUSH", f"list:{key % 900}", value)
        elif kind == 6:
            out += _resp("HSET", f"hash:{key % 2500}", f"field{draw.randrange(40)}", value)
        elif kind == 7:
            out += _resp("ZADD", f"set:{key % 1200}", str(draw.randrange(10**6)), value[:24])
        elif kind == 8:
            out += _resp("APPEND", f"string:{key}", value[:40])
        else:
            out += _resp("LRANGE", f"list:{key % 900}", "0", "5")
    for key in range(0, keys, 2):
        out += _resp("DEL", f"string:{key}")
    out += _resp("DBSIZE") + _resp("QUIT")
    return bytes(out)


@_kept("requests-{}.http")
def http_requests(number: int, requests: int) -> bytes:
    """Keep-alive requests for plain and compressed files; the last one closes the connection."""
    draw = random.Random(SEED + 11 + number)
    out = bytearray()
    for request in range(requests):
        name = f"{draw.choice(['plain', 'packed'])}/{draw.randrange(20)}.txt"
        closing = "close" if request == requests - 1 else "keep-alive"
        out += f"GET /{name} HTTP/1.1\r\nHost: local\r\nAccept-Encoding: gzip\r\nConnection: {closing}\r\n\r\n".encode()
    return bytes(out)


@_kept("Makefile")
def makefile(targets: int = 2500) -> bytes:
    """Rules that depend on one another, lists cut by functions, and some recipes that a shell runs."""
    lines = ["names := $(foreach n,$(shell seq 400),part$(n).o)", "all: last; @echo targets $(words $(every))"]
    for number in range(targets):
        before = f"t{number - 1} t{number * 7919 % number}" if number > 1 else ""
        lines.append(f"every += t{number}")
        lines.append(f"list{number} := $(filter %{number % 10}.o,$(patsubst part%,obj%,$(names)))")
        recipe = f"@echo $(words $(list{number})) > /dev/null" if number % 50 == 0 else "@:"
        lines.append(f"t{number}: {before}; {recipe}")
    return "\n".join([*lines, f"last: t{targets - 1}", ""]).encode()
