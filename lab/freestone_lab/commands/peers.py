"""`freestone peers`, `freestone peers install`: arguments in, tables or JSON out."""

import dataclasses
import json
from argparse import Namespace

from freestone_lab.core.result import Peer
from freestone_lab.peers import discover
from freestone_lab.peers import install as peers_install
from freestone_lab.report import terminal


def run(options: Namespace) -> None:
    found = [peer for peer in discover.discover(options.given) if options.controls or peer.kind != "control"]
    if options.as_json:
        print(json.dumps([dataclasses.asdict(peer) for peer in found], indent=1))
    else:
        _print_peers(found)


def install(options: Namespace) -> int:
    console = terminal.console(stderr=True)
    outcomes = peers_install.install(
        options.names,
        force=options.force,
        dry_run=options.dry_run,
        progress=lambda text: console.print(f"  {text} …", style="dim"),
    )
    if options.as_json:
        print(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=1))
    else:
        rows = [dataclasses.astuple(outcome) for outcome in outcomes]
        terminal.show_grid(terminal.console(), ("allocator", "outcome", "detail"), rows)
    return 1 if any(outcome.status == "failed" for outcome in outcomes) else 0


def _print_peers(found: list[Peer]) -> None:
    headings = ("allocator", "version", "from", "build-id", "names", "path")
    rows = [
        (p.name, p.version, p.origin, p.build_id[:12], str(len(p.exports)), p.path or "(the program's own)")
        for p in found
    ]
    terminal.show_grid(terminal.console(), headings, rows)
    missing = ", ".join(name for name in peers_install.installable() if name not in _present(found))
    if missing:
        said = f"not here: {missing}; `freestone peers install` brings them"
        terminal.console(stderr=True).print(said, style="dim")


def _present(found: list[Peer]) -> set[str]:
    names = {peer.name for peer in found}
    return names | ({peers_install.CONTROLS_NAME} if any(peer.kind == "control" for peer in found) else set())
