#!/usr/bin/env python3
"""Where tests run. `settle` gives a process, and what it starts, the place of a login: nothing that it inherited from a
shell, `nohup`, a hook or a runner decides a test. As a program, the contrary: COMMAND in the worst place.

usage: place.py COMMAND [ARGUMENT...]
"""

import os
import pwd
import re
import resource
import signal
import subprocess
import sys
import tempfile

SIGNALS = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2}
UNLIMITED = ("AS", "CPU", "DATA", "FSIZE", "MEMLOCK", "NPROC")
LIMITS = {"NOFILE": 1024, "STACK": 8 << 20, "CORE": 0}
WORST_LIMITS = {"NOFILE": 256, "STACK": 1 << 20, "CORE": resource.RLIM_INFINITY, "MEMLOCK": 64 << 10}
# The library's settings and the C library's; what git sets in a hook; what changes how programs print.
VARIABLES = re.compile(
    r"FREESTONE_(CONF|DISABLE|RECORD)$|MALLOC_|GLIBC_TUNABLES|GIT_(DIR|INDEX|WORK)|GTEST_|LC_|LANG|LOCPATH"
    r"|XDG_(CACHE|CONFIG|STATE)_HOME|(CDPATH|CI|COLUMNS|FORCE_COLOR|LINES|NO_COLOR|POSIXLY_CORRECT|PYTHONMALLOC|TZ)$"
)
PLAIN = re.compile(r"[\w./-]{1,60}")  # a folder that fits into a line of the shell and into a socket's name


def limit(name: str, soft: int) -> None:
    """Sets a soft limit, at most to the hard one."""
    what = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (min((soft, hard), key=lambda value: value % (1 << 64)), hard))  # unlimited is -1


def usable(folder: str) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def settle() -> None:
    """Signals, limits, standard files and variables are a login's afterwards. Only root could lower the niceness."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Python ignores SIGPIPE and SIGXFSZ, and gives them back to what it starts.
    for number in set(map(int, signal.valid_signals())) - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.umask(0o022)
    for name in UNLIMITED:
        limit(name, resource.RLIM_INFINITY)
    for name, soft in LIMITS.items():
        limit(name, soft)
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in filter(VARIABLES.match, list(os.environ)):
        del os.environ[name]
    os.environ["LC_ALL"] = "C.UTF-8"
    if not (PLAIN.fullmatch(folder := os.environ.get("TMPDIR", "/tmp")) and usable(folder)):
        os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"
    homes = (os.environ.get("HOME", ""), pwd.getpwuid(os.getuid()).pw_dir, tempfile.gettempdir())
    os.environ["HOME"] = next(filter(usable, homes))


def spoil() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, SIGNALS)
    os.nice(19)
    os.umask(0o077)
    for name, soft in WORST_LIMITS.items():
        limit(name, soft)
    folder = tempfile.mkdtemp(prefix="an odd place ")
    # With a comma in numbers, and an i that is no I; where the sources of locales are installed.
    turkish = ["localedef", "-i", "tr_TR", "-f", "UTF-8", f"{folder}/tr_TR.UTF-8"]
    subprocess.run(turkish, capture_output=True, check=False)
    os.environ |= {
        "CDPATH": "/tmp", "CI": "true", "COLUMNS": "20", "FORCE_COLOR": "1", "FREESTONE_BUILD_DIR": "/nonexistent",
        "FREESTONE_CONF": "stats_print:true,limit_hard:64m", "FREESTONE_DISABLE": "1",
        "FREESTONE_PEERS_DIR": "/nonexistent", "GTEST_FILTER": "none", "HOME": "/proc/nonexistent",
        "LANG": "de_DE.ISO-8859-1", "LANGUAGE": "tr", "LC_ALL": "tr_TR.UTF-8", "LINES": "5", "LOCPATH": folder,
        "MALLOC_PERTURB_": "165", "TMPDIR": folder, "TZ": "Asia/Kathmandu", "XDG_CACHE_HOME": "/proc/nonexistent",
    }  # fmt: skip
    os.close(0)


if __name__ == "__main__":
    spoil()
    os.execvp(sys.argv[1], sys.argv[1:])
