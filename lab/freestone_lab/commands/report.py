"""`freestone report`: a result file as an HTML page. `freestone docs`: the documents that come from stored results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freestone_lab import documents, documents_attacks, documents_mitigations, documents_tuning, paths
from freestone_lab.model import load
from freestone_lab.report import write_report
from freestone_lab.report.scorecard import parse_weights


def register(app: typer.Typer) -> None:
    @app.command("report")
    def report(
        results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Result files (.json or .json.gz).")],
        output: Annotated[
            Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: the first result, as .html.")
        ] = None,
        weights: Annotated[
            str | None,
            typer.Option(
                metavar="NAME=N,...", help="Scorecard weights: throughput, latency, memory, tooling, security."
            ),
        ] = None,
    ) -> None:
        """Write one self-contained HTML page about one or more result files.

        Examples:

            freestone report results/compare-20261120-120000.json

            freestone report full.json.gz -o full.html --weights throughput=2,memory=3
        """
        target = output or results[0].with_name(results[0].name.removesuffix(".gz")).with_suffix(".html")
        write_report([load(path) for path in results], target, parse_weights(weights) if weights else None)
        typer.echo(f"written: {target}")

    @app.command("docs")
    def docs(
        check: Annotated[bool, typer.Option("--check", help="Write nothing; say what is out of date, exit 1.")] = False,
    ) -> None:
        """Make docs/TUNING.md from the option table; docs/BENCHMARKS.md, docs/plots and the tables in
        docs/HARDENING.md from docs/results.

        Example:

            freestone docs --check
        """
        modules = (documents_tuning, documents, documents_mitigations, documents_attacks)
        if not check:
            for module in modules:
                for path in module.write(paths.root()):
                    typer.echo(f"written: {path}")
            return
        stale = [x for m in modules for x in m.outdated(paths.root())]
        for line in stale:
            typer.echo(line)
        if stale:
            raise typer.Exit(1)
