"""The tables of all programs; `python3 -m preload.programs` prints the names that ctest runs, for the build."""

from preload import adoption, catalogue, languages, linked, profilers, sandboxes, servers
from preload.program import Program

IN_CTEST: dict[str, Program] = {
    **languages.PROGRAMS, **catalogue.TOOL_PROGRAMS, **servers.PROGRAMS, **sandboxes.PROGRAMS
}  # fmt: skip
PROGRAMS: dict[str, Program] = {
    **IN_CTEST, **catalogue.PROGRAMS, **linked.PROGRAMS, **sandboxes.BROWSERS, **adoption.PROGRAMS,
    **profilers.PROGRAMS,
}  # fmt: skip
# What Debian has them in, beyond what tests need anyway; PHP's come with the extensions that its script is about, and
# aspell with its words. Rust is not here: who has it has it from elsewhere.
PACKAGES = {
    *catalogue.PACKAGES.values(),
    *sandboxes.BROWSER_PACKAGES.values(),
    *("aspell-en", "bc", "curl", "default-jdk-headless", "gdb", "ghostscript", "graphviz", "libxml2-utils", "lld-19"),
    *("bind9", "bind9-dnsutils", "chrony", "openssh-client", "openssh-server", "redis-server", "tor"),
    *("bind9-utils", "bubblewrap", "groff", "man-db", "mmdebstrap", "openssl", "tcl", "varnish", "vim"),
    *("heaptrack", "php-cli", "php-curl", "php-intl", "php-mysql", "python3-venv"),
}

if __name__ == "__main__":
    print(";".join(IN_CTEST), end="")
