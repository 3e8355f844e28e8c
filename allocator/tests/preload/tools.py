"""Databases, version control and the small tools that scripts are made of."""

from __future__ import annotations

import hashlib

from preload.program import Program, digest, sample_text
from preload.session import Session

SQL = """
create table t (id integer primary key, name text, value real, note text);
with recursive c(i) as (select 0 union all select i + 1 from c where i < 60000)
  insert into t select i, 'name' || (i * 7919 % 10007), i / 3.0, substr('abcdefghijklmnopqrstuvwxyz', i % 20, i % 13) from c;
create index by_name on t (name); create index by_note on t (note, value);
select note, count(*), round(sum(value), 2), group_concat(name) from (select * from t where id % 211 = 0) group by note order by note;
select a.id, b.id from t a join t b on a.name = b.name and a.id < b.id where a.id % 1009 = 0 order by 1, 2 limit 50;
create virtual table f using fts5 (body);
insert into f select name || ' ' || note || ' ' || id from t where id < 20000;
select count(*), min(rowid) from f where f match 'name5 OR abc';
select json_group_array(json_object('k', id, 'v', name)) from t where id % 3001 = 0;
delete from t where id % 2; vacuum; select count(*), sum(length(note)) from t; pragma integrity_check;
"""

JQ = "group_by(.k) | map({k: .[0].k, n: length, s: (map(.v) | add), t: (map(.s | length) | max)}) | sort_by(.n, .k) | .[0:40]"

BASH = r"""
declare -A table; for i in {1..20000}; do table[$((i % 501))]+="x$i"; done
for k in 1 77 500; do echo "$k ${#table[$k]}"; done
list=(); for i in {1..3000}; do list+=("$(( i * 7919 % 10007 ))"); done; printf '%s\n' "${list[@]}" | sort -n | md5sum
f() { local depth=$1; (( depth == 0 )) && return; local s; s=$(printf '%0100d' "$depth"); f $((depth - 1)); echo "${#s}"; }; f 40 | tail -1
cat <<< "${list[*]//7/seven}" | wc -c; [[ "${list[*]}" =~ ([0-9]+)\ 7919 ]]; echo "${BASH_REMATCH[1]}"
"""


def sqlite(session: Session) -> str:
    return session.run("sqlite3", ":memory:", text=SQL)


def git(session: Session) -> str:
    fixed = {
        "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_AUTHOR_DATE": "1700000000 +0000",
        "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b.c", "GIT_COMMITTER_DATE": "1700000000 +0000",
        "GIT_CONFIG_NOSYSTEM": "1",
    }  # fmt: skip
    lines = sample_text(3000).splitlines()
    session.run("git", "init", "-q", "-b", "main", ".", extra=fixed)
    session.write(".gitignore", "witness.txt\n")
    for step in range(6):
        for part in range(12):
            session.write(f"file{part}.txt", "\n".join(line for i, line in enumerate(lines) if (i + part) % (step + 2)) + "\n")
        session.run("git", "add", ".", extra=fixed)
        session.run("git", "commit", "-q", "-m", f"step {step}", extra=fixed)
    session.run("git", "gc", "-q", "--aggressive", extra=fixed)
    session.run("git", "fsck", "--strict", extra=fixed)
    log = session.run("git", "log", "-p", "--stat", extra=fixed)
    blame = session.run("git", "blame", "file3.txt", extra=fixed)
    grep = session.run("git", "grep", "-c", "slab.*cache", extra=fixed)
    return hashlib.sha256((log + blame).encode()).hexdigest() + grep + session.run("git", "rev-parse", "HEAD", extra=fixed)


def jq(session: Session) -> str:
    rows = ",".join(f'{{"k":{i % 97},"v":{i * 3},"s":"{"y" * (i % 60)}"}}' for i in range(30_000))
    session.write("rows.json", f"[{rows}]")
    return session.run("jq", "-c", JQ, "rows.json")


def bash(session: Session) -> str:
    return session.run("bash", session.write("script.sh", BASH))


def pipeline(session: Session) -> str:
    session.write("input.txt", sample_text())
    script = r"""
    sort input.txt | uniq -c | sort -k1,1nr -k2 | head -50; sort -S 1M -k2,3 input.txt | md5sum; cut -d' ' -f2 input.txt | sort -u | tr '\n' ' '
    awk '{ n[$2 $3] += $1 } END { for (k in n) print k, n[k] }' input.txt | sort; sed -E 's/(s[a-z]+) ([a-z]+)/\2-\1/g' input.txt | md5sum
    grep -cE '(slab|span) .*x{10,}' input.txt; join <(sort input.txt) <(sort input.txt | head -100) | wc -l; tac input.txt | paste - - - | md5sum
    split -l 3000 input.txt part; diff partaa partab | md5sum; comm -12 <(sort partaa) <(sort partab) | wc -l; find . -name 'part*' | sort | xargs wc -l
    """
    return session.run("bash", "-c", script)


def archives(session: Session) -> str:
    session.write("input.txt", sample_text())
    script = r"""
    set -e -o pipefail
    tar --sort=name --mtime=@0 --owner=0 --group=0 -cf a.tar input.txt
    for tool in "gzip -n -9" "bzip2 -9" "xz -6 -T2" "zstd -q -9 -T2"; do
      command -v ${tool%% *} > /dev/null || { echo "no ${tool%% *}"; continue; }
      $tool -c < a.tar > packed; md5sum < packed; ${tool%% *} -dc < packed | tar -xOf - | md5sum
    done
    """
    return session.run("bash", "-c", script)


