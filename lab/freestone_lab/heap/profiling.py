"""Runs a program with libfreestone's heap profiler and gathers what it wrote."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from freestone_lab.core import outputs, paths
from freestone_lab.core.errors import UserError
from freestone_lab.flamegraph.model import Profile, largest_first
from freestone_lab.flamegraph.readers import parse_profile, read_profile
from freestone_lab.heap import attach, estimate, runner, watch
from freestone_lab.heap.snapshot import bytes_text
from freestone_lab.heap.symbolize import by_place, symbolize

PREFIX = "profile"
SAMPLE_BYTES = 512 * 1024  # mean bytes between samples: what a server does not notice


class Form(enum.StrEnum):
    """The profile formats that libfreestone writes (option prof_format)."""

    pprof = "pprof"
    collapsed = "collapsed"
    heap_v2 = "heap_v2"


@dataclass(frozen=True)
class Profiled:
    profiles: list[Profile]
    exit_status: int
    missing: str = ""  # why there is no profile


def load(files: Sequence[Path]) -> list[Profile]:
    """The profiles in `files`, their addresses resolved. Raises ProfileError."""
    return [by_place(symbolize(read_profile(path))) for path in files]


def configuration(given: str, folder: Path, form: Form, sample_bytes: int) -> str:
    """A FREESTONE_CONF that turns the profiler on. The user's own settings stay in front."""
    if any(c in str(folder) for c in ",;"):
        raise UserError(f"--keep '{folder}': a folder's name with ',' or ';' cannot stand in FREESTONE_CONF")
    ours = (
        f"prof:true,prof_file:{folder / PREFIX}.%p,prof_sample_bytes:{sample_bytes},prof_format:{form.value},"
        f"{attach.ANSWERS_WHILE_IDLE}"
    )
    return f"{given},{ours}" if given else ours


def run(
    command: Sequence[str], form: Form, sample_bytes: int, keep: Path | None, seconds: float | None = None
) -> Profiled:
    """Runs `command` to its end, at most `seconds`, and reads every profile that it and its children left.

    The largest peak stands first. If the time, Ctrl-C, SIGTERM or SIGHUP ends a process, it writes its profile first.
    Processes without a sample are left out if another has one: they are shims and shells that started the program.
    """
    prepared = runner.prepare(command, stats=False, hardened=False)
    with outputs.Scratch("profile") as scratch:
        folder = Path(scratch)
        if keep is not None:
            folder = paths.folder(keep, "--keep")
        already = set(folder.glob(f"{PREFIX}.*"))
        env = runner.visible_to_python(prepared.env)
        env[runner.CONF] = configuration(env.get(runner.CONF, ""), folder, form, sample_bytes)

        def last_look(pids: list[int]) -> None:
            answers = attach.ask_each(pids, attach.Errand.write_profile, attach.CONFIGURED, attach.LAST_LOOK_S)
            for pid, text in answers.items():
                (folder / f"{PREFIX}.{pid}").write_bytes(text)

        done = watch.run(prepared.argv, prepared.program, env, last_look, seconds)
        written = sorted(path for path in set(folder.glob(f"{PREFIX}.*")) - already if path.stat().st_size > 0)
        profiles = [
            _named(profile, pid := int(path.name.rpartition(".")[2]), done.seen.get(pid))
            for path, profile in zip(written, load(written), strict=True)
        ]
    if not profiles:
        return Profiled([], done.status or 2, done.left_no("profile", command[0]))
    return Profiled(largest_first([p for p in profiles if p.samples] or profiles[:1], "peak_space"), done.status)


def _named(profile: Profile, pid: int, seen: tuple[str | None, str] | None) -> Profile:
    """Under its command line. A process that was never seen at work has its program's name, the first file mapped."""
    program = profile.mappings[0].path if profile.mappings else ""
    line = seen[1] if seen and program in ("", seen[0]) else Path(program).name
    return replace(profile, label=f"{line} (process {pid})".lstrip(), process=pid)


def look(pids: Sequence[int], sample_bytes: int, seconds: float | None) -> list[Profile]:
    """The profiles of processes that run under libfreestone, sampled from now on (attach.look_at), the largest first.

    A profile that runs already is read and goes on. A process that ends meanwhile has none.
    """

    def found(look: attach.Look) -> Profile:
        profile = read_now(look.process)
        window = "sampled during this look" if look.own else "sampled since the program or another look began to"
        notes = [f"{summary(profile)}, {window}", *profile.notes, *notes_on(look.process.pid)]
        return replace(profile, notes=notes)

    profiles, refused = attach.look_at(pids, sample_bytes, seconds, found)
    first, *others = largest_first(profiles, "inuse_space")
    return [replace(first, notes=[*first.notes, *refused]), *others]


def summary(profile: Profile) -> str:
    """What the profile is about: the process, the time, the samples, and the bounds that they allow."""
    live, allocated = estimate.of_view(profile, "inuse"), estimate.of_view(profile, "alloc")
    parts = [profile.label, f"{profile.duration:.1f} s"]
    if live is not None and allocated is not None:
        parts.append(f"about {allocated.samples} samples of what was allocated: {_bounds(allocated)}")
        parts.append(f"{live.samples} of what is live: {_bounds(live)}")
    return ", ".join(parts)


def _bounds(found: estimate.Estimate) -> str:
    if found.samples == 0:
        return f"less than {bytes_text(found.high)}"
    return f"{bytes_text(found.low)} to {bytes_text(found.high)}"


def notes_on(pid: int) -> list[str]:
    """What a profile of this process cannot show, and why."""
    try:
        program = Path(f"/proc/{pid}/exe").readlink().name
        pools = b"PYTHONMALLOC=malloc" not in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    if not program.startswith("python") or not pools:
        return []
    unseen = "Python keeps small objects in pools of its own, unseen here"
    return [f"{unseen}: start it with PYTHONMALLOC=malloc to see each"]


def read_now(process: attach.Process) -> Profile:
    """What the process has sampled so far, its addresses resolved."""
    profile = parse_profile(process.profile(), f"the profile of process {process.pid}")
    profile = _named(profile, process.pid, watch.look_of(process.pid))
    return by_place(symbolize(profile, f"/proc/{process.pid}/root"))
