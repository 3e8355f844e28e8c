"""The tables of the documents that stored results give: one description for each, and what makes its text.

A table stands in its document between the marked lines of its name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

from freestone_lab.attacks import enumerated
from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import load
from freestone_lab.docs import abilities, ages
from freestone_lab.docs.pages import below, cell_text, command_text, grid, stored, with_section, wrapped
from freestone_lab.host import real_programs
from freestone_lab.workloads import mitigation_costs

ATTACKS, COMPATIBILITY, COSTLY, PROGRAMS, TORTURE, TRACE = (
    Path(f"docs/{name}.md") for name in ("ATTACKS", "COMPATIBILITY", "HARDENING-COSTS", "PROGRAMS", "TORTURE", "TRACE")
)
JUDGED = {"same": "same", "differs": "**differs**", "fails": "**fails**"}
TIMED = {
    "test_a_server_hardly_notices[redis]": "redis, 8 commands at a time",
    "test_a_server_hardly_notices[nginx]": "nginx, 8 connections",
    "test_sixteen_threads_pay_at_most_half_as_much_again": "16 threads that only allocate",
}


@dataclass(frozen=True)
class Table:
    """`text` makes it from what `read` finds in the file `result`."""

    document: Path
    name: str
    result: Path
    read: Callable[[Path], Any]
    text: Callable[[Any], str]


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; only of tables whose result is stored."""
    made: dict[Path, str] = {}
    for table in TABLES:
        if (root / table.result).is_file():
            page = made.get(table.document) or (root / table.document).read_text(encoding="utf-8")
            found = table.read(root / table.result)
            text = f"{table.text(found)}\n\n{ages.note(root, table.result)}"
            made[table.document] = with_section(page, table.document, table.name, text)
    return made


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def mitigations(result: Result) -> str:
    costs = mitigation_costs.costs(result)

    def cell(ratios: dict[str, float], variant: mitigation_costs.Variant) -> str:
        own, base = ratios.get(variant.name), ratios.get(variant.base)
        if own is None or base is None or variant.base == mitigation_costs.FAST:
            return _ratio(own)
        return f"{own:.2f} ({own - base:+.2f})"

    rows = [[f"`{variant.name}`", *(cell(c.ratios, variant) for c in costs)] for variant in _variants()]
    rows.append(["glibc", *(_ratio(c.ratios.get("glibc")) for c in costs)])
    said = (
        f"Time relative to the fast build, `{command_text(result.command)}` (`docs/results/mitigations.json.gz`, "
        "geometric means of paired rounds). A mitigation that needs the trailer is built with it; the number in "
        "brackets is what the mitigation adds by itself."
    )
    return below(said, ["mitigation", *(c.title for c in costs)], rows)


def _variants() -> list[mitigation_costs.Variant]:
    return mitigation_costs.variants(mitigation_costs.policy_text(paths.root()))


def attacks(result: Result) -> str:
    made = enumerated.grid(result)
    rounds = max((int(experiment.params["rounds"]) for experiment in result.experiments), default=0)
    said = (
        f"Percent seen, trapped or without effect, rounded down, {rounds} of each kind with seed {result.seed}, "
        f"`{command_text(result.command)}` (`{ENUMERATED}`). The worst kind of the first column comes first:"
    )
    notes = "".join(f"\n- {note}" for note in made.notes)
    return below(said, made.headings, made.rows) + (f"\n{notes}" if notes else "")


def recording(report: ElementTree.Element) -> str:
    """The processor time of a recorded program in relation to an unrecorded one, of a report by pytest (JUnit XML).

    UserError if a test is not in it.
    """
    costs = {
        case.get("name"): [float(word) for word in str(found.get("value")).split()]
        for case in report.iter("testcase")
        for found in case.iter("property")
        if found.get("name") == "cost"
    }
    if missing := TIMED.keys() - costs.keys():
        raise UserError(f"{RECORDING}: expected the property 'cost' of {', '.join(sorted(missing))}")
    rows = [
        (said, f"{median(costs[name]):.2f}", f"{min(costs[name]):.2f} to {max(costs[name]):.2f}", str(len(costs[name])))
        for name, said in TIMED.items()
    ]
    return grid(("program", "recorded / not", "spread", "turns"), rows, "---:")


