"""A checkout in a folder with a blank builds: an object of each target, and what is linked by files of the tree."""

import re

from packaging_support import ROOT, InFolder, call

from support import harness


class Blank(InFolder):
    def test_a_checkout_there_builds(self) -> None:
        source, built = self.folder / "a 'blank' \u00fc" / "free stone", self.folder / "b blank" / "release"
        source.parent.mkdir()
        source.symlink_to(ROOT)
        call("cmake", "-G", "Ninja", "-S", source, "-B", built, "-DFREESTONE_TESTS=OFF")
        self.assertIn("FREESTONE_HAS_FAR_SCRIPT:INTERNAL=1", (built / "CMakeCache.txt").read_text())
        targets = call("ninja", "-C", built, "-t", "targets", "all")
        kinds = {name.partition(".dir/")[0]: name for name in re.findall(r"(?m)^(\S+\.dir/\S+\.o): ", targets)}
        self.assertGreater(len(kinds), 20)
        call("ninja", "-C", built, "freestone_probe", *kinds.values())


if __name__ == "__main__":
    harness.main()
