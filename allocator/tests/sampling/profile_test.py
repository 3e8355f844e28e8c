"""Profiles of a program whose history is known: with one byte between samples every block is sampled, exactly."""

import math
import re
import signal
import subprocess
import time
from pathlib import Path

from sampling import profiles
from support import harness

EVERY = "prof:true,prof_sample_bytes:1"
PLACES = ("long_lived", "short_lived", "freed_at_once")
LIVE = {"long_lived": 200_000}
ALL = {"long_lived": 200_000, "short_lived": 300_000, "freed_at_once": 500_000}
AT_PEAK = {"long_lived": 200_000, "short_lived": 300_000}
CHAIN = tuple(f"depth_{i}" for i in range(9, -1, -1))
CALLS = (
    "malloc", "calloc", "realloc", "realloc_grows", "reallocarray", "memalign", "aligned_alloc", "posix_memalign",
    "valloc", "pvalloc", "new", "new_array", "new_nothrow", "new_aligned",
)  # fmt: skip
SIZES = (100, 1000, 2100, 4096, 13034, 40001, 70000, 200_000, 3_000_000)
PAGE = 4096


class ProfileTest(harness.FreestoneTest):
    """Cases that look at a profile of profile_probe."""

    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "profile"

    def profile(self, probe: str, *words: str | Path, conf: str = "", sample_bytes: int = 1) -> Path:
        """The file written by a probe that says nothing; what it prints is in self.printed."""
        self.path.unlink(missing_ok=True)
        every = f"prof:true,prof_sample_bytes:{sample_bytes},prof_file:{self.path},{conf}"
        done = harness.run([harness.PROBES / probe, *words], conf=every)
        self.assertEqual((done.status, done.err), (0, ""), done)
        self.printed = done.out
        return self.path

    def collapsed(self, probe: str, *words: str | Path, conf: str = "", **how: int) -> dict[tuple[str, ...], int]:
        return profiles.read_collapsed(self.profile(probe, *words, conf=f"prof_format:collapsed,{conf}", **how))


