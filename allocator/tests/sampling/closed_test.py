"""A library that was closed: its functions keep their names in the profile, and do not take the next one's."""

from __future__ import annotations

import collections
import shutil
from pathlib import Path

from sampling import profiles
from support import harness

PLUGINS = [harness.PROBES / f"closed_plugin_{number}.so" for number in ("one", "two")]


class Closed(harness.FreestoneTest):
    def profile(self, conf: str, how: str) -> Path:
        path = self.folder / "profile"
        plugins = [shutil.copy(plugin, self.folder) for plugin in PLUGINS]
        every = f"prof:true,prof_sample_bytes:1,prof_file:{path},{conf}"
        done = harness.run([harness.PROBES / "closed_probe", *plugins, how], conf=every)
        self.assertEqual((done.status, done.err), (0, ""), done)
        return path

    def test_each_keeps_its_own_names_closed_without_files_or_while_they_stay(self) -> None:
        for how, rounds, conf in (
            ("closed", 3, ""),
            ("closed", 3, "prof_unwind:frame_pointer"),
            ("gone", 1, ""),
            ("twice", 3, ""),
        ):
            found: collections.Counter[tuple[str, ...]] = collections.Counter()
            for stack, size in profiles.read_collapsed(self.profile(f"prof_format:collapsed,{conf}", how)).items():
                end = stack[next((k for k, name in enumerate(stack) if name.startswith("plugin_")), len(stack)) :]
                found[end] += size
            for name, count in (("plugin_one", 100), ("plugin_two", 50)):
                self.assertEqual(found[(name,)], rounds * count * 1000, (how, conf, found))
                self.assertEqual(found[(name, "from_plugin")], rounds * count * 200, (how, conf, found))

    def test_in_pprof(self) -> None:
        calls = profiles.read_pprof(self.profile("", "closed")).calls
        of_plugins = {(name, Path(file).name) for name, file, _ in calls if name.startswith("plugin_")}
        self.assertEqual(
            of_plugins, {("plugin_one", "closed_plugin_one.so"), ("plugin_two", "closed_plugin_two.so")}, calls
        )

    def test_by_address_in_heap_v2(self) -> None:
        stacks = profiles.read_heap_v2(self.profile("prof_format:heap_v2", "closed")).stacks
        deep = {stack: numbers for stack, numbers in stacks.items() if numbers[0] in (100, 300)}
        self.assertTrue(deep, stacks)
        self.assertTrue(all(len(stack) >= 3 for stack in deep), stacks)


if __name__ == "__main__":
    harness.main()
