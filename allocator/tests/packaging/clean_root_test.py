"""Each package in a Debian that has never seen Freestone: installed, used, removed, and nothing of it left.

Needs root and debootstrap, which fetches the Debian. The container file is followed line by line, as no container runs
in a container.
"""

import os
import re
import shlex
import shutil
import subprocess
import unittest
from pathlib import Path

from packaging_support import InFolder, call, make_packages

from support import harness

INCLUDED = "python3,python3-venv,libzstd1,libstdc++6"
# What an installation may leave behind: the package manager's own diary, and caches.
DIARY = re.compile(r"var/(log|cache|lib/(dpkg|apt|python))/|tmp/|root/|__pycache__|proc/|dev/|run/|etc/ld.so.cache")
USE = r"""
set -eu
freestone --version | grep -q '^freestone [0-9]'
freestone run -- grep -q libfreestone.so /proc/self/maps
freestone run --hardened -- grep -q libfreestone-hardened.so /proc/self/maps
freestone leaks -- ls / 2>&1 | grep -q 'process'
freestone record -o /tmp/ls.fst -- ls /
replayer=$(find / -xdev -name freestone-replay | head -n 1)
"$replayer" plan /tmp/ls.fst /tmp/ls.plan
"$replayer" run /tmp/ls.plan | grep -q '"calls"'
rm -f /tmp/ls.fst /tmp/ls.plan
"""


@unittest.skipUnless(
    os.geteuid() == 0 and shutil.which("debootstrap"), "needs root and debootstrap (package debootstrap)"
)
class CleanRoot(InFolder):
    made: Path
    root: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.root = cls.folder / "root"
        found = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
        release = found[1] if found else "stable"
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={INCLUDED}", release, cls.root],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode != 0:
            raise unittest.SkipTest(f"debootstrap cannot fetch a Debian: {made.stdout.strip().splitlines()[-1:]}")
        cls.made = cls.root / "tmp" / "made"
        make_packages(cls.made, "deb", "tar", "wheel")

    def inside(self, script: str) -> str:
        """Runs a shell script in the clean root, which sees processes of its own only."""
        kinds = (("proc", "proc"), ("tmpfs", "dev/shm"), ("tmpfs", "sys"))
        mounts = "".join(f"mount -t {kind} {kind} {self.root}/{place}; " for kind, place in kinds)
        clean = "env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root"
        entered = f"{mounts}exec chroot {self.root} {clean} sh -c {shlex.quote(script)}"
        (self.root / "dev" / "shm").mkdir(exist_ok=True)
        return call("unshare", "--mount", "--pid", "--fork", "sh", "-c", entered)

    def files(self) -> set[str]:
        folders_of_pip = self.root / "srv" / "python" / "share"  # it leaves them, empty
        found = [p for p in self.root.rglob("*") if not (p.is_relative_to(folders_of_pip) and p.is_dir())]
        return {str(p.relative_to(self.root)) for p in found if not DIARY.search(f"{p.relative_to(self.root)}/")}

    def come_and_go(self, install: str, remove: str, use: str = USE) -> None:
        before = self.files()
        try:
            self.inside(f"set -eu; cd /tmp/made; {install}")
            self.assertNotEqual(self.files(), before, "nothing was installed")
            self.inside(use)
        finally:
            self.inside(remove)
        self.assertEqual(self.files() ^ before, set())

    def test_debian_packages(self) -> None:
        pages = 'zcat "$(find /usr/share/man -name freestone-record.1.gz)" | grep -q FREESTONE-RECORD'
        self.come_and_go(
            "dpkg --force-depends --path-exclude=/none -i *.deb",
            "dpkg --purge --force-depends freestone-tools libfreestone-dev libfreestone1",
            f"{USE}{pages} || [ ! -d /usr/share/man/man1 ]",
        )

    def test_archive(self) -> None:
        self.come_and_go(
            "mkdir /opt/fs; tar -C /opt/fs --strip-components=1 -xzf *.tar.gz; ln -s /opt/fs/bin/* /usr/local/bin",
            "rm -r /opt/fs /usr/local/bin/freestone",
        )

    def test_wheel(self) -> None:
        self.inside("python3 -m venv /srv/python; ln -s /srv/python/bin/freestone /usr/local/bin/freestone")
        self.come_and_go(
            "/srv/python/bin/pip install -q --no-index --no-deps --no-compile *.whl",
            "/srv/python/bin/pip uninstall -q -y freestone-lab",
        )
        self.inside("rm -r /srv/python /usr/local/bin/freestone")

    def test_container_file(self) -> None:
        """FROM is the clean root, which has what the first RUN installs; ADD unpacks; ENTRYPOINT is what is run."""
        lines = next(self.made.glob("*.Containerfile")).read_text().splitlines()
        steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
        self.assertEqual([step for step, _ in steps], ["ARG", "FROM", "RUN", "ADD", "RUN", "ENTRYPOINT"])
        installs = dict(enumerate(text for step, text in steps if step == "RUN"))
        missing = [word for word in INCLUDED.split(",") if word not in installs[0]]
        self.assertEqual(missing, [], "what the clean root holds")
        added, into = next(text for step, text in steps if step == "ADD").split()
        self.come_and_go(f"tar -C {into} -xzf {added}; {installs[1]}", "rm -r /opt/freestone* /usr/local/bin/freestone")
        self.assertEqual(steps[-1][1], '["freestone"]')


if __name__ == "__main__":
    harness.main()
