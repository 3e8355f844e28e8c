"""Call stacks are whole: by tables for any code, by frame pointers for code that has them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sampling import profiles
from support import harness

CHAIN = tuple(f"depth_{i}" for i in range(9, -1, -1))


def stacks(probe: str, unwind: str) -> dict[tuple[str, ...], int]:
    """Stack, outermost first -> bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p"
        every = "prof:true,prof_sample_bytes:1,prof_format:collapsed,prof_view:cumulative"
        conf = f"{every},prof_unwind:{unwind},prof_file:{path}"
        done = harness.run([harness.PROBES / probe], conf=conf)
        assert (done.status, done.out, done.err) == (0, "done\n", ""), done
        return profiles.read_collapsed(path)


class Stacks(harness.FreestoneTest):
    def test_tables_pass_any_code_and_frame_pointers_code_that_has_them(self) -> None:
        for probe, unwind in (
            ("stacks_omitted_probe", "tables"),
            ("stacks_probe", "tables"),
            ("stacks_probe", "frame_pointer"),
        ):
            found = stacks(probe, unwind)
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
        found = [s for s in stacks("stacks_omitted_probe", "frame_pointer") if "depth_0" in s]
        self.assertTrue(found)
        self.assertTrue(all(s[-1] == "depth_0" for s in found), found)

    def test_deep_stacks_are_cut_at_the_innermost_frames(self) -> None:
        deep = [s for s in stacks("stacks_omitted_probe", "tables") if "deep" in s]
        self.assertEqual({len(s) for s in deep}, {128})
        self.assertEqual(deep[0][-5:], ("deep", "depth_3", "depth_2", "depth_1", "depth_0"))


if __name__ == "__main__":
    harness.main()
