"""Manual pages and completions: one for every command and option, and such that man, bash and zsh take them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from freestone_lab.commands import manual, options


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    manual.write(folder, "9.8.7")
    return folder


def test_every_command_has_a_page_that_names_each_of_its_options(share: Path) -> None:
    pages = {path.stem for path in (share / "man" / "man1").iterdir()}
    assert pages == {"freestone", *(f"freestone-{name.replace(' ', '-')}" for name in manual.names())}
    for name in manual.names():
        text = (share / "man" / "man1" / f"freestone-{name.replace(' ', '-')}.1").read_text().replace("\\-", "-")
        assert "freestone 9.8.7" in text
        for action in options.parser_of(name)._actions:
            for flag in action.option_strings:
                assert f"\\fB{flag}\\fR" in text, (name, flag)
            assert not action.help or action.help.replace("-", "") in text.replace("-", ""), (name, action.dest)


def test_man_takes_every_page_without_a_warning(share: Path) -> None:
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    pages = sorted(map(str, (share / "man" / "man1").iterdir()))
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", *pages], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def completed(file: Path, *words: str) -> set[str]:
    """What bash offers for the last of the words."""
    given = " ".join(f"'{word}'" for word in words)
    script = f'source {file}; COMP_WORDS=({given}); COMP_CWORD={len(words) - 1}; _freestone; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=file.parent)
    return set(done.stdout.split())


def test_bash_offers_commands_then_options_then_programs(share: Path) -> None:
    file = share / "bash-completion" / "completions" / "freestone"
    assert completed(file, "freestone", "re") == {"record", "replay", "report"}
    assert completed(file, "freestone", "peers", "in") == {"install"}
    assert completed(file, "freestone", "peers", "install", "--js") == {"--json"}
    for name in manual.names():
        offered = completed(file, "freestone", *name.split(), "--")
        flags = {f for a in options.parser_of(name)._actions for f in a.option_strings if f.startswith("--")}
        assert offered == flags, name
    assert "bash" in completed(file, "freestone", "run", "--", "bas")


@pytest.mark.all
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_can_read_theirs(share: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    file = next((share / shell).rglob("*freestone*"))
    done = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
