"""What sampling at the default mean costs: time of alternated runs, and instructions counted by callgrind.

    python3 allocator/tests/sampling/sampling_cost.py build/release [ROUNDS [PROGRAM]]

Prints one line per program; the figures of docs/OBSERVABILITY.md come from here. sampling_cost_test.py holds the
instructions.
"""

import math
import os
import re
import resource
import statistics
import subprocess
import sys
from pathlib import Path

OFF, ON = "prof:false", "prof:true,prof_final:false"
SQL = (
    "create table t(a integer primary key, b text);"
    "with recursive r(i) as (select 1 union all select i + 1 from r where i < {rows}) "
    "insert into t select i, hex(i * 7919) from r;"
    "create index x on t(b);"
    "select count(*) from t a join t b on a.b = b.b;"
    "select length(group_concat(b)) from (select b from t order by b);"
)


def commands(build: Path, short: bool) -> dict[str, list[str]]:
    """Short ones for counting, which slows a program fifty times."""
    steps, rows = (2_000_000, 30_000) if short else (8_000_000, 400_000)
    workload = str(build / "freestone-workload")
    return {
        "lifetimes": [workload, "lifetimes", f"--steps={steps}", "--void=no", "--idle-ms=0"],
        "sqlite3": ["sqlite3", ":memory:", SQL.format(rows=rows)],
    }


def environment(build: Path, conf: str) -> dict[str, str]:
    return {**os.environ, "LD_PRELOAD": str((build / "libfreestone.so").resolve()), "FREESTONE_CONF": conf}


def seconds(command: list[str], env: dict[str, str]) -> float:
    """CPU time, user and system, of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def instructions(command: list[str], env: dict[str, str]) -> int:
    counted = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    done = subprocess.run(counted, env=env, check=False, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert done.returncode == 0 and found is not None, f"ended with {done.returncode}: {done.stderr}"
    return int(found[1])


def counts(command: list[str], build: Path) -> tuple[int, int]:
    """Without and with sampling. The samples fall at random: the count varies by a tenth of a percent."""
    return instructions(command, environment(build, OFF)), instructions(command, environment(build, ON))


def median_interval(values: list[float]) -> tuple[float, float]:
    """Of the median, at 95 %: the order statistics between which it lies by the binomial law."""
    ranked = sorted(values)
    reach = math.ceil(0.98 * math.sqrt(len(ranked)))
    middle = len(ranked) / 2
    return ranked[max(0, math.floor(middle - reach))], ranked[min(len(ranked) - 1, math.ceil(middle + reach) - 1)]


def main() -> None:
    build = Path(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    chosen = sys.argv[3:] or list(commands(build, short=False))
    for name in chosen:
        command = commands(build, short=False)[name]
        ratios = []
        for turn in range(rounds):
            order = (OFF, ON) if turn % 2 == 0 else (ON, OFF)
            pair = {conf: seconds(command, environment(build, conf)) for conf in order}
            ratios.append(pair[ON] / pair[OFF])
        least, most = median_interval(ratios)
        off, on = counts(commands(build, short=True)[name], build)
        print(
            f"{name}: time {statistics.median(ratios):.4f} of without "
            f"(95 % of the median: {least:.4f} to {most:.4f}, {rounds} rounds), "
            f"instructions {on / off:.4f} ({off:,} to {on:,})",
            flush=True,
        )


if __name__ == "__main__":
    main()
