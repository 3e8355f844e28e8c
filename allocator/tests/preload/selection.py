"""What the suites run: which of the tests, with what builds and helpers, and what is left out and why."""

CPYTHON = """
    set list dict memoryview pickle sqlite3 xml_etree_c pyexpat bz2 fork1 ctypes
"""

NUMPY = """
    core/tests/test_regression core/tests/test_shape_base core/tests/test_indexing
"""

GLIB = """
    array-test asyncqueue base64 bookmarkfile bytes cache charset closure collate completion cond convert dataset
    dir enums error fileutils hash hmac hook io-channel keyfile list logging macros mappedfile markup mem-overflow
    node object once option-context pattern private properties rcbox refcount refstring relation resources
    scannerapi shell signals slice-concurrent slist sort strfuncs string strvbuilder thread thread-pool tree type
    unicode uri utf8-misc utils value
"""

RUBY = """
    array hash string symbol struct bignum fiber objectspace thread_queue weakmap enumerator proc
"""

PERL = """
    op/array op/hash op/sort op/split op/join op/push op/splice op/grep op/closure op/fork op/local op/tie
    op/tiearray op/repeat op/reverse op/each op/ref re/qr re/subst uni/sprintf io/open io/pipe
"""

PHP = """
    Zend/tests/closures Zend/tests/arg_unpack
"""

NODE = """
    buffer-alloc buffer-concat buffer-slice buffer-fill zlib zlib-brotli zlib-from-string crypto-hash crypto-hmac
    fs-readfile stream-pipeline http-keep-alive net-pingpong child-process-fork worker worker-message-port vm-basic
    v8-serdes string-decoder util-inspect
"""

TCL = """
    append dict lindex linsert list lmap lrange lsearch lset namespace oo proc regexp subst switch trace upvar var
    coroutine concat incr join split foreach
"""

REDIS = """
    type/list type/hash type/set type/incr scan keyspace multi functions lazyfree
"""

GIT = """
    t0001 t0003 t1006 t1300 t3903 t4202 t5302
"""

SQLITE = """
    select1 insert delete join index alter attach blob cast collate1 corrupt cte fts3aa func in json101 memdb
    pragma savepoint trigger1 vacuum view where window1 with1 softheap1 mem5 thread001 wal
"""

BASH = """
    alias appendop arith array array2 assoc attr braces case casemod cond dollars dynvar execscript exp exportfunc
    extglob func getopts glob-test heredoc herestr ifs invert iquote mapfile more-exp new-exp nquote parser
    posix2 posixexp posixpat precedence printf procsub quote quotearray redir rhs-exp set-e set-x shopt strip test
    tilde type varenv
"""

POSTGRES = """
    test_setup boolean char varchar text int2 int4 int8 float8 bit numeric uuid enum strings point date time
    timestamp interval create_index select union case join aggregates arrays hash_index update delete jsonb prepare
    with regex
"""

# It copies the last page of a block by glibc's layout, and so reads past the block's end; it is about errno.
GLIBC_SETTINGS = {"malloc/tst-free-errno": {"FREESTONE_CONF": "check_libc:false"}}

# Whatever else builds is run: what fails without a library must fail alike.
GLIBC_LEFT_OUT = {
    name: why
    for names, why in (
        ("malloc/tst-malloc-usable malloc/tst-mxfast", "a setting of glibc's own malloc"),
        ("malloc/tst-interpose-* string/test-strerror-errno dlfcn/tst-rec-dlopen", "a malloc of its own"),
        ("elf/tst-audit2 resolv/tst-res_hconf_reorder", "a malloc of its own"),
        ("sysdeps/unix/sysv/linux/tst-sysv*-linux", "it may not end beside a test that uses the same"),
        ("nptl/tst-cancel*7", "on a busy machine its child outlives it"),
        ("malloc/tst-safe-linking malloc/tst-malloc-backtrace", "it damages glibc's own lists on purpose"),
        ("malloc/tst-tcfree*", "it frees twice and reads what is freed on purpose: the library says so"),
    )
    for name in names.split()
}

