"""The tables of all programs; `python3 -m preload.programs` prints the names that ctest runs, for the build."""

from __future__ import annotations

from preload import adoption, browsers, catalogue, daemons, languages, linked, sandboxes, servers, tools
from preload.program import Program

IN_CTEST: dict[str, Program] = {
    **languages.PROGRAMS, **tools.PROGRAMS, **servers.PROGRAMS, **sandboxes.PROGRAMS, **daemons.PROGRAMS
}  # fmt: skip
<<<<<<< HEAD
PROGRAMS: dict[str, Program] = {**IN_CTEST, **catalogue.PROGRAMS, **browsers.PROGRAMS, **adoption.PROGRAMS, **profilers.PROGRAMS}
=======
PROGRAMS: dict[str, Program] = {**IN_CTEST, **catalogue.PROGRAMS, **linked.PROGRAMS, **browsers.PROGRAMS, **adoption.PROGRAMS}
>>>>>>> b2f4ded (preload: roots with daemons, sandboxes and what is linked with a malloc)
# What Debian has them in, beyond what tests need anyway; PHP's come with the extensions that its script is about, and
# aspell with its words. Rust is not here: who has it has it from elsewhere.
PACKAGES = {
    *catalogue.PACKAGES.values(),
    *browsers.PACKAGES.values(),
    *("aspell-en", "bc", "curl", "default-jdk-headless", "gdb", "ghostscript", "graphviz", "libxml2-utils", "lld-19"),
    *("bind9", "bind9-dnsutils", "chrony", "openssh-client", "openssh-server", "redis-server", "tor", "vim"),
    *("heaptrack", "mmdebstrap", "openssl", "php-cli", "php-curl", "php-intl", "php-mysql", "python3-venv", "tcl"),
}

if __name__ == "__main__":
    print(";".join(IN_CTEST), end="")
