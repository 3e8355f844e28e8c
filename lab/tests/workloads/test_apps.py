"""Real programs: fixed work, inputs from a seed, and output that is the same twice and says what it should."""

import hashlib
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from freestone_lab.workloads import app_inputs, apps

pytestmark = pytest.mark.all

AVAILABLE = apps.available()[0]


def limit_processor_time() -> None:
    """In a child, before its program: a program whose data was damaged may loop for ever."""
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))


def digest(command: apps.Command, folder: Path, prepare: Callable[[], None] | None = None, **extra: str) -> str:
    """Runs a command once; the digest of everything that it prints and writes."""
    for output in command.outputs:
        (command.cwd / output).unlink(missing_ok=True)
    with (folder / "stdout").open("wb") as stdout, Path(command.stdin or os.devnull).open("rb") as stdin:
        done = subprocess.run(
            command.argv, cwd=command.cwd, env={**os.environ, **command.env, **extra}, stdin=stdin, stdout=stdout,
            stderr=subprocess.PIPE, timeout=1200, preexec_fn=prepare,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    assert command.check(folder / "stdout", command.cwd) is None
    data = (folder / "stdout").read_bytes() + b"".join((command.cwd / path).read_bytes() for path in command.outputs)
    assert data
    return hashlib.sha256(data).hexdigest()


def test_names_are_unique_and_each_says_where_it_comes_from() -> None:
    assert len({app.name for app in apps.APPS}) == len(apps.APPS) >= 20
    assert all(app.package and app.title for app in apps.APPS)


@pytest.mark.parametrize("app", AVAILABLE, ids=lambda app: app.name)
def test_an_application_gives_the_same_output_twice(app: apps.App, tmp_path: Path) -> None:
    command = apps.as_command(app, apps.work_folder())
    assert digest(command, tmp_path) == digest(command, tmp_path)


def test_absent_programs_are_said_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    ghost = apps.App("ghost", "a program not here", "ghost-tools", "no-such-program", lambda p, f: apps.Parts(()))
    monkeypatch.setattr(apps, "APPS", (*apps.APPS, ghost))
    found, absent = apps.available(["ghost", "git"])
    assert [app.name for app in absent] == ["ghost"]
    assert [app.name for app in found] in ([], ["git"])
    assert "ghost-tools" in apps.missing_packages()
    with pytest.raises(apps.AppError, match="ghost: not installed; expected the package ghost-tools"):
        apps.as_command(ghost, Path("/nonexistent"))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(apps.AppError, match="'nonesuch'; expected one of espresso"):
        apps.select(["nonesuch"])


def test_check_sees_missing_text_and_missing_files(tmp_path: Path) -> None:
    stdout = tmp_path / "stdout"
    stdout.write_text("rows 17\n")
    command = apps.Command("x", "x", ("x",), tmp_path, expects=("rows 18",))
    assert "lacks 'rows 18'" in str(command.check(stdout, tmp_path))
    command = apps.Command("x", "x", ("x",), tmp_path, expects=("rows 17",), outputs=(Path("made"),))
    assert "made is absent or empty" in str(command.check(stdout, tmp_path))
    (tmp_path / "made").write_text("content")
    assert command.check(stdout, tmp_path) is None


def test_inputs_do_not_depend_on_where_or_when(tmp_path: Path) -> None:
    for make in (app_inputs.truth_table, app_inputs.smt_problem, app_inputs.graph, app_inputs.template_source):
        first, second = (make(folder) for folder in (tmp_path / "a", tmp_path / "b"))
        assert first != second
        assert first.read_bytes() == second.read_bytes()


def test_python_really_asks_malloc_where_it_says_so() -> None:
    for app in AVAILABLE:
        if app.name.startswith("python"):
            command = apps.as_command(app, apps.work_folder())
            assert command.env.get("PYTHONMALLOC") == (None if app.name == "python" else "malloc")
            assert not {"-I", "-E"} & set(command.argv)  # these make the interpreter ignore PYTHONMALLOC


def test_redis_is_not_served_by_the_jemalloc_that_it_links() -> None:
    redis = next((app for app in AVAILABLE if app.name == "redis"), None)
    if redis is None:
        pytest.skip("redis-server is not installed")
    command = apps.as_command(redis, apps.work_folder())
    server = command.argv[command.argv.index("--") + 1]
    env = {**os.environ, **command.env}
    shown = subprocess.run(["ldd", server], env=env, capture_output=True, text=True, check=True)
    assert "libjemalloc" not in shown.stdout
    assert "not found" not in shown.stdout


def test_damaged_memory_is_seen_in_the_output(tmp_path: Path) -> None:
    from freestone_lab.peers import discover

    lua = next((app for app in AVAILABLE if app.name == "lua"), None)
    control = next((peer for peer in discover.discover() if peer.name == "corrupting"), None)
    if lua is None or control is None:
        pytest.skip("needs lua5.4 and the built controls")
    command = apps.as_command(lua, apps.work_folder())
    good = digest(command, tmp_path)
    try:
        damaged = digest(command, tmp_path, limit_processor_time, **discover.preload_environment(control))
    except AssertionError:
        return  # it crashed, said nonsense or did not end: seen
    assert damaged != good
