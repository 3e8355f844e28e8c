"""Interpreters, virtual machines and compilers."""

from __future__ import annotations

import unittest
from pathlib import Path

from preload.program import Program, digest
from preload.session import Session

PYTHON = """
import ast, collections, copy, decimal, json, random, re, sqlite3, threading, zlib, hashlib, inspect, xml.etree.ElementTree as tree
random.seed(5)
data = {str(i): [random.random(), "word" * (i % 30), {"k": i, "l": list(range(i % 20))}] for i in range(8000)}
text = json.dumps(data, sort_keys=True)
assert json.loads(text) == data and copy.deepcopy(data) == data
print(hashlib.sha256(text.encode()).hexdigest(), len(zlib.compress(text.encode(), 9)))
print(len(re.findall(r"(w(o)r)d(?=word)", text)), re.sub(r"[aeiou]+", "*", text)[:200])
print(ast.dump(ast.parse(inspect.getsource(decimal) + inspect.getsource(ast)))[-200:])
base = sqlite3.connect(":memory:")
base.execute("create table t (a integer primary key, b text)")
base.executemany("insert into t values (?, ?)", ((i, "v" * (i % 100)) for i in range(20000)))
print(base.execute("select count(*), sum(length(b)), max(b) from t where a % 3 = 0").fetchall())
results = [0] * 8
def work(n):
    table = collections.defaultdict(list)
    for i in range(20000):
        table[i % 97].append(str(i) * (n + 1))
    results[n] = sum(len("".join(v)) for v in table.values())
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(results)
root = tree.fromstring("<r>" + "".join(f"<i n='{i}'>{'t' * (i % 40)}</i>" for i in range(20000)) + "</r>")
print(len(root), sum(len(e.text or "") for e in root), bytearray(10_000_000).count(0))
"""

PYTHON_SUITE = ["test_json", "test_dict", "test_list", "test_bytes", "test_struct", "test_array", "test_zlib", "test_gc", "test_deque", "test_thread", "test_mmap", "test_re"]

PERL = r"""
use strict; use List::Util qw(sum shuffle); use Data::Dumper; $Data::Dumper::Sortkeys = 1;
my %h; for my $i (0..60000) { push @{$h{$i % 977}}, "x" x ($i % 61) . $i; }
print join(",", map { scalar @{$h{$_}} } sort { $a <=> $b } keys %h), "\n";
my $text = join " ", map { @{$h{$_}} } sort { $a <=> $b } keys %h;
my $n = () = $text =~ /x(\d+)/g; (my $t = $text) =~ s/x{3,7}/<$&>/g;
print "$n ", length($t), " ", sum(unpack("C*", $t)) , "\n", substr(Dumper(\%h), 0, 2000);
for my $i (1..200) { my $code = eval "sub { my \@a = (1..$i); return scalar \@a }"; print $code->(), " "; } print "\n";
"""

LUA = """
local function tree(d) if d == 0 then return {} end return {tree(d - 1), tree(d - 1)} end
local function count(t) return t[1] and 1 + count(t[1]) + count(t[2]) or 1 end
local total = 0
for i = 1, 12 do total = total + count(tree(13)) end
print(total)
local parts = {}
for i = 1, 60000 do parts[#parts + 1] = string.rep("ab", i % 40) .. i end
local text = table.concat(parts, "|")
print(#text, select(2, text:gsub("ab", "")), text:sub(-40))
table.sort(parts) print(parts[1], parts[777], parts[#parts])
local co = {} for i = 1, 2000 do co[i] = coroutine.wrap(function() for j = 1, 5 do coroutine.yield(i * j) end end) end
local s = 0 for i = 1, 2000 do for _ = 1, 5 do s = s + co[i]() end end print(s)
"""

NODE = """
const zlib = require('zlib'), crypto = require('crypto'), {Worker, isMainThread, parentPort} = require('worker_threads');
if (!isMainThread) { let s = ''; for (let i = 0; i < 20000; i++) s += Buffer.alloc(i % 300, 'a').toString('hex').length; parentPort.postMessage(s.length); }
else {
  const rows = Array.from({length: 30000}, (_, i) => ({id: i, name: 'n'.repeat(i % 50), tags: [i % 7, i % 11]}));
  const text = JSON.stringify(rows);
  console.log(text.length, JSON.parse(text).length, crypto.createHash('sha256').update(text).digest('hex'));
  const packed = zlib.gzipSync(text, {level: 6});
  console.log(zlib.gunzipSync(packed).toString() === text, zlib.brotliCompressSync(text.slice(0, 300000), {params: {[zlib.constants.BROTLI_PARAM_QUALITY]: 5}}).length);
  let n = 0; for (let i = 0; i < 3000; i++) { const b = Buffer.allocUnsafeSlow(1000 + i * 7); b.fill(i); n += b[b.length - 1]; } console.log(n);
  const workers = [0, 1, 2].map(() => new Promise(done => new Worker(__filename).on('message', done)));
  Promise.all(workers).then(r => console.log(r.join()));
}
"""

