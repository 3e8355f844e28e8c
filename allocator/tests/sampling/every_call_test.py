"""Each call that allocates is in the profile, also when it is a thread's first.

With every block sampled it is there exactly, with few of them within the error of the estimate.
"""

from __future__ import annotations

import math

from sampling import profiles
from support import harness

CALLS = (
    "malloc", "calloc", "realloc", "realloc_grows", "reallocarray", "memalign", "aligned_alloc", "posix_memalign",
    "valloc", "pvalloc", "new", "new_array", "new_nothrow", "new_aligned",
)  # fmt: skip
SIZES = (100, 1000, 2100, 4096, 13034, 40001, 70000, 200_000, 3_000_000)
PAGE = 4096


def allocated(call: str, count: int, sizes: tuple[int, ...]) -> int:
    """The bytes that the probe asks for."""
    if call == "pvalloc":
        return count * sum(-(-size // PAGE) * PAGE for size in sizes)
    return count * sum(sizes) + (count * len(sizes) * 16 if call == "realloc_grows" else 0)


class EveryCall(profiles.ProfileTest):
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


if __name__ == "__main__":
    harness.main()