class Views(ProfileTest):
    """Each view and each format."""

    def run_probe(self, conf: str = "", *words: str) -> list[int]:
        """The addresses of the three places."""
        self.profile("profile_probe", "history", *words, conf=conf)
        return [int(word) for word in self.printed.splitlines()[-1].split()]

    def expect_places(self, profile: profiles.Profile, starts: list[int], kind: str, wanted: dict[str, int]) -> None:
        found: dict[str, int] = {}
        for sample in profile.samples:
            if (name := self.place(starts, sample.addresses)) and sample.values[kind] != 0:
                found[name] = found.get(name, 0) + sample.values[kind]
        self.assertEqual(found, wanted, kind)

    def place(self, starts: list[int], stack: tuple[int, ...]) -> str:
        """The function of the innermost frame, when it is one of PLACES."""
        below = [
            (start, name) for start, name in zip(starts, PLACES, strict=True) if stack and start < stack[0] < start + 64
        ]
        return max(below)[1] if below else ""

    def test_pprof_holds_all_views_lifetimes_and_mappings(self) -> None:
        starts = self.run_probe()
        profile = profiles.read_pprof(self.path)
        for kind, wanted in (
            ("inuse_space", LIVE),
            ("inuse_objects", {"long_lived": 200}),
            ("alloc_space", ALL),
            ("peak_space", AT_PEAK),
            ("freed_objects", {"short_lived": 300, "freed_at_once": 500}),
        ):
            self.expect_places(profile, starts, kind, wanted)
        self.assertEqual(profile.types[:4], ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"])
        self.assertEqual((profile.default_type, profile.period), ("inuse_space", 1))
        self.assertEqual(profile.comments, [])
        self.assertGreater(profile.duration_ns, 30_000_000)
        # Lifetimes stand as labels: freed after 30 ms, and at once.
        for sample in profile.samples:
            place = self.place(starts, sample.addresses)
            if sample.values["freed_objects"] != 0 and place == "short_lived":
                self.assertIn(sample.labels["lifetime"], (10_000_000, 100_000_000))
            if sample.values["freed_objects"] != 0 and place == "freed_at_once":
                self.assertLessEqual(sample.labels["lifetime"], 10_000_000)
        # Mappings name the files and their build ids.
        probe = harness.PROBES / "profile_probe"
        file, _ = profile.file_offset(starts[0])
        self.assertEqual(Path(file).resolve(), probe.resolve())
        notes = subprocess.run(["readelf", "-n", str(probe)], capture_output=True, text=True, check=True).stdout
        if match := re.search(r"Build ID: ([0-9a-f]+)", notes):
            self.assertIn(match[1], [m["build_id"] for m in profile.mappings if m["file"] == file])

    def test_collapsed_shows_the_chosen_view(self) -> None:
        for view, wanted in (("live", LIVE), ("cumulative", ALL), ("peak", AT_PEAK)):
            sums: dict[str, int] = {}
            for stack, size in self.collapsed("profile_probe", "history", conf=f"prof_view:{view}").items():
                if stack[-1] in PLACES:
                    sums[stack[-1]] = sums.get(stack[-1], 0) + size
                    self.assertTrue(any(frame.startswith("__libc_start_main") for frame in stack), stack)
            self.assertEqual(sums, wanted, view)

    def test_collapsed_shows_lifetimes(self) -> None:
        lived: dict[str, int] = {}
        for stack, size in self.collapsed("profile_probe", "history", conf="prof_view:lifetime").items():
            if stack[-2] == "short_lived":
                lived[stack[-1]] = lived.get(stack[-1], 0) + size
        self.assertEqual(sum(lived.values()), 300_000)
        self.assertLessEqual(set(lived), {"[lived 10ms to 100ms]", "[lived 100ms to 1s]"})

    def test_heap_v2_counts_samples(self) -> None:
        starts = self.run_probe("prof_format:heap_v2")
        heap = profiles.read_heap_v2(self.path)
        sums = {name: [0, 0, 0, 0] for name in PLACES}
        for stack, row in heap.stacks.items():
            if name := self.place(starts, stack):
                sums[name] = [a + b for a, b in zip(sums[name], row, strict=True)]
        self.assertEqual(
            sums,
            {
                "long_lived": [200, 200_000, 200, 200_000],
                "short_lived": [0, 0, 300, 300_000],
                "freed_at_once": [0, 0, 500, 500_000],
            },
        )
        self.assertEqual(heap.period, 1)
        self.assertEqual(heap.totals, tuple(sum(row[i] for row in heap.stacks.values()) for i in range(4)))
        self.assertTrue(any("profile_probe" in line for line in heap.maps))

    def test_heap_v2_names_what_is_mapped_after_the_end_of_the_first_thread(self) -> None:
        conf = f"{EVERY},prof_format:heap_v2,prof_file:{self.path}"
        harness.run([harness.PROBES / "leak_probe", "outlived"], conf=conf)
        self.assertTrue(any("leak_probe" in line for line in profiles.read_heap_v2(self.path).maps))

    def test_the_api_starts_stops_and_writes(self) -> None:
        written = self.folder / "by_api"
        starts = self.run_probe("prof:false", str(written))
        self.assertFalse(self.path.exists(), "nothing is written at exit without prof")
        profile = profiles.read_pprof(written)
        self.expect_places(profile, starts, "alloc_space", ALL)

    def test_prof_active_false_waits_for_the_api(self) -> None:
        self.run_probe("prof_active:false")
        profile = profiles.read_pprof(self.path)
        self.assertEqual(profile.samples, [])
        self.assertTrue(profile.comments and "no allocation was sampled" in profile.comments[0], profile.comments)

    def test_no_file_without_prof_final_and_one_that_cannot_be_written_is_named(self) -> None:
        self.run_probe("prof_final:false")
        self.assertFalse(self.path.exists())
        done = harness.run([harness.PROBES / "profile_probe", "history"], conf=f"{EVERY},prof_file:/nowhere/profile")
        self.assertEqual((done.status, done.err), (0, "freestone: the profile cannot be written to /nowhere/profile\n"))

    def test_the_path_names_the_process_and_the_dump(self) -> None:
        conf = f"{EVERY},prof_file:{self.folder}/p.%p.%n"
        harness.run([harness.PROBES / "profile_probe", "history"], conf=conf)
        (written,) = self.folder.iterdir()
        self.assertRegex(written.name, r"^p\.\d+\.0$")

    def test_children_of_fork_write_their_own(self) -> None:
        pattern = self.folder / "p.%p"
        code = (
            "import os\nx=[bytes(3000) for _ in range(300)]\npid=os.fork()\n"
            "y=[bytes(2000) for _ in range(100)]\nif pid: os.waitpid(pid,0)\n"
        )
        done = harness.run(["/usr/bin/python3", "-I", "-c", code], conf=f"{EVERY},prof_file:{pattern}")
        self.assertEqual((done.status, done.err), (0, ""), done)
        read = [profiles.read_pprof(p) for p in self.folder.iterdir()]
        self.assertEqual(len(read), 2)
        # The child starts anew with what is live: what the parent had freed before is not in its sums.
        sums = sorted(p.total("alloc_space") for p in read)
        self.assertLess(sums[0], sums[1])

    def test_static_probe_points_are_there(self) -> None:
        command = ["readelf", "-n", str(harness.LIBRARY)]
        notes = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name in ("sample_allocate", "sample_free"):
            self.assertRegex(notes, rf"Provider: freestone\s+Name: {name}")

    def test_signals_write_and_toggle(self) -> None:
        code = (
            "import sys\nprint('ready',flush=True)\n"
            "for line in sys.stdin:\n  x=[bytes(3000) for _ in range(200)]\n  print('done',flush=True)\n"
        )
        signals = f"prof_signal:{int(signal.SIGUSR2)},prof_toggle_signal:{int(signal.SIGUSR1)}"
        for toggle in (False, True):
            self.path.unlink(missing_ok=True)
            active = f"prof_active:{'false' if toggle else 'true'}"
            conf = f"{EVERY},{active},{signals},prof_final:false,prof_file:{self.path}"
            with subprocess.Popen(
                ["/usr/bin/python3", "-I", "-c", code],
                env=harness.environment([harness.LIBRARY] if harness.LIBRARY else [], {"FREESTONE_CONF": conf}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as child:
                assert child.stdin and child.stdout
                child.stdout.readline()
                if toggle:
                    child.send_signal(signal.SIGUSR1)
                child.stdin.write("go\n")
                child.stdin.flush()
                child.stdout.readline()
                child.send_signal(signal.SIGUSR2)
                while not self.path.exists():
                    self.assertIsNone(child.poll(), "it ended without a profile")
                    time.sleep(0.02)
            self.assertEqual(child.returncode, 0)
            self.assertGreaterEqual(profiles.read_pprof(self.path).total("alloc_space"), 200 * 3000)


def allocated(call: str, count: int, sizes: tuple[int, ...]) -> int:
    """The bytes that the probe asks for."""
    if call == "pvalloc":
        return count * sum(-(-size // PAGE) * PAGE for size in sizes)
    return count * sum(sizes) + (count * len(sizes) * 16 if call == "realloc_grows" else 0)


class EveryCall(ProfileTest):
    """Each call that allocates is in the profile, also when it is a thread's first.

    With every block sampled it is there exactly, with few of them within the error of the estimate.
    """

    def sampled(self, *words: object, conf: str = "", sample_bytes: int = 1) -> int:
        """The bytes that the profile says were allocated by the probe's function `place`."""
        conf = f"prof_view:cumulative,{conf}"
        found = self.collapsed("profile_probe", *map(str, words), conf=conf, sample_bytes=sample_bytes)
        return sum(size for stack, size in found.items() if "place" in stack)

    def test_with_every_block_sampled_nothing_is_missing(self) -> None:
        for call in CALLS:
            with self.subTest(call=call):
                self.assertEqual(self.sampled(call, 12, *SIZES), allocated(call, 12, SIZES))

    def test_with_few_samples_the_sum_is_right_within_six_standard_errors(self) -> None:
        mean, size, count = 70_000, 13_000, 3_000
        error = math.sqrt(mean / (size * count))
        for call in CALLS:
            with self.subTest(call=call):
                wanted = allocated(call, count, (size,))
                found = self.sampled(call, count, size, sample_bytes=mean)
                self.assertLess(abs(found / wanted - 1), 6 * error)

    def test_a_thread_that_its_cache_serves_alone_is_seen_from_the_start_of_a_late_profile_on(self) -> None:
        for call in [c for c in CALLS if c != "pvalloc"]:  # whose pages and a trailer are above the table of classes
            for size in (100, 4000):
                with self.subTest(call=call, size=size):
                    found = self.sampled(call, "late", size, conf="prof_active:false")
                    self.assertGreaterEqual(found, int(self.printed) * size)

    def test_switching_on_and_off_beside_threads_that_allocate_gives_no_block_twice(self) -> None:
        for call in ("malloc", "calloc"):
            with self.subTest(call=call):
                self.sampled(call, "toggled", 6000, conf="prof_active:false", sample_bytes=20000)


class Stacks(ProfileTest):
    """They are whole: by tables for any code, by frame pointers for code that has them."""

    def stacks(self, probe: str, unwind: str) -> dict[tuple[str, ...], int]:
        """Stack, outermost first -> bytes."""
        return self.collapsed(probe, "chains", conf=f"prof_view:cumulative,prof_unwind:{unwind}")

    def test_tables_pass_any_code_and_frame_pointers_code_that_has_them(self) -> None:
        for probe, unwind in (
            ("profile_omitted_probe", "tables"),
            ("profile_probe", "tables"),
            ("profile_probe", "frame_pointer"),
        ):
            found = self.stacks(probe, unwind)
            whole = {s: size for s, size in found.items() if s[-10:] == CHAIN}
            # malloc, calloc, realloc, aligned_alloc, new, a larger calloc, a run, realloc of a malloc; once in a
            # thread, once on a fibre.
            ways = 777 * 5 + 50_000 + 1_000_000 + 100 + 5_000
            from_main = [s for s in whole if "main" in s[:-10] or any(f.startswith("__libc_start_main") for f in s)]
            self.assertEqual(sum(whole.values()), ways + 2 * 777, found)
            self.assertEqual(sum(whole[s] for s in from_main), ways, whole)
            if unwind == "tables":
                self.assertTrue(any(s[:2] == ("_start", "__libc_start_main") for s in whole), "as far as _start")

    def test_frame_pointers_still_name_the_caller_of_code_that_has_none(self) -> None:
        found = [s for s in self.stacks("profile_omitted_probe", "frame_pointer") if "depth_0" in s]
        self.assertTrue(found)
        self.assertTrue(all(s[-1] == "depth_0" for s in found), found)

    def test_deep_stacks_are_cut_at_the_innermost_frames(self) -> None:
        deep = [s for s in self.stacks("profile_omitted_probe", "tables") if "deep" in s]
        self.assertEqual({len(s) for s in deep}, {128})
        self.assertEqual(deep[0][-5:], ("deep", "depth_3", "depth_2", "depth_1", "depth_0"))


if __name__ == "__main__":
    harness.main()