JAVA = """
import java.util.*; import java.util.stream.*; import java.util.zip.*; import java.nio.*;
public class Main {
  public static void main(String[] args) throws Exception {
    Map<Integer, List<String>> map = IntStream.range(0, 100000).boxed().collect(Collectors.groupingBy(i -> i % 331, TreeMap::new, Collectors.mapping(i -> "v" + i, Collectors.toList())));
    System.out.println(map.values().stream().mapToInt(List::size).sum() + " " + map.get(5).get(7));
    long sum = 0;
    for (int i = 0; i < 300; i++) { ByteBuffer b = ByteBuffer.allocateDirect(1000 + i * 911); b.put(3, (byte) i); sum += b.get(3) + b.capacity(); }
    System.out.println(sum);
    byte[] data = map.toString().getBytes();
    Deflater d = new Deflater(9); d.setInput(data); d.finish(); byte[] out = new byte[data.length]; int n = d.deflate(out); d.end();
    CRC32 crc = new CRC32(); crc.update(out, 0, n); System.out.println(n + " " + crc.getValue());
    Thread[] t = new Thread[16]; long[] r = new long[16];
    for (int i = 0; i < 16; i++) { final int k = i; t[i] = new Thread(() -> { for (int j = 0; j < 20000; j++) r[k] += ("s" + j * k).hashCode(); }); t[i].start(); }
    for (Thread x : t) x.join();
    System.out.println(Arrays.toString(r));
  }
}
"""

C_SOURCE = "\n".join(
    f"static int f{i}(int a, int b) {{ int t[{i % 17 + 1}]; for (int i = 0; i < {i % 17 + 1}; ++i) t[i] = a * i + b; return t[b % {i % 17 + 1}] ^ {i}; }}" for i in range(400)
) + "\nint all(int a, int b) { return " + " + ".join(f"f{i}(a, b)" for i in range(400)) + "; }\n"

CXX_SOURCE = """
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>
template <int N> struct Node { std::map<std::string, std::vector<int>> values; Node<N - 1> inner; int sum() const { int s = N; for (auto& [k, v] : values) for (int x : v) s += x; return s + inner.sum(); } };
template <> struct Node<0> { int sum() const { return 0; } };
int total(std::unordered_map<std::string, Node<60>>& nodes) { int s = 0; for (auto& [k, n] : nodes) s += n.sum(); std::vector<std::tuple<int, std::string>> t; for (auto& [k, n] : nodes) t.emplace_back(n.sum(), k); std::sort(t.begin(), t.end()); return s + (int)t.size(); }
"""

RUST_SOURCE = """
use std::collections::{BTreeMap, HashMap};
fn main() {
    let mut map: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for i in 0..50_000u64 { map.entry(format!("k{}", i % 997)).or_default().push(i * i); }
    let counts: HashMap<_, _> = map.iter().map(|(k, v)| (k.clone(), v.len())).collect();
    let threads: Vec<_> = (0..4).map(|t| std::thread::spawn(move || (0..20_000).map(|i| format!("{}", i * t).len()).sum::<usize>())).collect();
    let sums: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    println!("{} {} {:?}", map.len(), counts["k5"], sums);
}
"""


