"""`freestone profile`: where a program's memory comes from, as a page with a flame graph."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from freestone_lab import profiling
from freestone_lab.flamegraph import write_profiles

HELP = """Where a program's memory comes from: run it, or show profiles that exist.

Examples:

    freestone profile -- ./server --port 8080

    freestone profile show heap.pb.gz -o heap.html

    freestone profile diff before.pb.gz after.pb.gz -o diff.html
"""


class RunByDefault(typer.core.TyperGroup):
    """Arguments that begin with no sub-command mean `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where the page goes.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


def finish(path: Path, open_page: bool) -> None:
    typer.echo(f"written: {path}", err=True)
    if open_page:
        webbrowser.open(path.resolve().as_uri())


def register(app: typer.Typer) -> None:
    group = typer.Typer(cls=RunByDefault, help=HELP, no_args_is_help=True)
    app.add_typer(group, name="profile")

    @group.command("run", context_settings={"allow_interspersed_args": False})
    def run(
        command: Annotated[list[str], typer.Argument(metavar="[--] CMD ARG...", show_default=False)],
        output: Output = None,
        sample_bytes: Annotated[int, typer.Option(min=1, help="Mean bytes between samples.")] = 512 * 1024,
        form: Annotated[profiling.Form, typer.Option("--format", help="Form of the files kept with --keep.")] = (
            profiling.Form.pprof
        ),
        keep: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep the profile files there.")] = None,
        open_page: Open = False,
    ) -> None:
        """Run CMD under libfreestone with its heap profiler; the exit status is CMD's."""
        done = profiling.run(command, form, sample_bytes, keep)
        path = output or Path("profile.html")
        write_profiles(done.profiles, path, f"Heap of {' '.join(command)}")
        finish(path, open_page)
        raise typer.Exit(done.exit_status)

    @group.command("show")
    def show(
        files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Profiles of one program, oldest first.")],
        output: Output = None,
        open_page: Open = False,
    ) -> None:
        """Show profiles: pprof, collapsed stacks, or heap_v2 text. Several become a timeline."""
        path = output or files[0].with_name(files[0].name.split(".")[0] + ".html")
        write_profiles(profiling.load(files), path, f"Heap profile {', '.join(f.name for f in files)}")
        finish(path, open_page)

    @group.command("diff")
    def diff(
        before: Annotated[Path, typer.Argument(metavar="BEFORE")],
        after: Annotated[Path, typer.Argument(metavar="AFTER")],
        output: Output = None,
        open_page: Open = False,
    ) -> None:
        """Show what grew (red) and what shrank (blue) between two profiles."""
        path = output or Path("profile-diff.html")
        title = f"Heap: {after.name} against {before.name}"
        write_profiles(profiling.load([before, after]), path, title, compare=True)
        finish(path, open_page)
