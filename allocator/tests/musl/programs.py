"""Programs built for musl from Debian's source packages: the same status and output under both libraries as without.

    python3 -m musl.programs BUILD [NAME...]     the folder of the build in which musl_test.py made the libraries

Needs musl-tools, and apt for the sources. A C++ program needs zig, whose C++ library it carries: FREESTONE_ZIG is the
command (`python3 -m ziglang`, from PyPI); without it that program is not judged.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from preload.sources import Unavailable, prepared
from support import harness

CC = "musl-gcc -O1 -w"


@dataclass(frozen=True)
class Program:
    """`build` is a shell script in the unpacked source; `run` one in an empty folder, with $SOURCE the source. What a
    line of `run` starts by $WITH is served."""

    package: str
    build: str
    run: str
    needs_zig: bool = False


PROGRAMS = {
    "lua": Program(
        "lua5.4",
        f"""cd src && rm -f luac.c && echo '#define DEB_HOST_MULTIARCH "musl"' > lua5.4-deb-multiarch.h
        {CC} -DLUA_USE_POSIX -o ../musl-lua *.c -lm""",
        """$WITH $SOURCE/musl-lua -e '
        local t, n = {}, 0
        for i = 1, 300000 do t[i % 5000] = {tostring(i), string.rep("x", i % 700)}; n = n + #t[i % 5000][2] end
        for i = 1, 200 do collectgarbage(); t[i] = table.concat({("y"):rep(i * 1000), i}) end
        print(n, #t[200])'""",
    ),
    "sqlite": Program(
        "sqlite3",
        f"""./configure --disable-tcl --disable-readline --disable-shared CC='{CC}' BCC=gcc
        make -j2 sqlite3.c shell.c
        {CC} -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -o musl-sqlite sqlite3.c shell.c -lm -lpthread""",
        """$WITH $SOURCE/musl-sqlite data.db "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
          INSERT INTO t SELECT i, 'row ' || i, zeroblob(i % 500) FROM n;
        CREATE INDEX b ON t(b); SELECT count(*), sum(length(c)), max(b) FROM t;
        SELECT group_concat(b) FROM (SELECT b FROM t ORDER BY b DESC LIMIT 20); DELETE FROM t WHERE a % 3 = 0; VACUUM;
        SELECT count(*) FROM t;" """,
    ),
    "jq": Program(
        "jq",
        # What its Makefile, which needs autoconf, would make.
        f"""sed -e 's/\\\\/\\\\\\\\/g' -e 's/"/\\\\"/g' -e 's/^/"/' -e 's/$/\\\\n"/' src/builtin.jq > src/builtin.inc
        echo '#define JQ_VERSION "musl"' > src/version.h; rm -f src/inject_errors.c
        {CC} -std=gnu99 -I. -Isrc -D_GNU_SOURCE -DIEEE_8087 -DHAVE_MEMMEM -DHAVE_ISATTY -DHAVE_SETLOCALE -DHAVE_TIMEGM \
        -DHAVE_PTHREAD_KEY_CREATE -DHAVE_PTHREAD_ONCE -DHAVE_GMTIME_R -o musl-jq src/*.c -lm""",
        """seq 1 20000 | $WITH $SOURCE/musl-jq -s -c 'map({k: tostring, v: [range(. % 7)]}) | group_by(.v | length)
        | map({n: length, first: .[0].k, sum: (map(.v | add // 0) | add)})'""",
    ),
    "redis": Program(
        "redis",
        f"""make -j2 -C src CC="{CC} -idirafter /usr/include -idirafter /usr/include/$(gcc -print-multiarch)" \
        MALLOC=libc USE_SYSTEMD=no BUILD_TLS=no OPTIMIZATION=-O1 redis-server redis-cli""",
        """$WITH $SOURCE/src/redis-server --port 0 --unixsocket $PWD/s --save '' --io-threads 4 --daemonize no >log &
        server=$!; c="$SOURCE/src/redis-cli -s $PWD/s"
        for k in $(seq 100); do $c ping >/dev/null 2>&1 && break; sleep .1; done
        $c eval 'for i = 1, 60000 do redis.call("set", "k" .. i, string.rep("v", i % 900)) end return 1' 0
        $c eval 'for i = 1, 60000, 2 do redis.call("del", "k" .. i) end return redis.call("dbsize")' 0
        $c eval 'for i = 1, 3000 do redis.call("zadd", "z", i, "m" .. i) end return redis.call("zcard", "z")' 0
        $c debug sleep 0 >/dev/null; $c shutdown nosave; wait $server; echo "ended with $?" """,
    ),
    "zstd": Program(  # by several threads
        "libzstd",
        f"make -j2 -C programs zstd CC='{CC}' HAVE_ZLIB=0 HAVE_LZMA=0 HAVE_LZ4=0 ZSTD_LEGACY_SUPPORT=0 BACKTRACE=0",
        """seq 1 1500000 > numbers; $WITH $SOURCE/programs/zstd -q -T4 -B1M -12 numbers
        $WITH $SOURCE/programs/zstd -q -d -c numbers.zst | sha256sum; wc -c < numbers.zst""",
    ),
    "ninja": Program(  # in C++, with zig's libc++
        "ninja-build",
        """target="$(uname -m)-linux-musl -dynamic"
        printf '#!/bin/sh\\nexec %s c++ -target %s "$@"\\n' "$FREESTONE_ZIG" "$target" > zig-c++
        chmod +x zig-c++; CXX="$PWD/zig-c++" /usr/bin/python3 configure.py --bootstrap""",
        """for k in $(seq 4000); do echo "build o$k: t i$((k % 50)) o$((k - 1))"; done > rest
        (echo "rule t"; echo "  command = true"; echo "build o0: t"; cat rest) > build.ninja; touch $(seq -f i%g 0 49)
        $WITH $SOURCE/ninja -n -d stats o4000 | grep -c true; $WITH $SOURCE/ninja -t graph o2000 | sort | sha256sum""",
        needs_zig=True,
    ),
}


def play(program: Program, source: Path, library: Path | None) -> tuple[int, str]:
    with tempfile.TemporaryDirectory(prefix="musl-", ignore_cleanup_errors=True) as folder:
        served = f"env LD_PRELOAD={library}" if library else "env"
        environment = harness.environment([], {"SOURCE": str(source), "WITH": served})
        done = subprocess.run(
            ["bash", "-c", program.run], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, timeout=harness.HANG_SECONDS,
        )  # fmt: skip
        return done.returncode, done.stdout.replace(folder, "FOLDER") + done.stderr


def judge(name: str, libraries: list[Path]) -> bool:
    program = PROGRAMS[name]
    if program.needs_zig and not os.environ.get("FREESTONE_ZIG"):
        print(f"{name}: not judged: FREESTONE_ZIG is not set", flush=True)
        return True
    try:
        source = prepared(program.package, program.build)
    except Unavailable as reason:
        print(f"{name}: not judged: {reason}", flush=True)
        return False
    alone = play(program, source, None)
    wrong = [library.name for library in libraries if play(program, source, library) != alone]
    if alone[0] != 0 or wrong:
        print(f"{name}: alone {alone[0]}, {alone[1][-500:]!r}; differs under {wrong}", flush=True)
        return False
    print(f"{name}: the same under {', '.join(library.name for library in libraries)}", flush=True)
    return True


def main(build: str, *names: str) -> int:
    libraries = [Path(build).resolve() / "musl" / f"lib{name}.so.1" for name in ("freestone", "freestone-hardened")]
    return 0 if all([judge(name, libraries) for name in names or PROGRAMS]) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