def python(session: Session) -> str:
    return session.run("python3", "-c", PYTHON, extra={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"})


def python_suite(session: Session) -> str:
    """The summary line counts tests, failures and skips; times are left out."""
    out = session.run("python3", "-m", "test", "-u", "none", *PYTHON_SUITE, extra={"PYTHONMALLOC": "malloc"})
    kept = [line for line in out.splitlines() if line.startswith(("Total tests", "Result", "All ", "Tests result"))]
    return "\n".join(sorted(kept))


def python_suite_needs() -> tuple[str, ...]:
    """Debian packs the interpreter's own tests apart from it."""
    present = Path("/usr/lib/python3.11/test/test_json").is_dir()
    return ("python3",) if present else ("libpython3.11-testsuite",)


def perl(session: Session) -> str:
    return session.run("perl", session.write("script.pl", PERL), extra={"PERL_HASH_SEED": "0"})


def lua(session: Session) -> str:
    return session.run("lua5.4", session.write("script.lua", LUA))


def node(session: Session) -> str:
    return session.run("node", session.write("script.js", NODE))


def java(session: Session) -> str:
    session.write("Main.java", JAVA)
    session.run("javac", "Main.java")
    return digest(session.folder / "Main.class") + "\n" + session.run("java", "-Xmx256m", "Main")


def tcl(session: Session) -> str:
    script = 'for {set i 0} {$i < 40000} {incr i} {lappend l [string repeat ab [expr {$i % 40}]]$i; dict lappend d [expr {$i % 97}] $i}\nputs [llength [lsort $l]],[dict size $d],[string length [join $l]]\n'
    return session.run("tclsh", session.write("script.tcl", script))


def compiled(compiler: str, suffix: str, source: str, *flags: str) -> Program:
    """Object code, equal byte for byte."""

    def play(session: Session) -> str:
        session.write(f"source.{suffix}", source)
        session.run(compiler, *flags, f"-ffile-prefix-map={session.folder}=.", "-c", f"source.{suffix}", "-o", "out.o")
        return digest(session.folder / "out.o")

    served = {"gcc": "cc1", "g++": "cc1plus"}.get(compiler, compiler.split("-")[0].removesuffix("++"))
    return Program((compiler,), served, play)


def linked(session: Session) -> str:
    session.write("a.c", C_SOURCE)
    session.write("b.c", "int all(int, int); int main(int c, char** v) { return (int)v[0][0] * 0 + (all(c, 3) == 0); }\n")
    session.run("gcc", "-O0", "-g", f"-ffile-prefix-map={session.folder}=.", "-flto", "a.c", "b.c", "-o", "program", "-Wl,--build-id=none")
    session.run("strip", "program")
    return digest(session.folder / "program")


def clang_lld(session: Session) -> str:
    session.write("a.c", C_SOURCE)
    session.write("b.c", "int all(int, int); int main(int c, char** v) { return (int)v[0][0] * 0 + (all(c, 3) == 0); }\n")
    session.run("clang-19", "-O1", "a.c", "b.c", "-fuse-ld=lld", "-o", "program")
    return digest(session.folder / "program")


def rust(session: Session) -> str:
    session.write("main.rs", RUST_SOURCE)
    home = {"HOME": str(Path.home())}
    session.run("rustc", "-O", "main.rs", "-o", "program", extra=home)
    return session.run(session.folder / "program")


PHP = """<?php
foreach (["PDO", "pdo_mysql", "mysqli", "curl", "intl"] as $extension) if (!extension_loaded($extension)) { echo "missing $extension\\n"; exit(0); }
$link = mysqli_init();
echo $link->options(MYSQLI_OPT_CONNECT_TIMEOUT, 1) ? "options" : "none", " ", implode(",", PDO::getAvailableDrivers()), "\\n";
try { new PDO("mysql:unix_socket=/nowhere"); } catch (PDOException $error) { echo $error->getCode(), "\\n"; }
try { @$link->real_connect("localhost", "a", "b", "c", 0, "/nowhere"); } catch (mysqli_sql_exception $error) { echo $error->getCode(), "\\n"; }
file_put_contents("data.txt", str_repeat("line of text\\n", 40000));
$total = 0;
for ($i = 0; $i < 20; ++$i) {
  $handle = curl_init("file://" . getcwd() . "/data.txt");
  curl_setopt($handle, CURLOPT_RETURNTRANSFER, true);
  $total += strlen(curl_exec($handle));
  curl_close($handle);
}
echo "$total ", curl_escape(curl_init(), "a b&c"), "\\n";
$words = [];
for ($i = 0; $i < 20000; ++$i) $words[] = ["Ärger", "apfel", "zebra", "Öl", "ananas"][$i % 5] . $i;
$collator = new Collator("de_DE");
$collator->sort($words);
echo $words[0], " ", $words[9999], " ", $words[19999], "\\n";
foreach (["de_DE", "fr_FR", "en_US", "ja_JP"] as $locale) {
  $money = new NumberFormatter($locale, NumberFormatter::CURRENCY);
  echo $money->formatCurrency(1234567.891, "EUR"), " ", (new MessageFormatter($locale, "{0,number} {1}"))->format([12345.67, "x"]), "\\n";
}
echo Normalizer::normalize("e\\u{301}", Normalizer::FORM_C), " ", grapheme_strlen("e\\u{301}a"), " ", count(array_unique(array_map("md5", $words))), "\\n";
"""


def php(session: Session) -> str:
    """Its extensions are loaded with RTLD_DEEPBIND; on its own heap and on the allocator's."""
    script = session.write("script.php", PHP)
    text = session.run("php", script) + session.run("php", script, extra={"USE_ZEND_ALLOC": "0"})
    if "missing" in text:
        raise unittest.SkipTest(f"php lacks an extension: {text.strip()}")
    return text


PROGRAMS: dict[str, Program] = {
    "python": Program(("python3",), "python3", python),
    "python_suite": Program(python_suite_needs(), "python3", python_suite),
    "perl": Program(("perl",), "perl", perl),
    "lua": Program(("lua5.4",), "lua", lua),
    "node": Program(("node",), "node", node),
    "java": Program(("java", "javac"), "java", java),
    "php": Program(("php",), "php", php),
    "tcl": Program(("tclsh",), "tclsh", tcl),
    "gcc": compiled("gcc", "c", C_SOURCE, "-O2", "-g"),
    "gxx": compiled("g++", "cc", CXX_SOURCE, "-O2", "-std=c++20", "-frandom-seed=1"),
    "gxx_debug": compiled("g++", "cc", CXX_SOURCE, "-O0", "-g", "-std=c++20", "-frandom-seed=1"),
    "clang": compiled("clang-19", "c", C_SOURCE, "-O2"),
    "clangxx": compiled("clang++-19", "cc", CXX_SOURCE, "-O2", "-std=c++20"),
    "gcc_lto_link": Program(("gcc", "strip"), "lto1", linked),
    "clang_lld": Program(("clang-19", "ld.lld-19"), "lld", clang_lld),
    "rust": Program(("rustc",), "program", rust),
}
