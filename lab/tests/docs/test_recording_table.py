"""The table of what recording costs, from a report of pytest."""

from __future__ import annotations

import pytest

from freestone_lab.core.errors import UserError
from freestone_lab.docs import recording_table

CASE = '<testcase name="{}"><properties><property name="cost" value="{}"/></properties></testcase>'


def report(names: list[str]) -> str:
    cases = "".join(CASE.format(name, "1.250 0.900 1.100") for name in names)
    return f'<testsuites><testsuite><testcase name="test_another"/>{cases}</testsuite></testsuites>'


def test_each_program_has_its_middle_and_its_extremes() -> None:
    lines = recording_table.table(report(list(recording_table.NAMES))).splitlines()[2:]
    assert [line.split(" | ", 1)[1] for line in lines] == ["1.10 | 0.90 to 1.25 | 3 |"] * 3


def test_a_report_without_one_of_the_tests_is_refused() -> None:
    with pytest.raises(UserError, match=r"expected the property 'cost' of test_a_server_hardly_notices\[redis\]"):
        recording_table.table(report(list(recording_table.NAMES)[1:]))