def torture(result: dict[str, Any]) -> str:
    """The axes that both builds passed, with the calls refused; a row for each of the others, with the outcomes."""
    axes: dict[str, dict[str, dict[str, Any]]] = {}
    for row in result["rows"]:
        axes.setdefault(row["axis"], {})[row["build"]] = row
    builds, rows, passed = ("fast", "hardened"), [], []
    for name, runs in axes.items():
        counts = [str(sum(runs[build]["refused"].values())) for build in builds if build in runs]
        refused = "" if set(counts) == {"0"} else f" ({' / '.join(counts)})"
        if all(run["outcome"] == "passed" for run in runs.values()) and name not in result["not_met"]:
            passed.append(f"`{name}`{refused}")
            continue
        outcomes = [cell_text(runs[build]["outcome"].partition("; ")[0]) if build in runs else "" for build in builds]
        rows.append([f"`{name}`", *outcomes, "not met" if name in result["not_met"] else " / ".join(counts)])
    said = (
        f"{sum(row['outcome'] == 'passed' for row in result['rows'])} of {len(result['rows'])} runs passed, in "
        f"{result['seconds']} seconds (`{TORTURED}`, seed {result['seed']:#x}, on {result['machine']}, "
        "`docs/results/torture.json`)."
    )
    listed = wrapped(f"Passed, with the calls refused under the fast and the hardened library: {', '.join(passed)}.")
    others = [grid(("what is refused or set", *builds, "calls refused"), rows)] if rows else []
    return "\n\n".join([wrapped(said), listed, *others])


def programs(result: dict[str, Any]) -> str:
    judged = [row for row in result["programs"] if row["verdict"] in JUDGED]
    own = [row["program"] for row in result["programs"] if row["verdict"] == "same" and row.get("own_malloc")]
    said = (
        f"{_same(result)} of {len(judged)} programs end with the same status and output under both libraries as "
        f"without one (`freestone test --programs` on {result['machine']}, `{real_programs.RESULT}`). CPU time and "
        "the largest process's peak memory are of one run without a library; `fast` and `hardened` are ratios to it. "
        f"One run shows crashes, not differences of a few per cent. {_beside(result)}"
    )
    served = "Served by a malloc of their own, with the library loaded into each of their processes: "
    shown = below(said, ("program", "result", *COSTS), [_judged(row) for row in judged], "--- ---:")
    return "\n\n".join([shown, *([wrapped(f"{served}{', '.join(own)}.")] if own else []), *_not_judged(result)])


def program_suites(result: dict[str, Any]) -> str:
    judged = [row for row in result["programs"] if row["verdict"] in JUDGED]
    notes = [f"{row['program']}: `{' '.join(row['detail'].split())}`" for row in judged if row["verdict"] != "same"]
    for row in (row for row in judged if row["left_out"]):
        names = {why: ", ".join(n for n, r in row["left_out"].items() if r == why) for why in row["left_out"].values()}
        reasons = "; ".join(f"{reason}: {of}" for reason, of in names.items())
        notes.append(f"Left out of {row['program']}'s: {reasons}.")
    said = (
        f"A fixed part of the own test suites of {len(judged)} programs (`freestone test --programs suites` on "
        f"{result['machine']}, `{real_programs.SUITES}`). {_same(result)} suites say the same of each of their tests "
        "under both libraries as without one, failures included. Processes: the least number that the library served. "
        f"{_beside(result)}"
    )
    rows = [_judged(row, str(row["tests"]), str(row["processes"])) for row in judged]
    shown = below(said, ("suite of", "result", "tests", "processes", *COSTS), rows, "--- ---:")
    return "\n\n".join([shown, *map(wrapped, notes), *_not_judged(result)])


COSTS = ("CPU, s", "fast", "hardened", "peak, MiB", "fast", "hardened")


def _judged(row: dict[str, Any], *counts: str) -> list[str]:
    cells = [row["program"], JUDGED[row["verdict"]], *counts]
    for figures, shown in ((row["cpu_s"], "{:.2f}"), (row["peak_kib"], "{:.0f}")):
        none = figures["none"]
        cells.append(shown.format(none if shown == "{:.2f}" else none / 1024))
        cells += [f"{figures[name] / none:.2f}" if none else "-" for name in ("fast", "hardened")]
    return cells


