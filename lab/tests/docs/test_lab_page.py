"""docs/LAB.md is complete: the fields of a result file, schemas, budgets, settings of peers, exit statuses."""

import dataclasses

import pytest

from freestone_lab.analysis.decision import MEMORY_FLOOR_KIB, MEMORY_LIMIT
from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.commands import compare, options, results
from freestone_lab.core import paths
from freestone_lab.core.result import SCHEMA, Claim, Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.flamegraph import table
from freestone_lab.peers import discover

PAGE = (paths.root() / "docs" / "LAB.md").read_text()
ROWS = {
    Result: "the file", Peer: "a peer", Experiment: "an experiment", FigureSpec: "an experiment", Sample: "a sample",
    Claim: "a claim",
}  # fmt: skip


@pytest.mark.parametrize("kind", ROWS)
def test_every_field_of_a_result_file_is_named(kind: type) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {ROWS[kind]} |"))
    assert [f.name for f in dataclasses.fields(kind) if f"`{f.name}`" not in row] == []


def test_schemas_limits_and_budgets_are_those_of_the_code() -> None:
    for schema in (SCHEMA, table.SCHEMA):
        assert f'`"{schema}"`' in PAGE
    assert (MEMORY_FLOOR_KIB, MEMORY_LIMIT, LEAST_ROUNDS) == (4096, 2, 5)
    assert f"`compare -- CMD` {compare.BUDGET_S:.0f} s, without CMD {compare.JOBS_BUDGET_S:.0f} s" in PAGE
    assert all(value in PAGE for setting in discover.SETTINGS for pair in setting.env for value in ["=".join(pair)])


def test_commands_with_a_status_of_their_own_are_in_the_table() -> None:
    table_of = PAGE[PAGE.index("## Exit statuses") :]
    stating = [n for n, c in options.COMMANDS.items() if "exit status" in (c.options.__doc__ or "").lower()]
    assert {"advise", "compare", "diff", "doctor", "leaks"} <= set(stating)
    missing = [name for name in stating if f"`{name}`" not in table_of and f"`{name} " not in table_of]
    assert missing == []
    assert f"| {results.UNJUDGED}: a gate cannot judge" in table_of
