"""Finding allocators: what is listed is what is there, and what cannot be used is refused in one clear line."""

import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import peers_tools
import pytest
from peers_tools import build_library

from freestone_lab.engine import preparation
from freestone_lab.peers import discover, install

HIDDEN = '\n__attribute__((visibility("hidden"))) void *memalign(size_t a, size_t b) { return 0; }\n'
HIDING = peers_tools.FORWARDING + HIDDEN


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return build_library(tmp_path, "mine", HIDING)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the allocators that are installed, none at first."""
    monkeypatch.setenv("FREESTONE_PEERS_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_glibc_comes_first_and_is_not_preloaded() -> None:
    first = discover.discover()[0]
    assert (first.name, first.path, first.kind) == ("glibc", None, "libc")
    assert first.version.startswith("2.")
    assert {"malloc", "free", "malloc_info", "mallinfo2"} <= set(first.exports)
    assert "LD_PRELOAD" not in discover.preload_environment(first)


def test_names_are_unique() -> None:
    names = [peer.name for peer in discover.discover()]
    assert len(names) == len(set(names))


def test_a_library_is_described_as_the_linker_sees_it(library: Path) -> None:
    peer = discover.find(f"mine={library}")
    assert peer.exports == ("calloc", "free", "malloc", "realloc")  # and not the hidden memalign
    assert discover.preload_environment(peer) == {"LD_PRELOAD": str(library)}
    shown = subprocess.run(["readelf", "-n", str(library)], capture_output=True, text=True, check=True).stdout
    assert f"Build ID: {peer.build_id}" in shown
    assert len(peer.build_id) == 40
    assert peer.version == f"build {peer.build_id[:12]}"


def test_a_debian_peer_carries_its_package_and_version() -> None:
    packaged = {entry.name for entry in discover.PACKAGED}
    found = [peer for peer in discover.discover() if peer.name in packaged]
    if not found:
        pytest.skip("no allocator of the distribution is installed")
    for peer in found:
        package = peer.origin.partition(" ")[0]
        query = ["dpkg-query", "-W", "-f", "${Version}", package]
        version = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        assert peer.origin == f"{package} {version}"
        assert peer.version and version.partition(":")[2 if ":" in version else 0].startswith(peer.version)


def test_every_peer_serves_what_it_exports() -> None:
    for peer in discover.discover():
        if peer.kind == "preload":
            assert install.not_served(peer) == [], peer.name


def test_a_given_library_takes_the_place_of_an_equal_name(library: Path) -> None:
    found = {peer.name: peer for peer in discover.discover([f"jemalloc={library}"])}
    assert found["jemalloc"].path == str(library)


def test_only_keeps_the_given_order_and_knows_families(library: Path) -> None:
    chosen = discover.discover(only=[f"mine={library}", "system", "glibc"])
    assert [peer.name for peer in chosen] == ["mine", "glibc"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nonesuch", r"'nonesuch'; expected NAME=path.so or one of glibc"),
        ("=x.so", r"expected NAME=path\.so"),
        ("two words=x.so", r"expected NAME=path\.so"),
        ("name=", r"expected NAME=path\.so"),
    ],
)
def test_what_names_no_allocator_is_refused(spec: str, said: str) -> None:
    with pytest.raises(discover.PeerError, match=said):
        discover.find(spec)


def _with_machine(library: Path, offset: int, value: int, size: str) -> None:
    data = bytearray(library.read_bytes())
    struct.pack_into(size, data, offset, value)
    library.write_bytes(data)


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda path: path.unlink(), "cannot be read: No such file"),
    "text": (lambda path: path.write_text("not a library"), "is not an ELF file"),
    "empty": (lambda path: path.write_bytes(b""), "is not an ELF file"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:100]), "is not|is an ELF file"),
    "foreign": (lambda path: _with_machine(path, 18, 183, "<H"), "is built for AARCH64, 64 bit; expected"),
    "executable": (lambda path: shutil.copy("/usr/bin/python3", path), "exports no malloc|expected a shared library"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_library_that_cannot_be_used_is_refused_in_one_line(kind: str, library: Path) -> None:
    spoil, expected = BAD_FILES[kind]
    spoil(library)
    with pytest.raises(discover.PeerError, match=expected) as raised:
        discover.find(f"mine={library}")
    assert str(library) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_library_without_malloc_is_refused(tmp_path: Path) -> None:
    other = build_library(tmp_path, "other", "int answer(void) { return 42; }")
    with pytest.raises(discover.PeerError, match="exports no malloc"):
        discover.find(f"other={other}")


def test_a_library_that_exports_only_malloc_is_noted(tmp_path: Path) -> None:
    half = build_library(tmp_path, "half", "void *malloc(unsigned long n) { (void)n; return 0; }")
    assert "exports no free, calloc, realloc" in discover.find(f"half={half}").note


def test_installed_peers_are_found_and_broken_ones_are_not(library: Path, cache: Path) -> None:
    _installed(library, cache, "good", "broken")
    (cache / "broken" / "lib.so").unlink()
    found = {peer.name: peer for peer in discover.discover()}
    assert (found["good"].version, found["good"].origin) == ("9.9", "x")
    assert discover.preload_environment(found["good"])["OWN"] == "good"
    assert "broken" not in found


def test_dry_run_names_everything_and_installs_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FREESTONE_BUILD_DIR", str(cache.parent / "no-build"))
    outcomes = install.install(dry_run=True)
    assert [outcome.name for outcome in outcomes if outcome.status == "would install"]
    assert {outcome.name for outcome in outcomes} == set(install.installable())
    assert all(outcome.status in ("present", "would install") for outcome in outcomes)
    assert not cache.exists()
    with pytest.raises(discover.PeerError, match="'nonesuch' cannot be installed; expected one of"):
        install.install(["nonesuch"])


def test_one_failing_build_is_reported_and_the_others_go_on(
    library: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = build_library(tmp_path, "text", "int answer(void) { return 42; }")
    half = build_library(tmp_path, "half", "void *malloc(unsigned long n) { return 0; }")
    unloadable = build_library(tmp_path, "unloadable", HIDING + "extern int no; int *use(void) { return &no; }")

    def failing(source: install.Source, work: Path) -> Path:
        install._run(["sh", "-c", "echo 'fatal error: no such thing'; exit 3"], work, work / "build.log")
        raise AssertionError("unreachable")

    recipes = (
        install.Recipe("bad", "crate", failing),
        install.Recipe("empty", "crate", lambda source, work: text),
        install.Recipe("half", "crate", lambda source, work: half),
        install.Recipe("unloadable", "crate", lambda source, work: unloadable),
        install.Recipe("missing", "other-crate", lambda source, work: library),
        install.Recipe("fine", "crate", lambda source, work: library),
    )
    monkeypatch.setattr(install, "RECIPES", recipes)
    monkeypatch.setattr(install, "download", lambda: {"crate": install.Source(tmp_path, "4.5.6+x")})
    outcomes = {outcome.name: outcome for outcome in install.install([recipe.name for recipe in recipes])}
    assert {name: outcome.status for name, outcome in outcomes.items()} == {
        "bad": "failed", "empty": "failed", "half": "failed", "unloadable": "failed", "missing": "failed",
        "fine": "installed",
    }  # fmt: skip
    assert "exit code 3: fatal error: no such thing" in outcomes["bad"].detail
    assert "exports no malloc" in outcomes["empty"].detail
    assert "does not serve calloc, free, realloc" in outcomes["half"].detail
    assert "does not serve calloc, free, malloc, realloc" in outcomes["unloadable"].detail
    fine = discover.find("fine")
    assert (fine.version, fine.origin) == ("4.5.6", "crate crate 4.5.6")
    assert install.install(["fine"])[0].status == "present"


@pytest.mark.parametrize("share", [0.0, 0.004, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_half_written_library_costs_its_own_row_only(
    library: Path, tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = library.read_bytes()
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "libfreestone.so").write_bytes(whole[: int(len(whole) * share)])
    (folder / "libfreestone-hardened.so").write_bytes(whole)
    monkeypatch.setenv("FREESTONE_BUILD_DIR", str(folder))
    names = [peer.name for peer in discover.discover()]
    assert names[:2] == ["glibc", "freestone-hardened"]
    said = capsys.readouterr().err
    assert said.startswith("freestone: left out: ") and said.count("\n") == 1
    assert str(folder / "libfreestone.so") in said
    with pytest.raises(discover.PeerError, match=r"libfreestone\.so: is"):
        discover.find(f"mine={folder / 'libfreestone.so'}")


def _installed(library: Path, cache: Path, *names: str) -> None:
    for name in names:
        (cache / name).mkdir(parents=True)
        shutil.copy(library, cache / name / "lib.so")
        facts = {"name": name, "library": "lib.so", "version": "9.9", "origin": "x", "env": {"OWN": name}}
        (cache / name / "peer.json").write_text(json.dumps(facts))


def test_peers_run_at_their_best_and_with_settings_that_change_much(library: Path, cache: Path) -> None:
    _installed(library, cache, "tcmalloc", "mimalloc")
    found = {peer.name: dict(peer.env) for peer in discover.discover()}
    assert found["tcmalloc"] == {"GLIBC_TUNABLES": "glibc.pthread.rseq=0", "OWN": "tcmalloc"}
    assert found["mimalloc"] == {"OWN": "mimalloc"}
    assert found["mimalloc-no-thp"] == {"MIMALLOC_ALLOW_THP": "0", "OWN": "mimalloc"}
    chosen = preparation.choose_peers([], [])
    assert {"tcmalloc", "mimalloc", "mimalloc-no-thp"} <= {p.name for p in chosen}, "a plain compare shows both"
    assert "mimalloc-no-thp" not in {p.name for p in preparation.choose_peers([], ["mimalloc"])}


def test_newer_allocators_of_the_same_families_are_offered() -> None:
    assert discover.outdated(["glibc", "jemalloc-deb", "gperftools", "mimalloc"]) == ["jemalloc", "tcmalloc"]
    assert discover.outdated(["jemalloc-deb", "jemalloc"]) == []


def test_a_folder_stands_for_its_library(library: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    (build / "lib").mkdir(parents=True)
    build_library(build / "lib", "helper", "int answer(void) { return 42; }")
    with pytest.raises(discover.PeerError, match=r"expected one library that exports malloc, found none"):
        discover.find(f"mine={build}")
    shutil.copy(library, build / "lib" / "libmine.so.2")
    (build / "lib" / "libmine.so").symlink_to("libmine.so.2")
    assert discover.find(f"mine={build}").path in {str(build / "lib" / name) for name in ("libmine.so", "libmine.so.2")}
    shutil.copy(library, build / "libother.so")
    with pytest.raises(discover.PeerError, match=r"found libother\.so, libmine\.so"):
        discover.find(f"mine={build}")


def test_a_folder_may_describe_its_peer(library: Path, tmp_path: Path) -> None:
    _installed(library, tmp_path, "good")
    found = discover.find(f"mine={tmp_path / 'good'}")
    assert (found.name, found.version, dict(found.env)) == ("mine", "9.9", {"OWN": "good"})
    (tmp_path / "good" / "peer.json").write_text("{}")
    with pytest.raises(discover.PeerError, match=r"peer\.json: expected library and"):
        discover.find(f"mine={tmp_path / 'good'}")