def _same(result: dict[str, Any]) -> int:
    return sum(row["verdict"] == "same" for row in result["programs"])


def _beside(result: dict[str, Any]) -> str:
    busy = f"{result['busy_beside']:.1f}"
    return "" if busy == "0.0" else f"Other work kept {busy} of {result['processors']} processors busy meanwhile."


def _not_judged(result: dict[str, Any]) -> list[str]:
    left = [
        f"{row['program']} ({' '.join(row['detail'].split())[:90] or row['verdict']})"
        for row in result["programs"]
        if row["verdict"] not in JUDGED
    ]
    return [wrapped(f"Not judged: {', '.join(left)}.")] if left else []


def roots(result: dict[str, Any]) -> str:
    every = result["roots"]
    names = ", ".join(sorted({name for root in every for name in root["programs"]}))
    tests = ", ".join(sorted({name.rpartition(".")[0] for root in every for name in root["tests"]}))
    unrun = ", ".join(sorted({package for root in every for package, name in root["linked"].items() if not name}))
    said = (
        f"The same two files, built on {result['machine']}, ran in roots of other releases of Debian (`freestone test "
        f"--programs roots`, `{real_programs.ROOTS}`): the programs {names}, and under both the tests {tests}. "
        "Under either library, a jemalloc or tcmalloc that a program is linked with served no request."
    )
    heads = "root, glibc, programs the same, tests passed, packages with a malloc of their own, wrong, not judged"
    linked = wrapped(
        "A package with a malloc of its own depends on libjemalloc2, libtcmalloc or libmimalloc; the column counts "
        "those of which a program ran. Programs that call mimalloc by its own names (`mi_malloc`) keep it.",
        f"Not run: {unrun}.",
    )
    return f"{below(said, heads.split(', '), map(_root, every), '--- ---: ---: ---')}\n\n{linked}"


def _root(root: dict[str, Any]) -> list[str]:
    outcomes = [*root["programs"].items(), *root["tests"].items()]
    bad = [f"**{name} {outcome}**" for name, outcome in outcomes if outcome in ("fails", "differs", "failed")]
    left = [name for name, outcome in outcomes if outcome in ("skipped", "unsteady")]
    same, passed = (sum(o == good for _, o in outcomes) for good in ("same", "passed"))
    linked = f"{sum(map(bool, root['linked'].values()))} of {len(root['linked'])}"
    return [root["name"], root["glibc"], str(same), str(passed), linked, *(", ".join(n) or "none" for n in (bad, left))]


TORTURED = "./freestone build all && ctest --test-dir build/release -R torture.whole"
RESULTS = Path("docs/results")
ENUMERATED, REUSE = RESULTS / "attacks/enumerated.json.gz", RESULTS / "attacks/reuse.json.gz"
RECORDING = RESULTS / "recording-cost.xml"


def _plain(schema: str, command: str) -> Callable[[Path], dict[str, Any]]:
    return partial(stored, schema=schema, command=command)


_RUN = _plain(real_programs.SCHEMA, real_programs.COMMAND)
_ROOTS = _plain(real_programs.ROOTS_SCHEMA, real_programs.COMMAND)


TABLES = (
    Table(COSTLY, "mitigations", RESULTS / "mitigations.json.gz", load, mitigations),
    Table(ATTACKS, "enumerated", ENUMERATED, load, attacks),
    Table(ATTACKS, "abilities", REUSE, load, abilities.text),
    Table(PROGRAMS, "programs", real_programs.RESULT, _RUN, programs),
    Table(PROGRAMS, "suites", real_programs.SUITES, _RUN, program_suites),
    Table(COMPATIBILITY, "roots", real_programs.ROOTS, _ROOTS, roots),
    Table(TRACE, "recording cost", RECORDING, lambda path: ElementTree.parse(path).getroot(), recording),
    Table(TORTURE, "torture", RESULTS / "torture.json", _plain("freestone-torture/1", TORTURED), torture),
)
