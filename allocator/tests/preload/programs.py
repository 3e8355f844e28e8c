"""The table of all programs; `python3 -m preload.programs` prints the names, for the build."""

from __future__ import annotations

from preload import languages, servers, tools
from preload.program import Program

PROGRAMS: dict[str, Program] = {**languages.PROGRAMS, **tools.PROGRAMS, **servers.PROGRAMS}

if __name__ == "__main__":
    print(";".join(PROGRAMS), end="")
