"""The report: one self-contained HTML page from stored results. `write_report` is the only entry point needed."""

from freestone_lab.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
