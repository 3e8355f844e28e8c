"""Other releases of Debian, each in a root of its own: the libraries that were built here, under their programs.

    python3 -m preload.roots RESULT.json [RELEASE...]

Makes each root once, from the mirror that this machine's apt uses, and keeps it. In each it runs entries of the table
of programs (preload.survey) and the tests that are labelled `roots`. Needs to be root, for chroot and mounts.

State it owns: the folder roots/ in FREESTONE_SOURCES. /etc/apt is read, never written.
"""

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from preload import linked
from preload.sources import Unavailable, store
from preload.survey import SCHEMA as PROGRAMS_SCHEMA
from support import harness
from support.measured import stamp

SCHEMA = "freestone-roots/1"
RELEASES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13", "sid": "Debian sid"}
PACKAGES = (
    *("bc", "curl", "g++", "gawk", "gcc", "git", "jq", "lua5.4", "make", "nginx", "openssl", "perl"),
    *("python3", "redis-server", "ruby", "sqlite3", "xz-utils", "zstd"),
)
PROGRAMS = (
    *("bash", "bc", "curl", "find", "gawk", "gcc", "git", "grep", "gxx", "gzip", "jq", "lua", "make", "nginx"),
    *("openssl", "perl", "python", "redis", "ruby", "sed", "sort", "sqlite", "tar", "xz", "zstd"),
)
# And where the release has these packages, these: daemons with their tools, sandboxes, what is linked with a malloc.
ADDED = {
    "redis_in_unit": "redis-tools",
    "valkey": "valkey-server valkey-tools",
    "varnish": "varnish",
    "named": "bind9 bind9-dnsutils bind9-utils",
    "mariadb_server": "mariadb-server",
    "sshd": "openssh-server openssh-client",
    "chronyd": "chrony",
    "tor": "tor",
    "man": "man-db groff-base",
    "file_confined": "file",
    "bubblewrap": "bubblewrap",
    "qemu": "qemu-system-x86",
    "apt_methods": "apt",
    "haproxy": "haproxy",
    "tmux": "tmux",
    **{name: package for name, (package, *_) in linked.SCRIPTS.items()},
}
FEWEST_PROGRAMS = 12  # where fewer can be judged, the root shows nothing
REPOSITORY = Path(__file__).resolve().parents[3]
HERE = "/here"  # where a root sees this machine
# This machine's /proc and /dev, the repository at its own place, and all of this machine, for its Python. The root is
# pivoted to, since a program whose root was only changed may not make a sandbox of its own.
ENTER = """
mount --bind "$0" "$0" && mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && mkdir -p "$0$1" "$0$2" &&
mount --bind "$1" "$0$1" && cd "$0" && pivot_root . ".$2" && exec chroot . env -C "$3" "${@:4}"
"""


@dataclass
class Root:
    """What happened in one root: of each program its verdict, of each package that is linked with another malloc the
    program of it that ran, if any, of each test whether it `passed`, `failed`, or was
    `skipped`; `details` has the end of what a failure said."""

    release: str
    name: str
    glibc: str
    programs: dict[str, str] = field(default_factory=dict)
    linked: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)


def mirror() -> str:
    """Where this machine's apt has Debian from."""
    command = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Label: Debian"]
    sites = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    if not sites:
        raise Unavailable("this machine's apt knows no mirror of Debian")
    return sites[0]


# The lists of packages are kept, and what they have of `ADDED` is installed, one by one where not all go together. No
# package starts its daemon.
ADD = """
chroot "$1" apt-cache dumpavail > "$1.available"; printf '#!/bin/sh\\nexit 101\\n' > "$1/usr/sbin/policy-rc.d"
chmod 755 "$1/usr/sbin/policy-rc.d"
add() { chroot "$1" env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $2; }
offered=$(sed -n 's/^Package: //p' "$1.available" | grep -Fx "$(printf '%s\\n' PACKAGES)" | sort -u)
add "$1" "$offered" || for package in $offered; do add "$1" "$package"; done; true
"""


def made(release: str) -> Path:
    """The folder of the root, made if it is missing or lacks a package. Raises Unavailable."""
    root, stamp = store() / "roots" / release, store() / "roots" / f"{release}.packages"
    added = ADD.replace("PACKAGES", " ".join(sorted({word for words in ADDED.values() for word in words.split()})))
    wanted = ",".join(PACKAGES) + added
    if stamp.exists() and stamp.read_text() == wanted:
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    # A mirror that stands still on purpose offers lists that have expired; they are signed all the same.
    command += ['--aptopt=Acquire::Check-Valid-Until "false"', f"--customize-hook={added}"]
    command += [release, str(root), mirror()]
    with (root.parent / f"{release}.log").open("wb") as log:
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode != 0:
            raise Unavailable(f"no root of {release}: see {log.name}")
    stamp.write_text(wanted)
    return root


def inside(
    root: Path, command: Sequence[str | Path], env: Mapping[str, str], folder: Path = REPOSITORY
) -> subprocess.CompletedProcess[str]:
    """Runs a command in the root, with mounts that nobody else sees and that end with it."""
    words = ["unshare", "-m", "bash", "-c", ENTER, root, REPOSITORY, HERE, folder, *command]
    base = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [str(word) for word in words],
        env={**base, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=harness.HANG_SECONDS,
        check=False,
    )


