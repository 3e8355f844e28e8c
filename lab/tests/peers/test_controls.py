"""Each control allocator does what its name says, and nothing else."""

import dataclasses
import os
import signal
import sys
from pathlib import Path

import peers_tools
import pytest

from freestone_lab.measure import process
from freestone_lab.measure.process import Request
from freestone_lab.peers import discover, install

GLIBC = "glibc"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return peers_tools.build_controls(tmp_path_factory.mktemp("controls"))


@pytest.fixture(autouse=True)
def use_built(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FREESTONE_BUILD_DIR", str(built))


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return peers_tools.compiled(tmp_path_factory.mktemp("subject") / "subject", peers_tools.SUBJECT)


def said(name: str, *command: str | Path, **env: str) -> str:
    done = peers_tools.run_under(discover.find(name), *command, **env)
    assert done.returncode == 0, (name, done)
    return done.stdout.strip()


def test_every_control_is_found_and_is_a_control(built: Path) -> None:
    found = {peer.name: peer for peer in discover.discover() if peer.kind == "control"}
    assert found.keys() == discover.CONTROLS.keys()
    assert all(Path(str(peer.path)).parent == built for peer in found.values())


@pytest.mark.parametrize("name", ["passthrough", "costly", "leaking", "returning-null", "corrupting", "null"])
def test_a_loading_control_serves_every_name_that_it_exports(name: str) -> None:
    quiet = {"FREESTONE_CONTROL_AFTER": "1000000", "FREESTONE_CONTROL_EVERY": "0"}
    peer = discover.find(name)
    assert install.not_served(dataclasses.replace(peer, env=tuple(quiet.items()))) == []


def test_passthrough_is_glibc_in_every_answer(subject: Path) -> None:
    assert said("passthrough", subject, "rules") == said(GLIBC, subject, "rules")


def test_null_never_reuses_memory(subject: Path) -> None:
    assert int(said("null", subject, "growth", "20000")) >= 20000 * 1000 // 1024
    assert int(said(GLIBC, subject, "growth", "20000")) < 1000


def test_null_keeps_content_alignment_and_limits(subject: Path) -> None:
    assert said("null", subject, "rules").startswith("sizes 1 100, aligned 16, ")


def test_leaking_forgets_every_nth_free(subject: Path) -> None:
    every_other = int(said("leaking", subject, "in-use", "2000"))
    every_fourth = int(said("leaking", subject, "in-use", "2000", FREESTONE_CONTROL_EVERY="4"))
    assert 1000 * 1000 <= every_other <= 1000 * 1100
    assert 500 * 1000 <= every_fourth <= 500 * 1100
    assert int(said(GLIBC, subject, "in-use", "2000")) < 2000


@pytest.mark.parametrize("permille", [0, 100, 1000])
def test_costly_takes_the_part_on_top(permille: int, subject: Path, tmp_path: Path) -> None:
    peer = discover.find("costly")
    assert peer.path is not None
    program = [sys.executable, "-S", "-c", "x = bytearray(60 << 20)\nfor i in range(2000000): pass"]
    parts = {f"FREESTONE_CONTROL_{what}_PERMILLE": str(permille) for what in ("CPU", "MEMORY")}
    base, own = ({**os.environ, **more} for more in ({}, {"LD_PRELOAD": peer.path, **parts}))
    out, err = tmp_path / "out", tmp_path / "err"
    plain, costly = (process.run(Request(program, env, tmp_path), out, err) for env in (base, own))
    wanted = plain.rss_kib * (1 + permille / 1000)
    assert abs(costly.rss_kib - wanted) < 0.03 * wanted + 1024
    if permille == 1000:  # twice the time is seen beside any load
        assert costly.user_s + costly.sys_s > 1.4 * (plain.user_s + plain.sys_s)


def test_costly_pays_for_cpu_time_in_its_calls(tmp_path: Path) -> None:
    """A process that ends by _exit, where no rest is paid, has paid for what it used until its last calls."""
    program = [sys.executable, "-S", "-c", "import os\nfor i in range(1000000): bytearray(600)\nos._exit(0)"]
    used, preloaded = [], {**os.environ, "LD_PRELOAD": str(discover.find("costly").path)}
    for permille in ("0", "1000"):
        env = {**preloaded, "FREESTONE_CONTROL_CPU_PERMILLE": permille}
        done = process.run(Request(program, env, tmp_path), tmp_path / "out", tmp_path / "err")
        used.append(done.user_s + done.sys_s)
    assert used[1] > 1.4 * used[0]


def test_crashing_dies_before_the_program_says_anything(subject: Path) -> None:
    done = peers_tools.run_under(discover.find("crashing"), subject, "pairs")
    assert done.returncode == -signal.SIGABRT
    assert done.stdout == ""


def test_returning_null_refuses_after_the_given_number(subject: Path) -> None:
    granted, error = said("returning-null", subject, "granted", "3000", FREESTONE_CONTROL_AFTER="1500").split()
    assert int(granted) == 1500
    assert int(error) == 12  # ENOMEM
    assert said(GLIBC, subject, "granted", "3000") == "3000 0"


def test_corrupting_damages_one_byte_per_turn(subject: Path) -> None:
    # 1001 allocations with a turn at every 100th: ten bytes, each in a block that is still live.
    assert int(said("corrupting", subject, "damage", "1000", FREESTONE_CONTROL_EVERY="100")) == 10
    assert said("corrupting", subject, "damage", "1000", FREESTONE_CONTROL_EVERY="0") == "0"
    assert said(GLIBC, subject, "damage", "1000") == "0"


def test_not_loading_leaves_the_program_on_glibc(subject: Path) -> None:
    peer = discover.find("not-loading")
    assert peer.exports == ()
    assert said("not-loading", subject, "pairs") == "done"
    assert install.not_served(peer) == sorted(discover.CORE_NAMES)
