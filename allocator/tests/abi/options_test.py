"""FREESTONE_CONF and FREESTONE_DISABLE: what they change, what they answer to a mistake, and when they are ignored."""

import os
import random
import shutil
import subprocess
import unittest
from pathlib import Path

from support import harness
from support.harness import Finished

NOBODY = 65534
UNKNOWN = "FREESTONE_CONF: unknown option"
PROFILE = "prof:true,prof_final:off"
TAKEN = "signal 10 has a handler; expected another one"
NO_GROUP = "has no memory.max, memory.high or memory.pressure; expected the folder of a control group"


def cannot(option: str, value: str, expected: str) -> str:
    return f'FREESTONE_CONF: option {option} cannot be "{value}"; expected {expected}'


MISTAKES = {
    "confrim:true": f'{UNKNOWN} "confrim"; the nearest is "confirm"',
    "stats_prnt:true": f'{UNKNOWN} "stats_prnt"; the nearest is "stats_print"',
    "leka:exact": f'{UNKNOWN} "leka"; the nearest is "leak"',
    "nosuch:1": f'{UNKNOWN} "nosuch"; confirm:true prints all names',
    ":1": f'{UNKNOWN} ""; confirm:true prints all names',
    "thp:sometimes": cannot("thp", "sometimes", "off|auto|always"),
    "confirm:maybe": cannot("confirm", "maybe", "true or false"),
    "stats_print": cannot("stats_print", "", "true or false"),
    "stats_print:": cannot("stats_print", "", "true or false"),
    "confirm:\x1b[2J\x7f\n": cannot("confirm", r"\x1b[2J\x7f\x0a", "true or false"),
    "\x1b]0;x\a:1": rf'{UNKNOWN} "\x1b]0;x\x07"; confirm:true prints all names',
    "cgroup:/\x1b": rf"option cgroup: /\x1b {NO_GROUP}",
    "cgroup:/" + "\b" * 150: "option cgroup: /" + r"\x08" * 93,  # a line has 400 bytes
    "guard_slots:3": cannot("guard_slots", "3", "a number from 4 to 65536"),
    "map_bytes:64m": cannot("map_bytes", "64m", "a size from 1m to 32m, in bytes or with k, m, g or t"),
    "dirty_bytes:2t": cannot("dirty_bytes", "2t", "a size from 0 to 1t, in bytes or with k, m, g or t"),
    "limit_soft:0%": cannot("limit_soft", "0%", "a size such as 512m, at most 1024t, or 1% to 100%, or 0 for no limit"),
    "cgroup:" + "x" * 256: cannot("cgroup", "x" * 80, "at most 255 characters"),
    "cgroup:/nosuch": f"option cgroup: /nosuch {NO_GROUP}",
    "cgroup:/etc,limit_soft:50%": f"option cgroup: /etc {NO_GROUP}",
    "stats_signal:9": "option stats_signal: signal 9 cannot be caught; expected another one",
    f"{PROFILE},prof_signal:9": "option prof_signal: signal 9 cannot be caught; expected another one",
    f"{PROFILE},prof_signal:10,prof_toggle_signal:10": f"option prof_toggle_signal: {TAKEN}",
    f"{PROFILE},prof_signal:10,stats_signal:10": f"option prof_signal: {TAKEN}",
}


# What is right, with its environment, and what the probe and the library say.
SERVED, PASSED_ON = "active=1 brk=0", "active=0 brk=1"
RIGHT = (
    ("", {}, SERVED, ""),
    ("", {"FREESTONE_DISABLE": ""}, SERVED, ""),
    ("confirm:false", {}, SERVED, ""),
    ("dirty_bytes:1t,limit_soft:50%,prof:on,prof_final:off,prof_signal:10,stats_signal:12", {}, SERVED, ""),
    ("", {"MALLOC_CONF": "narenas:3"}, SERVED, ""),
    ("", {"FREESTONE_DISABLE": "1"}, PASSED_ON, ""),
    ("", {"FREESTONE_DISABLE": "0"}, SERVED, ""),
    ("", {"FREESTONE_DISABLE": "yes"}, SERVED, 'freestone: FREESTONE_DISABLE cannot be "yes"; expected 1 or 0\n'),
    *((conf, {}, "active=1", f"freestone: {line}\n") for conf, line in MISTAKES.items()),
)


def probe(conf: str = "", extra: dict[str, str] | None = None) -> Finished:
    return harness.run([harness.PROBES / "options_probe"], conf=conf, extra=extra)


