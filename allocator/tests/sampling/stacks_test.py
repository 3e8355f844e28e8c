"""Call stacks are whole: by tables for any code, by frame pointers for code that has them, and of libraries that were
closed: their functions keep their names in the profile, and do not take the next one's."""

from __future__ import annotations

import collections
import shutil
from pathlib import Path

from sampling import profiles
from support import harness

CHAIN = tuple(f"depth_{i}" for i in range(9, -1, -1))


class Stacks(profiles.ProfileTest):
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


class Closed(profiles.ProfileTest):
    def plugins(self) -> list[str]:
        return [shutil.copy(harness.PROBES / f"closed_plugin_{number}.so", self.folder) for number in ("one", "two")]

    def test_each_keeps_its_own_names_closed_without_files_or_while_they_stay(self) -> None:
        for how, rounds, conf in (
            ("closed", 3, ""),
            ("closed", 3, "prof_unwind:frame_pointer"),
            ("gone", 1, ""),
            ("twice", 3, ""),
        ):
            found: collections.Counter[tuple[str, ...]] = collections.Counter()
            for stack, size in self.collapsed("profile_probe", "plugins", *self.plugins(), how, conf=conf).items():
                end = stack[next((k for k, name in enumerate(stack) if name.startswith("plugin_")), len(stack)) :]
                found[end] += size
            for name, count in (("plugin_one", 100), ("plugin_two", 50)):
                self.assertEqual(found[(name,)], rounds * count * 1000, (how, conf, found))
                self.assertEqual(found[(name, "from_plugin")], rounds * count * 200, (how, conf, found))

    def test_in_pprof(self) -> None:
        calls = profiles.read_pprof(self.profile("profile_probe", "plugins", *self.plugins(), "closed")).calls
        of_plugins = {(name, Path(file).name) for name, file, _ in calls if name.startswith("plugin_")}
        self.assertEqual(of_plugins, {(f"plugin_{n}", f"closed_plugin_{n}.so") for n in ("one", "two")}, calls)

    def test_by_address_in_heap_v2(self) -> None:
        path = self.profile("profile_probe", "plugins", *self.plugins(), "closed", conf="prof_format:heap_v2")
        stacks = profiles.read_heap_v2(path).stacks
        deep = {stack: numbers for stack, numbers in stacks.items() if numbers[0] in (100, 300)}
        self.assertTrue(deep, stacks)
        self.assertTrue(all(len(stack) >= 3 for stack in deep), stacks)


if __name__ == "__main__":
    harness.main()