def own_python() -> list[str]:
    """This machine's Python by its own loader and libraries: releases of today have other ones. What it starts is the
    root's."""
    libraries = {str(Path(line.split()[-1]).parent) for line in Path("/proc/self/maps").read_text().splitlines()
                 if ".so" in line}  # fmt: skip
    loader = next(p for p in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if Path(p).exists())
    path = ":".join(f"{HERE}{folder}" for folder in sorted(libraries))
    return [f"{HERE}{Path(loader).resolve()}", "--library-path", path, f"{HERE}{Path(sys.executable).resolve()}"]


def labelled(build: Path) -> list[tuple[str, list[str], dict[str, str], int]]:
    """Of each test that is labelled `roots`: its name, command, environment, and the status that means skipped."""
    command = ["ctest", "--test-dir", str(build), "--show-only=json-v1", "-L", "roots"]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found = []
    for test in shown["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test["properties"]}
        env = dict(setting.split("=", 1) for setting in properties.get("ENVIRONMENT", []))
        found.append((test["name"], test["command"], env, properties.get("SKIP_RETURN_CODE", -1)))
    return found


def offered(root: Path) -> dict[str, str]:
    """The packages of the release's lists, and what each depends on."""
    stanzas = Path(f"{root}.available").read_text().split("\n\n")
    fields = (dict(re.findall(r"^(Package|Depends): (.*)$", stanza, re.MULTILINE)) for stanza in stanzas)
    return {stanza["Package"]: stanza.get("Depends", "") for stanza in fields if stanza}


def run_programs(root: Path, result: Root) -> None:
    packages = offered(root)
    ran = {**linked.ELSEWHERE, **{package: name for name, (package, *_) in linked.SCRIPTS.items()}}
    with_malloc = {package: ran.get(package, "") for package in packages if linked.MALLOCS.search(packages[package])}
    unlinked = {name for name, (package, *_) in linked.SCRIPTS.items()
                if package not in with_malloc and name not in with_malloc.values()}  # fmt: skip
    chosen = [*PROGRAMS, *(name for name, words in ADDED.items()
                           if name not in unlinked and set(words.split()) <= set(packages))]  # fmt: skip
    with tempfile.NamedTemporaryFile(dir=REPOSITORY / "build", suffix=".json") as file:
        settings = {name: value for name, value in os.environ.items() if name.startswith(("FREESTONE_", "PYTHON"))}
        command = [*own_python(), "-m", "preload.survey", file.name, "programs", *chosen]
        done = inside(root, command, settings, REPOSITORY / "allocator" / "tests")
        text = Path(file.name).read_text()
    if not text:
        raise Unavailable(f"the survey said nothing: {(done.stdout + done.stderr)[-600:]}")
    found = json.loads(text)
    assert found["schema"] == PROGRAMS_SCHEMA
    for row in found["programs"]:
        result.programs[row["program"]] = row["verdict"]
        if row["verdict"] != "same":
            result.details[row["program"]] = row["detail"][-300:]
    for package, name in with_malloc.items():
        result.linked[package] = name if name in result.programs else ""


def run_tests(root: Path, build: Path, result: Root) -> None:
    for name, command, env, skipped in labelled(build):
        # The library is preloaded into the test, not into what enters the root.
        preload = env.pop("LD_PRELOAD", "")
        done = inside(root, ["env", f"LD_PRELOAD={preload}", *command], env, build)
        result.tests[name] = {0: "passed", skipped: "skipped"}.get(done.returncode, "failed")
        if result.tests[name] == "failed":
            result.details[name] = f"status {done.returncode}: {(done.stdout + done.stderr)[-300:]}"


def examine(release: str, build: Path) -> Root:
    root = made(release)
    version = inside(root, ["ldd", "--version"], {}).stdout.splitlines()
    result = Root(release, RELEASES[release], version[0].rpartition(" ")[2] if version else "unknown")
    run_programs(root, result)
    run_tests(root, build, result)
    return result


def main(arguments: list[str]) -> int:
    path, *releases = arguments
    build = harness.PROBES.parents[2]
    roots, bad = [], 0
    for release in releases or RELEASES:
        try:
            root = examine(release, build)
        except Unavailable as reason:
            print(f"skipped   {release} {reason}", flush=True)
            continue
        roots.append(root)
        outcomes = [*root.programs.items(), *root.tests.items()]
        wrong = [name for name, outcome in outcomes if outcome in ("differs", "fails", "failed")]
        if sum(verdict == "same" for verdict in root.programs.values()) < FEWEST_PROGRAMS:
            wrong += [name for name, verdict in root.programs.items() if verdict == "skipped"]
        good = sum(outcome in ("same", "passed") for _, outcome in outcomes)
        bad += len(wrong)
        print(f"{root.name} (glibc {root.glibc}): {good} passed, {len(wrong)} failed, "
              f"{len(outcomes) - good - len(wrong)} skipped", flush=True)  # fmt: skip
        for name in wrong:
            print(f"failed    {release} {name} {root.details[name]}", flush=True)
        result = {"schema": SCHEMA, "machine": platform.platform(), **stamp(), "roots": [asdict(r) for r in roots]}
        Path(path).write_text(json.dumps(result, indent=1) + "\n")
    return 1 if bad or not roots else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python3 -m preload.roots RESULT.json [RELEASE...]")
    assert harness.PROBES.is_dir(), "FREESTONE_PROBES: expected the folder of the probes"
    sys.exit(main(sys.argv[1:]))
