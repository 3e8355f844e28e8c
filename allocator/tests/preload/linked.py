"""Programs of Debian that are linked with libjemalloc, libtcmalloc or libmimalloc, each a line of shell.

A release's own lists of packages say which these are. Those that other tables run are named in ELSEWHERE. Nothing is run
of what has no program that starts in a second. Who calls mimalloc by its own names (mi_malloc) keeps it.
"""

import re

from preload.program import Program, scripted

MALLOCS = re.compile(r"\blib(jemalloc2|tcmalloc-minimal4(t64)?|google-perftools4(t64)?|mimalloc\d[\d.]*)\b")

PORT = "port() { python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); print(s.getsockname()[1])'; }; "
UP = "up() { until bash -c \"< /dev/tcp/127.0.0.1/$1\" 2> /dev/null; do sleep 0.05; done; }; "
READS = (
    "python3 -c 'import random; r = random.Random(1); t = [\"\".join(r.choices(\"ACGT\", k=900)) for _ in range(60)]\n"
    "print(*(f\">t{i}\\n{s}\" for i, s in enumerate(t)), sep=\"\\n\", file=open(\"t.fa\", \"w\"))\n"
    "print(*(f\"@r{i}\\n{t[i % 60][i % 700:][:100]}\\n+\\n\" + \"I\" * 100 for i in range(6000)), sep=\"\\n\", file=open(\"r.fq\", \"w\"))'; "
)
CEPH = "export CEPH_CONF=$PWD/c; printf '[global]\\nfsid = 00000000-0000-0000-0000-000000000001\\nrun_dir = %s\\nlog_to_file = false\\n' $PWD > c; "
MON = "monmaptool --create --clobber --fsid 00000000-0000-0000-0000-000000000001 --add a 127.0.0.1:7001 m > /dev/null; ceph-authtool --create-keyring k --gen-key -n mon. > /dev/null; mkdir d; ceph-mon -c c --mkfs -i a --mon-data d --monmap m --keyring k --no-log-to-stderr; "

