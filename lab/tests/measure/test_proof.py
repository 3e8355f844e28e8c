"""Who serves malloc: shadowed, absent, foreign and partial allocators are all seen."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import GLIBC
from peers_tools import compiled

from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.heap import runner
from freestone_lab.host import target
from freestone_lab.measure import proof


def account(folder: Path, argv: list[str], preload: str | None = None) -> proof.Account:
    env = {"PATH": os.environ["PATH"], **proof.environment(folder)}
    if preload:
        env["LD_PRELOAD"] = preload
    subprocess.run(argv, env=env, capture_output=True)
    return proof.read_account(folder, Path.cwd())


@pytest.fixture(scope="session")
def own_malloc(built: Path) -> Path:
    """A program that defines malloc itself, so that no preload can reach it."""
    source = (
        "#include <stddef.h>\nstatic char pool[1 << 20]; static size_t used;\n"
        "void* malloc(size_t n) { void* p = pool + used; used += (n + 15) & ~(size_t)15; return p; }\n"
        "void free(void* p) { (void)p; }\n"
        '#include <stdio.h>\nint main(void) { printf("%d\\n", malloc(10) != 0); return 0; }\n'
    )
    return compiled(built / "own", source, "-rdynamic")


@pytest.mark.parametrize(
    ("program", "peer", "said"),
    [
        ("work", "glibc", None),
        ("work", "passthrough", None),
        ("work", "not-loading", "malloc was bound to libc.so.6"),
        ("work", "ghost", "libghost.so"),  # the linker ignores a preload that is not there
        ("own_malloc", "passthrough", "malloc was bound to own"),  # the program's own malloc shadows the preload
        ("static_program", "passthrough", "static"),  # gives no account
    ],
)
def test_who_serves_is_proven_or_refused(
    program: str, peer: str, said: str | None, tmp_path: Path, controls: dict[str, Peer], request: pytest.FixtureRequest
) -> None:
    known = {"glibc": GLIBC, "ghost": Peer("ghost", "/nowhere/libghost.so"), **controls}[peer]
    refusal, notes = proof.judge(account(tmp_path, [str(request.getfixturevalue(program))], known.path), known)
    assert notes == [] and (refusal is None if said is None else said in (refusal or "")), refusal


def test_an_allocator_that_the_program_brings_is_named(tmp_path: Path, built: Path, controls: dict[str, Peer]) -> None:
    library = Path(controls["passthrough"].path or "")
    options = [f"-L{library.parent}", "-Wl,--no-as-needed", f"-l:{library.name}", f"-Wl,-rpath,{library.parent}"]
    program = compiled(built / "linked", Path(__file__).parents[1] / "programs" / "work.c", *options)
    refusal, notes = proof.judge(account(tmp_path, [str(program)]), GLIBC)
    assert refusal is None
    assert notes == [f"the glibc row is not glibc's malloc: the program brings {library.name}"]


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is absent")
def test_debians_redis_is_not_a_glibc_program(tmp_path: Path) -> None:
    _, notes = proof.judge(account(tmp_path, ["redis-server", "--version"]), GLIBC)
    links = subprocess.run(["ldd", shutil.which("redis-server") or ""], capture_output=True, text=True, check=True)
    assert bool(notes) == ("jemalloc" in links.stdout)


def test_every_process_of_a_tree_is_in_the_account(tmp_path: Path, work: Path, controls: dict[str, Peer]) -> None:
    peer = controls["passthrough"]
    found = account(tmp_path, ["/bin/sh", "-c", f"{work}; {work}; true"], peer.path)
    assert found.processes >= 3
    assert proof.judge(found, peer)[0] is None


def test_probe_tells_a_good_library_from_bad_ones(controls: dict[str, Peer]) -> None:
    assert proof.probe(GLIBC).failure is None
    assert proof.probe(controls["passthrough"]).failure is None
    assert "dies of signal" in (proof.probe(controls["crashing"]).failure or "")
    assert "malloc is served by" in (proof.probe(controls["not-loading"]).failure or "")


def test_targets_that_cannot_be_preloaded_are_refused(tmp_path: Path, static_program: Path) -> None:
    set_uid = tmp_path / "set-uid"
    shutil.copy("/bin/true", set_uid)
    set_uid.chmod(0o4755)
    text = tmp_path / "text"
    text.write_text("no program")
    cases = {
        "was not found on PATH": "freestone-no-such-program",
        "does not exist": "/nowhere/program",
        "statically linked": str(static_program),
        "set-uid": str(set_uid),
        "may not be executed": str(text),
        "is a directory": str(tmp_path),
    }
    for expected, name in cases.items():
        with pytest.raises(UserError, match=expected) as caught:
            target.resolve([name])
        assert "\n" not in str(caught.value)


def test_scripts_lead_to_their_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env -S sh\nexit 0\n")
    script.chmod(0o755)
    found = target.resolve([str(script)])
    assert found.image.name == "sh"
    assert any("script run by sh" in text for text in found.caveats)


def test_run_refuses_a_program_with_its_own_malloc(own_malloc: Path, controls: dict[str, Peer]) -> None:
    with pytest.raises(UserError, match="malloc of its own"):
        runner.verify(target.resolve([str(own_malloc)]), Path(controls["passthrough"].path or ""), os.environ)


def test_run_accepts_what_the_library_serves(work: Path, controls: dict[str, Peer]) -> None:
    runner.verify(target.resolve([str(work)]), Path(controls["passthrough"].path or ""), os.environ)


def shim(folder: Path, real: Path | None) -> Path:
    """A version manager as pyenv is one: a wrapper script, and a manager that says what it starts."""
    manager = folder / "libexec" / "someenv"
    manager.parent.mkdir()
    answer = f"echo {real}" if real else "echo 'not found' >&2; exit 127"
    manager.write_text(f'#!/bin/sh\n[ "$1 $2" = "which tool" ] || exit 9\n{answer}\n')
    wrapper = folder / "shims" / "tool"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/usr/bin/env bash\nprogram="${{0##*/}}"\nexec "{manager}" exec "$program" "$@"\n')
    for script in (manager, wrapper):
        script.chmod(0o755)
    return wrapper


def test_a_program_named_from_its_own_folder_is_found(
    work: Path, controls: dict[str, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work.parent)
    found = target.resolve([f"./{work.name}"])
    assert found.path == work
    runner.verify(found, Path(controls["passthrough"].path or ""), os.environ)


def test_behind_a_version_managers_wrapper_the_program_itself_is_measured(tmp_path: Path, work: Path) -> None:
    wrapper = shim(tmp_path, work)
    env = {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    argv, note = target.behind_shim(["tool", "-c", "x"], env)
    assert argv == [str(work), "-c", "x"]
    assert note is not None and str(wrapper) in note and "someenv" in note and str(work) in note


def test_a_wrapper_that_leads_nowhere_stays_and_is_said_to_be_a_script(tmp_path: Path) -> None:
    wrapper = shim(tmp_path, None)
    assert target.behind_shim([str(wrapper)]) == ([str(wrapper)], None)
    assert any("the shell's own time" in note for note in target.resolve([str(wrapper)]).caveats)
    assert target.behind_shim(["/bin/sh", "-c", "true"]) == (["/bin/sh", "-c", "true"], None)