def openssl(session: Session) -> str:
    session.write("input.txt", sample_text())
    script = r"""
    for d in sha256 sha3-512 blake2b512; do openssl dgst -$d input.txt; done
    openssl enc -aes-256-cbc -pbkdf2 -S 0102030405060708 -pass pass:x -in input.txt | md5sum
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 10 -subj /CN=freestone 2> /dev/null && openssl verify -CAfile cert.pem cert.pem
    """
    return session.run("bash", "-c", script)


def binutils(session: Session) -> str:
    script = r"""
    file=$(readlink -f /usr/bin/git); objdump -d "$file" | head -60000 | md5sum; readelf -aW "$file" | md5sum; nm -D "$file" | sort | md5sum
    strings "$file" | md5sum; objcopy --strip-all "$file" copy && md5sum < copy
    """
    return session.run("bash", "-c", script)


def gdb(session: Session) -> str:
    session.write("a.c", "struct s { int a; double b[3]; }; struct s v = {3, {1, 2, 3}}; int main(void) { return v.a - 3; }\n")
    session.run("gcc", "-g", "a.c", "-o", "program")
    # The debugged program starts without the preloaded libraries, so that both runs debug the same thing.
    return session.run("gdb", "-nx", "-batch", "-ex", "unset env LD_PRELOAD", "-ex", "ptype struct s", "-ex", "print v", "-ex", "info functions main", "program")


def make(session: Session) -> str:
    targets = "\n".join(f"t{i}: {' '.join(f't{j}' for j in range(max(0, i - 3), i))}\n\t@echo made $@ from $^ > $@; cat $@" for i in range(300))
    session.write("Makefile", f"all: t299\n\t@echo done $(words $(wildcard t*))\n{targets}\n")
    return session.run("make", "-j2", "--output-sync=none", "-s").splitlines()[-1] + session.run("make", "-n", "-B").replace("\n", " ")[:3000]


def cmake(session: Session) -> str:
    session.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.22)\nproject(p C)\nforeach(i RANGE 200)\n  add_library(l${i} STATIC a.c)\nendforeach()\n")
    session.write("a.c", "int a;\n")
    session.run("cmake", "-S", ".", "-B", "build", "-G", "Unix Makefiles", "-DCMAKE_C_COMPILER=/usr/bin/gcc")
    return session.run("cmake", "--build", "build", "--target", "help")


def graphviz(session: Session) -> str:
    edges = "\n".join(f"n{i} -> n{i * 7919 % 300};" for i in range(500))
    return session.run("dot", "-Tplain", text=f"digraph g {{\n{edges}\n}}\n")


def ghostscript(session: Session) -> str:
    pages = "".join(f"/Helvetica findfont 12 scalefont setfont 72 {700 - i} moveto (page {i}) show showpage\n" for i in range(60))
    session.write("in.ps", f"%!PS\n{pages}")
    session.run("gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=ppmraw", "-r20", "-sOutputFile=out.ppm", "in.ps")
    return digest(session.folder / "out.ppm")


def xmllint(session: Session) -> str:
    items = "".join(f"<item id='{i}'><name>{'n' * (i % 30)}</name></item>" for i in range(20_000))
    session.write("a.xml", f"<list>{items}</list>")
    return session.run("xmllint", "--xpath", "count(//item[@id mod 7 = 3]/name[string-length() > 20])", "a.xml")


def m4(session: Session) -> str:
    text = "define(`loop', `ifelse($1, 0, , `$1 loop(decr($1))')')\n" + "loop(400)\n" * 20
    return session.run("m4", text=text)


def bc(session: Session) -> str:
    return session.run("bc", "-lq", text="scale=600\n4*a(1)\ne(1)\n2^4000\n")


def vim(session: Session) -> str:
    session.write("input.txt", sample_text(3000))
    session.run("vim", "-u", "NONE", "-i", "NONE", "-n", "-es", "-c", "%s/slab/SLAB/ge", "-c", "sort u", "-c", "g/x\\{40}/d", "-c", "wq! out.txt", "input.txt")
    return digest(session.folder / "out.txt")


def curl_version(session: Session) -> str:
    path = session.write("input.txt", sample_text(5000))
    return str(len(session.run("curl", "-s", f"file://{path}")))


def strace(session: Session) -> str:
    return session.run("strace", "-f", "-o", "/dev/null", "/bin/sh", "-c", "for i in 1 2 3; do (echo $i | cat); done")


PROGRAMS: dict[str, Program] = {
    "sqlite": Program(("sqlite3",), "sqlite3", sqlite),
    "git": Program(("git",), "git", git),
    "jq": Program(("jq",), "jq", jq),
    "bash": Program(("bash",), "bash", bash),
    "text_tools": Program(("bash", "awk", "sed", "grep", "sort"), "sort", pipeline),
    "archives": Program(("tar", "gzip", "bzip2", "xz"), "xz", archives),
    "openssl": Program(("openssl",), "openssl", openssl),
    "binutils": Program(("objdump", "readelf", "nm", "objcopy", "git"), "x86_64-linux-gnu-objdump", binutils),
    "gdb": Program(("gdb", "gcc"), "gdb", gdb),
    "make": Program(("make",), "make", make),
    "cmake": Program(("cmake", "make"), "cmake", cmake),
    "graphviz": Program(("dot",), "libgvc6", graphviz),
    "ghostscript": Program(("gs",), "gs", ghostscript),
    "xmllint": Program(("xmllint",), "xmllint", xmllint),
    "m4": Program(("m4",), "m4", m4),
    "bc": Program(("bc",), "bc", bc),
    "vim": Program(("vim",), "vim", vim),
    "curl": Program(("curl",), "curl", curl_version),
    "strace": Program(("strace",), "strace", strace),
}