# name: (package, program, how it is called when it runs, script)
SCRIPTS: dict[str, tuple[str, str, str, str]] = {
    "kresd": ("knot-resolver", "kresd", "kresd", "printf '%s\\n' 'cache.open(20 * MB, \"lmdb://.\")' 'local t = {} for i = 1, 200000 do t[i % 5000] = {i, tostring(i):rep(3)} end' 'for i = 1, 4000 do policy.add(policy.suffix(policy.DENY, {todname(\"d\" .. i .. \".test\")})) end' 'print(#t, collectgarbage(\"count\") > 0, cache.count(), worker.stats().concurrent)' 'quit()' > c; kresd -n -q -c c $PWD 2>&1 || kresd -n -c c $PWD 2>&1"),
    "nghttpd": ("nghttp2-server", "nghttpd", "nghttp", PORT + UP + "p=$(port); nghttpd --no-tls -n 4 -d $PWD $p & up $p; for i in $(seq 9); do for f in input.txt page.html data.xml; do nghttp http://127.0.0.1:$p/$f | md5sum; done; done; kill %1; wait || true"),
    "nghttpx": ("nghttp2-proxy", "nghttpx", "nghttpx", PORT + UP + "p=$(port); python3 -m http.server -b 127.0.0.1 $p &> /dev/null & q=$(port); up $p; nghttpx --conf=/dev/null -f\"127.0.0.1,$q;no-tls\" -b127.0.0.1,$p -n2 --errorlog-file=/dev/null & up $q; for f in input.txt page.html data.xml; do nghttp http://127.0.0.1:$q/$f | md5sum; done; kill -QUIT %2; kill %1; wait || true"),
    "h2load": ("nghttp2-client", "h2load", "h2load", PORT + UP + "p=$(port); nghttpd --no-tls -n 2 -d $PWD $p & up $p; h2load -n 2000 -c 20 -m 10 -t 2 http://127.0.0.1:$p/page.html | grep -E '^(requests|status codes)'; kill %1; wait || true"),
    "swipl": ("swi-prolog-nox", "swipl", "swipl", "swipl -g 'numlist(1,200000,L),foldl([X,A,B]>>(B is A+X*X),L,0,S),print(S),nl,findall(X-Y,(between(1,300,X),between(1,300,Y)),P),msort(P,Q),length(Q,N),print(N),nl,numlist(1,400,M),concurrent_maplist([X,Y]>>(numlist(1,X,Z),sum_list(Z,Y)),M,R),sum_list(R,T),print(T),nl,forall(between(1,60000,I),(atom_concat(atom,I,A),assertz(f(A,I)))),garbage_collect_atoms,aggregate_all(count,f(_,_),C),print(C),nl,retractall(f(_,_)),trim_heap' -t halt"),
    "luametatex": ("luametatex", "luametatex", "luametatex", "echo 'local t = {} for i = 1, 300000 do t[i % 9000] = (\"x\"):rep(i % 90) .. i end local s = 0 for k, v in pairs(t) do s = s + #v end print(s)' > a.lua; luametatex --luaonly a.lua"),
    "pendulum": ("python3-pendulum", "python3", "python3", "python3 -c 'import pendulum; d = pendulum.datetime(2020, 1, 1); print(sum(pendulum.parse(d.add(days=i).to_iso8601_string()).day_of_year for i in range(3000)))'"),
    "jxlinfo": ("libjxl-tools", "jxlinfo", "jxlinfo", "cjxl --quiet picture.ppm a.jxl; jxlinfo -v a.jxl"),
    "ssimulacra2": ("libjxl-devtools", "ssimulacra2", "ssimulacra2", "cjxl --quiet -d 4 picture.ppm a.jxl; djxl --quiet a.jxl b.ppm; ssimulacra2 picture.ppm b.ppm"),
    "butteraugli": ("libjxl-devtools", "butteraugli_main", "butteraugli_main", "cjxl --quiet -d 4 picture.ppm a.jxl; djxl --quiet a.jxl b.ppm; butteraugli_main picture.ppm b.ppm"),
    "mandelbrot": ("mandelbrot-solver", "mandelbrot-solver", "mandelbrot-solver", "mandelbrot-solver 5 | sort | md5sum"),
    "scram": ("scram", "scram", "scram", "scram --probability 1 --importance 1 /usr/share/scram/input/Chinese/chinese{-basic-events,}.xml | sed '/time>/d; /<calculation-time/,/<.calculation-time>/d' | md5sum"),
    "toulbar2": ("toulbar2", "toulbar2", "toulbar2", "python3 -c 'import random; r = random.Random(1); n, d = 30, 5; f = [(i, j) for i in range(n) for j in range(i) if r.random() < .3]\nprint(\"a\", n, d, len(f), 999)\nprint(*[d] * n)\nfor i, j in f: print(2, j, i, 0, d * d); [print(a, b, r.randrange(20)) for a in range(d) for b in range(d)]' > a.wcsp; toulbar2 a.wcsp | grep -oE '^Optimum: [0-9]+'"),
    "gpsshogi": ("gpsshogi", "/usr/games/gpsusi", "gpsusi", "printf 'usi\\nquit\\n' | /usr/games/gpsusi | head -20"),
    "igor": ("igor", "igor", "igor", "igor -getdatadir; igor -set_wd $PWD -batch a -species human -chain beta -read_seqs input.txt 2>&1 | sed s,$PWD,,g | md5sum || true"),
    # It deletes blocks of new[] by delete: the hardened build is told to say so and to go on.
    "konclude": ("konclude", "Konclude", "Konclude", "export FREESTONE_CONF=on_error:report; Konclude classification -w 2 -i /usr/share/doc/konclude/examples/Tests/roberts-family-full-D.owl.xml -o o &> /dev/null; grep -o 'IRI=.*' o | sort -u | md5sum"),
    "rapmap": ("rapmap", "rapmap", "rapmap", READS + "rapmap quasiindex -t t.fa -i index 2> /dev/null; rapmap quasimap -t 1 -i index -r r.fq 2> /dev/null | grep -v ^@ | cut -f1-6 | md5sum"),
    "salmon": ("salmon", "salmon", "salmon", READS + "salmon --no-version-check index -t t.fa -i index -p 2 > /dev/null 2>&1; salmon --no-version-check quant -i index -l A -r r.fq -p 2 -o q > /dev/null 2>&1; cut -f1-3,5 q/quant.sf | md5sum"),
    "qstat": ("gridengine-client", "/usr/lib/gridengine/qstat", "q", "export SGE_ROOT=/var/lib/gridengine; for t in qstat qconf qacct; do /usr/lib/gridengine/$t -help 2>&1 | head -30; done || true"),
    "ceph_mon": ("ceph-mon", "ceph-mon", "ceph-mon", CEPH + MON + "ceph-monstore-tool d dump-keys | cut -d/ -f1 | sort | uniq -c"),
    "ceph_osd": ("ceph-osd", "ceph-osd", "ceph-osd", CEPH + "ceph-osd --version; ceph-osd -c c --show-config-value osd_op_num_threads_per_shard; ceph-osd -c c --help | md5sum"),
    "ceph_bluestore": ("ceph-osd", "ceph-bluestore-tool", "ceph-bluestore-tool", "ceph-bluestore-tool --help | md5sum"),
    "ceph_osdomap": ("ceph-osd", "ceph-osdomap-tool", "ceph-os", "ceph-osdomap-tool --help 2>&1 | md5sum || true"),
    "ceph_dencoder": ("ceph-common", "ceph-dencoder", "ceph-dencoder", "ceph-dencoder version; ceph-dencoder --help | md5sum"),
    "ceph_kvstore": ("ceph-base", "ceph-kvstore-tool", "ceph-kvstore-tool", CEPH + MON + "for i in $(seq 20); do ceph-kvstore-tool rocksdb d/store.db set p k$i in input.txt > /dev/null 2>&1; done; ceph-kvstore-tool rocksdb d/store.db list p 2> /dev/null | md5sum; ceph-kvstore-tool rocksdb d/store.db get p k7 out o > /dev/null 2>&1; md5sum < o; ceph-kvstore-tool rocksdb d/store.db compact > /dev/null 2>&1"),
    "ceph_mds": ("ceph-mds", "ceph-mds", "ceph-mds", CEPH + "ceph-mds --version; ceph-mds -c c --help | md5sum"),
    "ceph_mgr": ("ceph-mgr", "ceph-mgr", "ceph-mgr", CEPH + "ceph-mgr --version; ceph-mgr -c c --help | md5sum"),
    "cephfs_journal": ("ceph-common", "cephfs-journal-tool", "cephfs-", CEPH + "for t in cephfs-journal-tool cephfs-table-tool cephfs-data-scan; do $t -c c --help 2>&1 | md5sum; done || true"),
    "cephfs_mirror": ("cephfs-mirror", "cephfs-mirror", "cephfs-mirror", CEPH + "cephfs-mirror --version; cephfs-mirror -c c --help | md5sum"),
    "radosgw": ("radosgw", "radosgw", "radosgw", CEPH + "radosgw --version; radosgw -c c --help | md5sum"),
    "rbd_mirror": ("rbd-mirror", "rbd-mirror", "rbd-mirror", CEPH + "rbd-mirror --version; rbd-mirror -c c --help | md5sum"),
    # In Debian sid, or in 12 only
    "clickhouse": ("clickhouse-common", "clickhouse", "clickhouse", "clickhouse local --query 'select count(), sum(number * 7 % 13), uniqExact(toString(number) || repeat(char(120), number % 50)) from numbers(500000); select number % 9 k, groupArray(number) from numbers(90) group by k order by k'"),
    "mold": ("mold", "mold", "mold", "for i in $(seq 60); do echo \"int f$i(void) { return $i; }\" > f$i.c; done; echo 'int main(void) { return 0; }' > m.c; gcc -c *.c; mold --version | cut -d' ' -f1; gcc -fuse-ld=mold *.o -o m; ./m; md5sum < m"),
    "jaq": ("jaq", "jaq", "jaq", "python3 -c 'import json; print(json.dumps([{\"i\": i, \"s\": \"x\" * (i % 50)} for i in range(20000)]))' | jaq -c '[.[] | select(.i % 7 == 0) | .s | length] | add, (unique | length)'"),
    "jql": ("jql", "jql", "jql", "python3 -c 'import json; print(json.dumps([{\"i\": i, \"s\": \"x\" * (i % 50)} for i in range(20000)]))' > a.json; jql '[0:3]' a.json; jql '|>\"s\"' a.json | md5sum"),
    "jujutsu": ("jujutsu", "jj", "jj", "export JJ_USER=a JJ_EMAIL=a@b; mkdir r; cd r; jj git init . 2> /dev/null; for i in $(seq 8); do cp ../input.txt f$i; jj commit -m c$i 2> /dev/null; done; jj log --no-graph -T 'description' ; jj file list -r @-"),
    "rbase64": ("rbase64", "rbase64", "rbase64", "rbase64 input.txt | md5sum; rbase64 --version"),
    "rspamd": ("rspamd", "rspamadm", "rspamadm", "rspamadm --version; echo 'local t = {} for i = 1, 90000 do t[i] = tostring(i):rep(i % 9) end print(#table.concat(t))' > a.lua; rspamadm lua -b a.lua 2>&1 | tail -3 || true"),
}  # fmt: skip

# What other tables run: package -> entry
ELSEWHERE = {
    **dict.fromkeys(("bind9", "bind9-dnsutils", "bind9-libs", "bind9-utils", "bind9-host"), "named"),
    **dict.fromkeys(("redis-tools", "redis-server"), "redis"),
    **dict.fromkeys(("valkey-tools", "valkey-server"), "valkey"),
    **{"varnish": "varnish", "haproxy": "haproxy", "tmux": "tmux"},
    **{"swi-prolog-core": "swipl", "libmps3": "mandelbrot", "libmps3t64": "mandelbrot"},
}
PROGRAMS: dict[str, Program] = {
    name: Program((program,), served, scripted(script)) for name, (_, program, served, script) in SCRIPTS.items()
}