class Options(harness.FreestoneTest):
    def test_what_is_right_prints_nothing_and_a_mistake_one_line_with_the_value_and_what_was_expected(self) -> None:
        for conf, extra, out, err in RIGHT:
            done = probe(conf, extra)
            self.assertEqual((done.status, done.err), (0, err), (conf, extra))
            self.assertIn(out, done.out, (conf, extra))

    def test_a_mistake_does_not_undo_the_other_options(self) -> None:
        done = probe("nonsense_key:1,confirm:true")
        self.assertEqual(done.status, 0)
        self.assertIn("nonsense_key", done.err)
        self.assertIn("freestone: active", done.err)

    def test_confirm_prints_what_is_in_force(self) -> None:
        lines = probe("confirm:true,thp:always").err.splitlines()
        self.assertTrue(lines[0].startswith("freestone: active version="), lines)
        self.assertIn("build=hardened" if harness.IS_HARDENED else "build=fast", lines[0])
        self.assertTrue([line for line in lines[1:] if "thp" in line and "always" in line], lines)

    def test_every_flag_takes_each_word_for_yes_and_no(self) -> None:
        flags = ("drop_deepbind", "pressure", "prof_active", "prof_final", "background_purge", "check_libc")
        for words, shown in ((("true", "on", "YES", "1", "True"), "true"), (("FALSE", "Off", "no", "0"), "false")):
            for word in words:
                said = probe("confirm:yEs," + ",".join(f"{flag}:{word}" for flag in flags)).err.splitlines()
                self.assertEqual([f for f in flags if f"freestone: option {f}:{shown}" not in said], [], (word, said))

    def test_confirm_says_who_serves_in_its_place(self) -> None:
        own = harness.run([harness.PROBES / "own_malloc_probe"], conf="confirm:true")
        self.assertIn("freestone: malloc is from the program, which may call this library; version=", own.err)
        self.assertNotIn("freestone: active", own.err)
        self.assertIn('freestone: malloc_conf "narenas:2" is for jemalloc; it is ignored here\n', own.err)

    def test_confirm_says_that_jemallocs_variable_is_ignored(self) -> None:
        done = probe("confirm:true", {"MALLOC_CONF": "narenas:3"})
        self.assertEqual(done.err.count('freestone: MALLOC_CONF "narenas:3" is for jemalloc; it is ignored here\n'), 1)
        self.assertNotIn("malloc_conf", done.err)

    def test_a_second_copy_reports_nothing(self) -> None:
        first = Path(shutil.copy(str(harness.LIBRARY), self.folder / "first.so"))
        said = harness.run(
            [harness.PROBES / "options_probe"],
            library=first,
            also_preload=[harness.LIBRARY] if harness.LIBRARY else [],
            conf=f"confirm:true,stats_print:true,leak:report,prof:true,prof_file:{self.folder}/%p-%n.heap",
        ).err
        profiles = list(self.folder.glob("*.heap"))
        self.assertEqual(said.count("freestone: active version="), 1, said)
        self.assertEqual(said.count(f"freestone: a second copy: {first} serves and reports in its place\n"), 1, said)
        self.assertEqual((said.count("freestone: option confirm:"), said.count(", process ")), (1, 1), said)
        self.assertEqual((said.count("freestone: leaks of process"), len(profiles)), (1, 1), said)

    def test_disabled_library_runs_a_real_program(self) -> None:
        script = (
            "import json, threading; t = threading.Thread(target=lambda: json.loads('[1]')); "
            "t.start(); t.join(); print('done')"
        )
        extra = {"FREESTONE_DISABLE": "1", "PYTHONMALLOC": "malloc"}
        done = harness.run([Path("/usr/bin/python3").resolve(), "-c", script], extra=extra)
        self.assertEqual((done.status, done.out), (0, "done\n"), done)

    def test_any_string_leaves_the_program_running(self) -> None:
        seed = int.from_bytes(os.urandom(4), "little")
        generator = random.Random(seed)
        alphabet = "abct:,=;\t \"'%\\0123456789-+.eKMG" + "\u00fc"
        words = ["confirm", "thp", "stats_print", "true", "always", ":", ",", ",,", "::"]
        words += ["99999999999999999999999", "-1", "0x10", "1e9"]
        cases = ["x" * 100_000, "," * 5000, ":" * 5000, "confirm:true," * 2000, "thp:" + "a" * 70_000]
        cases += ["".join(generator.choice(alphabet) for _ in range(generator.randrange(60))) for _ in range(60)]
        cases += ["".join(generator.choice(words) for _ in range(generator.randrange(12))) for _ in range(60)]
        for text in cases:
            done = probe(text)
            self.assertEqual(done.status, 0, f"seed {seed}, FREESTONE_CONF={text[:200]!r}: {done}")
            self.assertIn("active=", done.out)


@unittest.skipUnless(os.geteuid() == 0, "needs root to make a set-uid program")
class SetUserId(harness.FreestoneTest):
    def setUp(self) -> None:
        super().setUp()
        assert harness.LIBRARY is not None
        self.folder.chmod(0o755)
        self.library = self.folder / harness.LIBRARY.name
        shutil.copy(harness.LIBRARY, self.library)

    def run_set_user_id(self, extra: dict[str, str], limit: int = 0) -> subprocess.CompletedProcess[str]:
        """Build the probe, make it set-uid root, and run it as nobody, who may set a limit on his data first."""
        program = self.folder / "options_probe"
        words = [harness.COMPILER, "-o", program, Path(__file__).with_name("options_probe.c")]
        words += ["-Wl,--no-as-needed", self.library, f"-Wl,-rpath,{self.folder}"]
        subprocess.run([*map(str, words)], check=True)
        program.chmod(0o4755)
        return subprocess.run(
            ["sh", "-c", f"{f'ulimit -d {limit};' if limit else ''} exec {program} guards"],
            user=NOBODY,
            env=harness.environment([], extra),
            capture_output=True,
            text=True,
            check=False,
        )

    def test_environment_is_ignored_and_a_limit_takes_no_guards(self) -> None:
        guards = "behind=faults before=faults freed=faults\n" if harness.IS_HARDENED else ""
        for extra, limit in (
            ({"FREESTONE_CONF": "confirm:true,bogus:1"}, 0),
            ({"FREESTONE_CONF": "stats_print:true"}, 0),
            ({"FREESTONE_DISABLE": "1"}, 0),
            ({"FREESTONE_CONF": "confirm:true", "TMPDIR": "/tmp", "LOCPATH": "/tmp"}, 0),  # glibc removes the two
            ({}, 200_000),  # KiB
        ):
            done = self.run_set_user_id(extra, limit)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done)
            self.assertIn(f"active=1 brk=0 secure=1\n{guards}", done.stdout, done)


if __name__ == "__main__":
    harness.main()
