"""The tables of all programs; `python3 -m preload.programs` prints the names that ctest runs, for the build."""

from __future__ import annotations

from preload import adoption, browsers, catalogue, daemons, languages, linked, sandboxes, servers, tools
from preload.program import Program

IN_CTEST: dict[str, Program] = {
    **languages.PROGRAMS, **tools.PROGRAMS, **servers.PROGRAMS, **sandboxes.PROGRAMS, **daemons.PROGRAMS
}  # fmt: skip
PROGRAMS: dict[str, Program] = {**IN_CTEST, **catalogue.PROGRAMS, **linked.PROGRAMS, **browsers.PROGRAMS, **adoption.PROGRAMS, **profilers.PROGRAMS}
=======
PROGRAMS: dict[str, Program] = {
    **IN_CTEST, **catalogue.PROGRAMS, **linked.PROGRAMS, **browsers.PROGRAMS, **adoption.PROGRAMS
}  # fmt: skip
>>>>>>> 4ce4f01 (roots: the table counts packages that are linked with a malloc)
# What Debian has them in, beyond what tests need anyway; PHP's come with the extensions that its script is about, and
# aspell with its words. Rust is not here: who has it has it from elsewhere.
PACKAGES = {
    *catalogue.PACKAGES.values(),
    *browsers.PACKAGES.values(),
    *("aspell-en", "bc", "curl", "default-jdk-headless", "gdb", "ghostscript", "graphviz", "libxml2-utils", "lld-19"),
# What Debian has them in, beyond what tests need anyway; PHP's come with the extensions that its script is about, and
# aspell with its words. Rust is not here: who has it has it from elsewhere.
PACKAGES = {
    *catalogue.PACKAGES.values(),
    *browsers.PACKAGES.values(),
    *("aspell-en", "bc", "curl", "default-jdk-headless", "gdb", "ghostscript", "graphviz", "libxml2-utils", "lld-19"),
<<<<<<< HEAD
    *("bind9", "bind9-dnsutils", "chrony", "openssh-client", "openssh-server", "redis-server", "tor", "vim"),
    *("heaptrack", "mmdebstrap", "openssl", "php-cli", "php-curl", "php-intl", "php-mysql", "python3-venv", "tcl"),
=======
    *("bind9", "bind9-dnsutils", "chrony", "openssh-client", "openssh-server", "redis-server", "tor"),
<<<<<<< HEAD
    *("bind9-utils", "bubblewrap", "groff", "man-db", "mmdebstrap", "openssl", "php-cli", "php-curl", "php-intl", "php-mysql", "tcl", "varnish", "vim"),
>>>>>>> 4ce4f01 (roots: the table counts packages that are linked with a malloc)
=======
    *("bind9-utils", "bubblewrap", "groff", "man-db", "mmdebstrap", "openssl", "tcl", "varnish", "vim"),
    *("php-cli", "php-curl", "php-intl", "php-mysql"),
>>>>>>> d7ec403 (preload: lines within 120 columns)
}

if __name__ == "__main__":
    print(";".join(IN_CTEST), end="")
