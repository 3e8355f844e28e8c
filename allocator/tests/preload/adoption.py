"""A machine that adopts the library for every program: /etc/ld.so.preload of a Debian in namespaces of its own."""

import os
import subprocess
import unittest
from pathlib import Path

from preload import sources
from preload.program import Program
from preload.session import Session

INCLUDED = "ca-certificates,cron,openssh-client,openssh-server,python3,sudo"


def root() -> Path:
    """The Debian's files; made once, then kept."""
    folder = sources.store() / "adoption-root"
    stamp = sources.store() / "adoption-root.made"
    if not stamp.exists():
        sources.store().mkdir(parents=True, exist_ok=True)
        command = ["mmdebstrap", "--variant=minbase", f"--include={INCLUDED}", "bookworm", str(folder)]
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        made = subprocess.run(  # away from the terminal, which dpkg would wait for
            command, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, check=False
        )
        if made.returncode != 0:
            raise sources.Unavailable("mmdebstrap cannot make a Debian here")
        stamp.touch()
    return folder


def adoption(session: Session) -> str:
    if os.geteuid() != 0:
        raise unittest.SkipTest("it needs root")
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc"]
    if subprocess.run([*namespaces, "true"], capture_output=True, check=False).returncode != 0:
        raise unittest.SkipTest("namespaces are not to be had here")
    libraries = [session.library] if session.library else []
    script = Path(__file__).with_suffix(".sh")
    output = session.run(*namespaces, "bash", script, session.source, session.folder, *libraries)
    proof = session.folder / "upper/proof"
    left = {path.name: path.read_text().split() for path in sorted(proof.iterdir()) if path.name != "cron-ran"}
    unserved = [name for name, processes in left.items() if bool(processes) == bool(libraries)]
    if unserved or len(left) != 9:
        raise RuntimeError(f"processes without the library: {left}")
    return output


PROGRAMS: dict[str, Program] = {"adoption": Program(("mmdebstrap", "unshare"), "", adoption, prepare=root)}