# Runs test modules of CPython; writes `test: result` for each test into the file named first.
PYTHON_DRIVER = """
import sys, unittest
lines = []
class Result(unittest.TestResult):
    def note(word):
        return lambda self, test, *rest: lines.append(f"{test.id()}: {word}")
    addSuccess, addFailure, addError, addSkip = map(note, ("ok", "failed", "error", "skipped"))
    addExpectedFailure, addUnexpectedSuccess = map(note, ("expected failure", "unexpected success"))
    def addSubTest(self, test, subtest, error):
        if error: lines.append(f"{subtest.id()}: failed")
unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:]).run(Result())
open(sys.argv[1], "w").write("\\n".join(sorted(lines)))
"""

# The tests of perl take their modules from ../lib: here a tree of links to the machine's own.
PERL_LIBRARY = """
mkdir lib
for part in /usr/share/perl/5.36 /usr/lib/*-linux-gnu/perl/5.36 /usr/lib/*-linux-gnu/perl-base; do
  cp -rsf $part/. lib
done
ln -s /usr/bin/perl t/perl
"""

# postgres refuses to run as root; its user must reach the folder, and the witness must let it write.
POSTGRES_SHELL = """
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups env HOME=$PWD "$@"; }
bin=/usr/lib/postgresql/15/bin
"""
POSTGRES_START = (
    POSTGRES_SHELL
    + """
chmod 777 . ; touch witness.txt; chmod 666 witness.txt; chmod -R a+rwX regress
as_postgres $bin/initdb -D $PWD/d -A trust -E UTF8 --locale=C > /dev/null
options="-F -c listen_addresses= -c unix_socket_directories=$PWD -c max_prepared_transactions=2"
as_postgres $bin/pg_ctl -D $PWD/d -w -s -l $PWD/log -o "$options" start
$bin/psql -q -X -h $PWD -U postgres -c 'create database regression' -c "alter database regression set lc_messages = 'C'"
"""
)
POSTGRES_STOP = POSTGRES_SHELL + "as_postgres $bin/pg_ctl -D $PWD/d -w -s -m fast stop\n"

# glibc's tests of all folders as plain programs of this machine, as far as they build outside glibc's own tree: their
# support functions in one archive, but for those that only that tree can compile. fbtl is kFreeBSD's.
GLIBC_BUILD = """
rm -rf shim freestone; mkdir shim freestone
for name in libc-diag.h array_length.h intprops.h; do cp include/$name shim; done
ln -sfn ../support shim/support
flags="-O1 -w -fno-builtin -std=gnu11 -D_GNU_SOURCE -DTIMEOUTFACTOR=1 -include limits.h -I shim -I support"
paths=$(grep -o "[A-Z_]*_PATH" support/support_paths.c | sort -u | sed "s/.*/-D&=\\"\\"/" | tr "\\n" " ")
for file in support/*.c; do
  case $file in */tst-*|*-time64.c) ;; *) gcc $flags $paths -c $file -o shim/$(basename $file .c).o || true ;; esac
done
rm -f shim/test-driver.o shim/*-container.o shim/libsupport.a
ar rc shim/libsupport.a shim/*.o
places="*/*.c sysdeps/pthread/*.c sysdeps/unix/sysv/linux/*.c sysdeps/generic/*.c sysdeps/posix/*.c sysdeps/x86*/*.c"
{
  grep -lE '(test-skeleton|test-driver)[.]c[">]' $places
  grep -lE '^#include "tst-[a-z0-9-]*[.]c"' $places
} | grep -vE "^(fbtl|htl|hurd|mach)/|^support/test-driver" | sort -u > shim/tests
export flags
xargs -P2 -n1 sh -c '
  test=${1%.c}
  mkdir -p freestone/$(dirname $test)
  gcc $flags -I $(dirname $1) $1 shim/libsupport.a -o freestone/$test -ldl -lm -lrt -lpthread -lresolv || true
' sh < shim/tests
"""

BASH_BUILD = (
    "for name in recho zecho printenv xcase; do gcc -w -O1 -I . -I include support/$name.c -o tests/$name; done\n"
)
GIT_BUILD = """
parts="NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 NO_OPENSSL=1"
make -j2 $parts CFLAGS=-O1 GIT-BUILD-OPTIONS t/helper/test-tool
make -C templates
"""
SQLITE_BUILD = "./configure CFLAGS=-O1 && make testfixture\n"
