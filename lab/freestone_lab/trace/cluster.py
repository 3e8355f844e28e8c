"""Runs replays on the workers of a Dask cluster: each experiment whole on one machine, one at a time on each.

A worker starts `freestone replay` as a user would, with its own allocators and its own A/A control, and sends the
result file back. So no comparison ever mixes machines, and the results of each machine form a file of their own:
workers of one host name must measure the same. The experiments of a worker that is lost are done elsewhere; what is
finished is stored, and `--resume` takes it up again.
"""

import fcntl
import hashlib
import importlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freestone_lab.analysis import joining
from freestone_lab.core import outputs
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import load, save

RETRIES = 5  # of an experiment whose worker was lost, or that failed
PATIENCE_S = 30  # for the scheduler to answer


@dataclass(frozen=True)
class Work:
    """One experiment: a trace and the arguments of `freestone replay` that go with it."""

    name: str
    data: bytes
    arguments: tuple[str, ...]

    @property
    def request(self) -> str:
        """All that was asked for, as one word; stored with the experiment."""
        return hashlib.sha256("\0".join(self.arguments).encode() + b"\0\0" + self.data).hexdigest()[:16]


def measure(name: str, data: bytes, arguments: Sequence[str]) -> tuple[str, str, bytes]:
    """Runs on a worker: (machine, experiment, result file). Waits while another experiment runs on this machine."""
    lock = Path(tempfile.gettempdir()) / f"freestone-cluster-{os.getuid()}.lock"
    with lock.open("w") as held, outputs.Scratch("work") as folder:
        fcntl.flock(held, fcntl.LOCK_EX)
        trace, out = Path(folder) / f"{name}.fst", Path(folder) / "out.json.gz"
        trace.write_bytes(data)
        page = Path(folder) / "page.html"
        words = [sys.executable, "-m", "freestone_lab.cli", "replay", str(trace), *arguments]
        done = subprocess.run(
            [*words, "--json", str(out), "-o", str(page)], capture_output=True, text=True
        )  # fmt: skip
        if done.returncode != 0 or not out.exists():
            raise RuntimeError(f"{name} on {socket.gethostname()}: {done.stderr.strip()[-500:]}")
        return socket.gethostname(), name, out.read_bytes()


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise UserError("--cluster needs Dask: pip install distributed (in the environment of every worker)") from error


def finished(store: Path) -> dict[str, Result]:
    """What is stored of an earlier run, by machine."""
    return {path.name.removesuffix(".json.gz"): load(path) for path in sorted(store.glob("*.json.gz"))}


def run(address: str, work: Sequence[Work], store: Path, say: Callable[[str], None]) -> dict[str, Result]:
    """All experiments; the results by machine, each stored in `store` as soon as it is there."""
    distributed = _distributed()
    store.mkdir(parents=True, exist_ok=True)
    results = finished(store)
    stored = {e.id: e.params.get("request") for result in results.values() for e in result.experiments}
    left = [one for one in work if f"replay/{one.name}" not in stored]
    other = [one.name for one in work if stored.get(f"replay/{one.name}", one.request) != one.request]
    if other:
        raise UserError(
            f"{store}: holds {', '.join(other)} for another request: other rounds, seed, allocators or traces; "
            "ask for the same, or name another folder"
        )
    if len(left) < len(work):
        say(f"{len(work) - len(left)} experiments are in {store} already")
    if not left:
        return results
    try:
        client = distributed.Client(address, timeout=PATIENCE_S)
    except OSError as error:
        raise UserError(f"--cluster {address}: no scheduler answers there ({error})") from error
    try:
        futures = [
            client.submit(
                measure, one.name, one.data, one.arguments, key=f"freestone-{one.name}", retries=RETRIES, pure=False
            )
            for one in left
        ]
        requests = {one.name: one.request for one in left}
        problems = []
        for future in distributed.as_completed(futures):
            try:
                machine, name, data = future.result()
            except Exception as error:
                problems.append(str(error))
                say(f"left out: {error}")
                continue
            _add(results, machine, data, store, requests[name])
            say(f"{name}: measured on {machine}")
        if problems and not results:
            raise UserError(f"nothing was measured: {problems[0]}")
    finally:
        client.close()
    return results


def _add(results: dict[str, Result], machine: str, data: bytes, store: Path, request: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".json.gz") as file:
        file.write(data)
        file.flush()
        found = load(Path(file.name))
    for experiment in found.experiments:
        experiment.params["request"] = request
    known = results.get(machine)
    if known is None:
        results[machine] = found
    elif wrong := joining.mismatches(known, found):
        raise UserError(
            f"two workers of the host name {machine} do not measure the same: {'; '.join(wrong)}; "
            "stop one of them, or give each machine a name of its own"
        )
    else:
        known.experiments += found.experiments
    save(results[machine], store / f"{machine}.json.gz")
