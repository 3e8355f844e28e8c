"""What recording costs: the program, in docs/TRACE.md, made from the report of the tests that measure it (JUnit XML, by
pytest); and as a whole, in docs/LAB.md, made from what `freestone trace cost` stored."""

from __future__ import annotations

import textwrap
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

from freestone_lab.core.errors import UserError
from freestone_lab.docs.pages import grid, section_from, stored
from freestone_lab.trace import recording_cost

DOCUMENT = Path("docs/TRACE.md")
WHOLE = Path("docs/LAB.md")
RESULT = Path("docs/results/recording-cost.xml")
NAMES = {
    "test_a_server_hardly_notices[redis]": "redis, 8 commands at a time",
    "test_a_server_hardly_notices[nginx]": "nginx, 8 connections",
    "test_sixteen_threads_pay_at_most_half_as_much_again": "16 threads that only allocate",
}


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    return {
        **section_from(root, DOCUMENT, RESULT, "recording cost", lambda path: table(path.read_text())),
        **section_from(root, WHOLE, recording_cost.RESULT, "recording whole", whole),
    }


def whole(path: Path) -> str:
    """Each program, and the range of all."""
    result = stored(path, recording_cost.SCHEMA, recording_cost.COMMAND)
    rows = [recording_cost.Row(**row) for row in result["programs"]]
    times = [median(recording_cost.ratios(row)) for row in rows]
    words = (
        f"{result['created'][:10]}, {result['machine']}, load {result['load']:.1f}, `{recording_cost.COMMAND}`: user "
        f"and system time of `freestone-record` and all below it is {min(times):.1f} to {max(times):.1f} times the "
        f"program's, medians of {result['rounds']} rounds."
    )
    shown = grid(recording_cost.HEADINGS, [recording_cost.cells(row) for row in rows], "---:")
    return f"{textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False)}\n\n{shown}"


def table(report: str) -> str:
    """The processor time of a recorded program in relation to an unrecorded one. UserError if a test is not in it."""
    costs = {
        case.get("name"): [float(word) for word in str(found.get("value")).split()]
        for case in ElementTree.fromstring(report).iter("testcase")
        for found in case.iter("property")
        if found.get("name") == "cost"
    }
    if missing := NAMES.keys() - costs.keys():
        raise UserError(f"{RESULT}: expected the property 'cost' of {', '.join(sorted(missing))}")
    rows = [
        (said, f"{median(costs[name]):.2f}", f"{min(costs[name]):.2f} to {max(costs[name]):.2f}", str(len(costs[name])))
        for name, said in NAMES.items()
    ]
    return grid(("program", "recorded / not", "spread", "turns"), rows, "---:")
