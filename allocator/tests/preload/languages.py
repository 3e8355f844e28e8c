"""Interpreters, virtual machines and compilers."""

import unittest
from pathlib import Path

from preload.program import Program, file, scripted
from preload.session import Session, find

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

PYTHON_SUITE = "test_json test_dict test_list test_bytes test_struct test_array test_zlib test_gc test_deque test_thread test_mmap test_re"

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

TCL = """
for {set i 0} {$i < 40000} {incr i} {lappend l [string repeat ab [expr {$i % 40}]]$i; dict lappend d [expr {$i % 97}] $i}
puts [llength [lsort $l]],[dict size $d],[string length [join $l]]
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


# Object code is compared byte for byte: no name of the folder is in it.
PLAIN = "-ffile-prefix-map=$PWD=."
TWO_FILES = file("a.c", C_SOURCE) + file("b.c", "int all(int, int); int main(int c, char** v) { return (int)v[0][0] * 0 + (all(c, 3) == 0); }")


def compiled(compiler: str, suffix: str, source: str, flags: str) -> Program:
    """Object code, equal byte for byte."""
    script = f"{compiler} {flags} {PLAIN} -c source.{suffix} -o out.o; sha256sum < out.o"
    served = {"gcc": "cc1", "g++": "cc1plus"}.get(compiler, compiler.split("-")[0].removesuffix("++"))
    return Program((compiler,), served, scripted(file(f"source.{suffix}", source) + script))


def interpreted(needs: str, source: str, command: str, served: str = "") -> Program:
    """A program of one file, `source`, which the command runs."""
    return Program(tuple(needs.split()), served or needs.split()[0], scripted(file("source", source) + command))


def php(session: Session) -> str:
    """Its extensions are loaded with RTLD_DEEPBIND; on its own heap and on the allocator's."""
    text = scripted(file("source", PHP) + "php source; USE_ZEND_ALLOC=0 php source")(session)
    if "missing" in text:
        raise unittest.SkipTest(f"php lacks an extension: {text.strip()}")
    return text


def python_suite_needs() -> tuple[str, ...]:
    """Debian packs the interpreter's own tests apart from it."""
    present = Path("/usr/lib/python3.11/test/test_json").is_dir()
    return ("python3",) if present else ("libpython3.11-testsuite",)


# The summary lines count tests, failures and skips; times are left out.
SUITE = f"PYTHONMALLOC=malloc python3 -m test -u none {PYTHON_SUITE} | grep -E '^(Total tests|Result|All |Tests result)' | sort"
PROGRAMS: dict[str, Program] = {
    "python": interpreted("python3", PYTHON, "PYTHONMALLOC=malloc PYTHONHASHSEED=0 python3 source"),
    "python_suite": Program(python_suite_needs(), "python3", scripted(SUITE)),
    "perl": interpreted("perl", PERL, "PERL_HASH_SEED=0 perl source"),
    "lua": interpreted("lua5.4", LUA, "lua5.4 source", "lua"),
    "node": interpreted("node", NODE, "mv source script.js; node script.js"),
    "java": interpreted("java javac", JAVA, "mv source Main.java; javac Main.java; sha256sum < Main.class; java -Xmx256m Main"),
    "php": Program(("php",), "php", php),
    "tcl": interpreted("tclsh", TCL, "tclsh source"),
    "gcc": compiled("gcc", "c", C_SOURCE, "-O2 -g"),
    "gxx": compiled("g++", "cc", CXX_SOURCE, "-O2 -std=c++20 -frandom-seed=1"),
    "gxx_debug": compiled("g++", "cc", CXX_SOURCE, "-O0 -g -std=c++20 -frandom-seed=1"),
    "clang": compiled("clang-19", "c", C_SOURCE, "-O2"),
    "clangxx": compiled("clang++-19", "cc", CXX_SOURCE, "-O2 -std=c++20"),
    "gcc_lto_link": Program(("gcc", "strip"), "lto1", scripted(f"{TWO_FILES}gcc -O0 -g {PLAIN} -flto a.c b.c -o program -Wl,--build-id=none; strip program; sha256sum < program")),
    "clang_lld": Program(("clang-19", "ld.lld-19"), "lld", scripted(f"{TWO_FILES}clang-19 -O1 a.c b.c -fuse-ld=lld -o program; sha256sum < program")),
    "rust": interpreted("rustc", RUST_SOURCE, f"HOME={Path.home()} {find('rustc')} -O --crate-name main source -o program; ./program", "program"),
}  # fmt: skip
