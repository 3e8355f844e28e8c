"""What a command really starts, and whether a preloaded allocator can reach it. Only reads files; starts nothing."""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from freestone_lab.core.elf import Elf, ElfError
from freestone_lab.core.errors import UserError


@dataclass(frozen=True)
class Target:
    """The program behind a command. If it is a script, `interpreters` run it, outermost first.

    `shell` is the one of a script without a `#!` line: the kernel starts no such script.
    """

    path: Path
    interpreters: tuple[Path, ...] = ()
    caveats: tuple[str, ...] = field(default=())
    shell: Path | None = None

    @property
    def image(self) -> Path:
        """The ELF file that the kernel loads."""
        return self.interpreters[-1] if self.interpreters else self.path


def _locate(name: str, search: str | None) -> Path:
    """The program's absolute path. Without its `./`, the shell would look for it on PATH."""
    if "/" in name:
        path = Path(name).absolute()
        if not path.exists():
            raise UserError(f"program '{name}' does not exist")
    else:
        found = shutil.which(name, path=search)
        if found is None:
            raise UserError(f"program '{name}' was not found on PATH")
        path = Path(found).absolute()
    if path.is_dir():
        raise UserError(f"'{name}' is a directory, not a program")
    if not os.access(path, os.X_OK):
        raise UserError(f"'{name}' may not be executed (no x permission)")
    return path


def _refuse_privileged(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise UserError(
            f"'{path}' is a set-uid or set-gid program: the dynamic linker ignores preloaded libraries for it"
        )
    try:
        os.getxattr(path, "security.capability")
    except OSError:
        return
    raise UserError(f"'{path}' carries file capabilities: the dynamic linker ignores preloaded libraries for it")


def _check_image(path: Path) -> None:
    try:
        with path.open("rb") as file:
            elf = Elf(file)
            interpreter = elf.interpreter
    except ElfError as error:
        raise UserError(f"'{path}' is not a program that can be read: {error}") from error
    if elf.bits != 64:
        raise UserError(f"'{path}' is a {elf.bits}-bit program; the allocators here are 64-bit libraries")
    if elf.machine != _own_machine():
        raise UserError(f"'{path}' is built for {elf.machine}, this machine is {_own_machine()}")
    if interpreter is None:
        raise UserError(f"'{path}' is statically linked: its malloc cannot be replaced by a preloaded library")
    if "musl" in interpreter:
        raise UserError(f"'{path}' is linked against musl ({interpreter}); the allocators here are built for glibc")


def _own_machine() -> str:
    with Path("/proc/self/exe").open("rb") as file:
        return Elf(file).machine


def resolve(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Target:
    """The target of `argv`, followed through `#!` lines. Raises UserError, one line, when it cannot be preloaded."""
    if not argv:
        raise UserError("no program given; expected -- PROGRAM ARG...")
    search = (env or os.environ).get("PATH")
    path = _locate(argv[0], search)
    interpreters: list[Path] = []
    current, shell = path, None
    for _ in range(5):
        _refuse_privileged(current)
        with current.open("rb") as file:
            head = file.read(256)
        if head.startswith(b"\x7fELF"):
            _check_image(current)
            break
        if head.startswith(b"#!"):
            words = head[2:].split(b"\n", 1)[0].decode(errors="replace").split()
            if not words:
                raise UserError(f"'{current}' begins with an empty #! line")
            if Path(words[0]).name == "env":
                names = [w for w in words[1:] if not w.startswith("-") and "=" not in w]
                words = names or words
            current = _locate(words[0], search)
        else:
            shell = current = _locate("/bin/sh", search)
        interpreters.append(current)
    else:
        raise UserError(f"'{path}' leads through more than four #! lines")
    return Target(path, tuple(interpreters), tuple(_caveats(path, interpreters, env or os.environ)), shell)


def behind_shim(argv: Sequence[str], env: Mapping[str, str] | None = None) -> tuple[list[str], str | None]:
    """The command, with a version manager's wrapper script replaced by the program that it starts, and what to say.

    pyenv, rbenv and their kin put shell scripts named like the program into a folder `shims`. Measuring those would
    measure bash and the manager more than the program. Any other command comes back unchanged.
    """
    found = shutil.which(argv[0], path=(env or os.environ).get("PATH")) if argv else None
    if found is None or Path(found).parent.name != "shims":
        return list(argv), None
    text = Path(found).read_text(errors="replace")
    match = re.search(r'exec "?([^"\s]+/(\w+env))"? exec ', text)
    if match is None:
        return list(argv), None
    done = subprocess.run([match[1], "which", Path(found).name], capture_output=True, text=True)
    real = done.stdout.strip()
    if done.returncode != 0 or not os.access(real, os.X_OK):
        return list(argv), None
    return [real, *argv[1:]], f"{found} is a wrapper script of {match[2]}; measured is the program it starts, {real}"


def _caveats(path: Path, interpreters: Sequence[Path], env: Mapping[str, str]) -> list[str]:
    notes = []
    names = [path.name, *(i.name for i in interpreters)]
    shells = {"sh", "bash", "dash", "zsh", "busybox"}
    shell = next((i.name for i in interpreters if i.name in shells), None)
    if shell:
        notes.append(f"{path.name} is a script run by {shell}; the shell's own time and memory are in every figure")
    if any(n.startswith("python") for n in names) and "PYTHONMALLOC" not in env:
        notes.append(
            "Python serves blocks of up to 512 bytes from its own pools; PYTHONMALLOC=malloc makes it ask the allocator"
        )
    if any(n.startswith("php") for n in names) and "USE_ZEND_ALLOC" not in env:
        notes.append("PHP has its own heap; USE_ZEND_ALLOC=0 makes it ask the allocator")
    if any(n in ("java", "node", "nodejs") for n in names):
        notes.append(f"{path.name} keeps most of its objects in a heap of its own, which no malloc serves")
    return notes
