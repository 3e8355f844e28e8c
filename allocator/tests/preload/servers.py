"""Servers, set up and spoken to by their own tools, or over sockets in the scratch folder."""

import hashlib
import re
import socket
import time
from collections import Counter
from pathlib import Path

from preload.program import Program, sample_text
from preload.session import Session


def accepts(path: Path) -> bool:
    """Whether a server listens; the socket's file is there a moment earlier."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


BENCHMARKS = "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset,xadd"
SCRIPT = (
    "local t = {} for i = 1, 3000 do t[i] = string.rep('y', i % 300) redis.call('HSET', KEYS[1], i, t[i]) end "
    "return {#table.concat(t), redis.sha1hex(cjson.encode(t)), redis.call('HLEN', KEYS[1]), #cmsgpack.pack(t)}"
)


def redis(session: Session, name: str = "redis") -> str:
    """All that the server does with memory: its threads, scripts, children, files, and what it says of memory."""
    path = session.folder / "redis.sock"
    commands = []
    for i in range(4_000):
        commands += [
            f"SET key:{i} {'v' * (i * 7 % 500)}",
            f"RPUSH list:{i % 50} {i}",
            f"HSET hash:{i % 40} field{i} {'h' * (i % 90)}",
            f"APPEND key:{i % 300} {'z' * (i % 700)}",
            f"ZADD zset:{i % 20} {i * 7919 % 10007} m{i}",
            f"SADD set:{i % 30} s{i % 1000}",
        ]
        if i % 3 == 0:
            commands.append(f"DEL key:{i // 2}")
    commands += ["DBSIZE", "LRANGE list:7 0 40", "HLEN hash:3", "ZRANGE zset:5 0 60 WITHSCORES", "STRLEN key:299"]
    # Debian's jemalloc has no hints for defragmentation, and the answer says so.
    commands += ["SCARD set:9", f'EVAL "{SCRIPT}" 1 scripted', "DEBUG RELOAD", "CONFIG SET activedefrag yes"]
    commands.append("MEMORY PURGE")
    options = f"--port 0 --unixsocket {path} --save '' --dir {session.folder} --io-threads 4 --appendonly yes".split()
    options += ["--io-threads-do-reads", "yes", "--auto-aof-rewrite-percentage", "0"]
    if " v=6." not in session.run(f"{name}-server", "--version"):  # since 7 it wants to be told
        options += ["--enable-debug-command", "yes"]

    def ask(*words: str) -> str:
        return session.run(f"{name}-cli", "-s", path, *words)

    def until(section: str, *wanted: str) -> None:
        while any(line not in ask("INFO", section).split() for line in wanted):
            time.sleep(0.05)

    answers = []
    with session.server(f"{name}-server", *options, ready=lambda: accepts(path)):
        answers.append(session.run(f"{name}-cli", "-s", path, text="\n".join(commands) + "\n"))
        words = f"--csv -n 3000 -c 20 -P 8 -r 500 -t {BENCHMARKS}".split()
        speeds = session.run(f"{name}-benchmark", "-s", path, *words)
        answers += [line.split(",")[0] for line in speeds.splitlines()]
        ask("FLUSHDB", "ASYNC")
        session.run(f"{name}-cli", "-s", path, text="\n".join(commands[:-4]) + "\n")
        ask("BGSAVE")
        until("persistence", "rdb_bgsave_in_progress:0", "rdb_last_bgsave_status:ok")
        ask("BGREWRITEAOF")
        until("persistence", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_last_bgrewrite_status:ok")
        figures = dict(line.split(":", 1) for line in ask("INFO", "memory").split() if ":" in line)
        ratio = int(figures["allocator_allocated"]) / int(figures["used_memory"])
        answers += [figures["mem_allocator"], "true" if 0.8 < ratio < 2 else f"allocated / used: {ratio}"]
        answers += [str(len(ask("MEMORY", word)) > 20) for word in ("DOCTOR", "MALLOC-STATS", "STATS")]
        answers.append(ask("DEBUG", "DIGEST"))
    with session.server(f"{name}-server", *options, ready=lambda: accepts(path)):  # from its files
        while (digest := ask("DEBUG", "DIGEST")) != answers[-1] and "LOADING" in digest:
            time.sleep(0.05)
        checked = session.run(f"{name}-check-rdb", "dump.rdb")
        return "\n".join([*answers, digest, *re.findall(r"\d+ keys read", checked)])


def valkey(session: Session) -> str:
    return redis(session, "valkey")


NGINX = """
daemon off; worker_processes 2; error_log stderr warn; pid {folder}/nginx.pid; {user}
events {{ worker_connections 64; }}
http {{
  access_log off; gzip on; gzip_min_length 1; gzip_types *;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{
    listen unix:{folder}/nginx.sock; root {folder}/www;
    location ~ /echo/(.*) {{ return 200 "you asked for $1 of $host\\n"; }}
  }}
}}
"""


def fetch(path: Path, url: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(
            f"GET {url} HTTP/1.1\r\nHost: here\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode()
        )
        parts = []
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts).partition(b"\r\n\r\n")[2]


def nginx(session: Session) -> str:
    www = session.folder / "www"
    www.mkdir()
    (www / "page.txt").write_text(sample_text(2000))
    session.folder.chmod(0o755)
    path = session.folder / "nginx.sock"
    conf = session.write("nginx.conf", NGINX.format(folder=session.folder, user="user root;"))
    session.run("nginx", "-t", "-p", session.folder, "-c", conf)
    bodies = hashlib.sha256()
    with session.server("nginx", "-p", session.folder, "-c", conf, ready=lambda: accepts(path)):
        for i in range(150):
            bodies.update(fetch(path, "/page.txt" if i % 3 else f"/echo/{'e' * i}"))
    return bodies.hexdigest()


NAMED = """
options {{
  directory "{folder}"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; pid-file none;
  session-keyfile none; recursion no; dnssec-validation no; notify no; allow-transfer {{ any; }};
}};
include "{folder}/rndc.key";
controls {{ inet 127.0.0.1 port {control} allow {{ any; }} keys {{ "rndc-key"; }}; }};
zone "test" {{ type primary; file "zone.signed"; }};
zone "dynamic" {{ type primary; file "dynamic"; allow-update {{ key "rndc-key"; }}; }};
"""


def named(session: Session) -> str:
    """A signed zone and a dynamic one, made, asked, updated, transferred and validated."""
    folder, port, control = session.folder, free_port(socket.SOCK_DGRAM), free_port()
    head = "$TTL 60\n@ IN SOA ns.test. root.test. 1 60 60 60 60\n@ IN NS ns.test.\nns IN A 10.1.1.1\n"
    session.write("zone", head + "".join(f"h{i} IN A 10.0.{i // 200}.{i % 200}\n" for i in range(3000)))
    session.write("dynamic", head)
    keys = [session.run("dnssec-keygen", "-q", "-a", "ECDSAP256SHA256", *words, "test").strip()
            for words in ((), ("-f", "KSK"))]  # fmt: skip
    session.run("dnssec-signzone", "-S", "-o", "test", "zone")
    session.run("dnssec-verify", "-o", "test", "zone.signed")
    public = (folder / f"{keys[1]}.key").read_text().partition("DNSKEY ")[2].split()
    session.write("anchor", f'trust-anchors {{ test. static-key {" ".join(public[:3])} "{"".join(public[3:])}"; }};\n')
    key = folder / "rndc.key"
    session.run("rndc-confgen", "-a", "-c", key)
    conf = session.write("named.conf", NAMED.format(folder=folder, port=port, control=control))
    session.run("named-checkconf", "-z", conf)
    session.write("questions", "".join(f"h{i}.test A +short\n" for i in range(3000)))
    update = [f"update add n{i}.dynamic 60 TXT {'t' * (i % 200)}x" for i in range(500)]

    def dig(*words: str) -> str:
        return session.attempt("dig", "@127.0.0.1", "-p", str(port), "+tries=1", *words)[1]

    def rndc(*words: str) -> str:
        return session.run("rndc", "-k", key, "-s", "127.0.0.1", "-p", str(control), *words)

    def types(text: str) -> str:
        return str(sorted(Counter(line.split()[3] for line in text.splitlines() if len(line.split()) > 4).items()))

    with session.server("named", "-g", "-n", "4", "-c", conf, ready=lambda: "10.1.1.1" in dig("ns.test", "A")):
        text = "\n".join([f"server 127.0.0.1 {port}", "zone dynamic", *update, "send"]) + "\n"
        session.run("nsupdate", "-k", key, text=text)
        answers = [dig("-f", "questions"), types(dig("+noall", "+answer", "dynamic", "AXFR"))]
        for words in (("test", "AXFR"), ("+dnssec", "h7.test", "A")):
            answers.append(types(dig("+noall", "+answer", *words)))
        valid = session.run("delv", "@127.0.0.1", "-p", str(port), "-a", "anchor", "+root=test", "h77.test", "A")
        answers += [line for line in valid.splitlines() if "RRSIG" not in line]
        answers += [rndc(word) for word in ("stats", "flush", "dumpdb", "reload", "sync")]
        answers += re.findall("server is up and running", rndc("status"))
    return "\n".join(answers)


def varnish(session: Session) -> str:
    """The script of varnishtest starts the real server, a backend and clients."""
    vcl = ('vcl 4.0; backend b { .host = "${s0_addr}"; .port = "${s0_port}"; } '
           "sub vcl_backend_response { set beresp.ttl = 1h; set beresp.do_gzip = true; set beresp.do_esi = true; } "
           "sub vcl_deliver { set resp.http.n = obj.hits; }")  # fmt: skip
    gets = [f'txreq -url "/{i * 7919 % 197}" -hdr "Accept-Encoding: {"gzip" if i % 2 else "identity"}"\nrxresp\n'
            "expect resp.status == 200" for i in range(1200)]  # fmt: skip
    figures = " ".join(f"-f MAIN.{figure}" for figure in ("cache_hit", "cache_miss", "n_lru_nuked", "bans"))
    script = session.write(
        "real.vtc",
        f"""varnishtest "real"
        server s0 {{ rxreq
          txresp -hdr "Content-Type: text/html" -body "<esi:remove>x</esi:remove>{"word " * 9000}" }} -dispatch
        varnish v1 -arg "-s main=malloc,40m -p thread_pools=2" -vcl {{ {vcl} }} -start
        client c1 {{ {chr(10).join(gets)} }} -run
        varnish v1 -cliok "ban req.url ~ 3"
        varnish v1 -cliok "storage.list"
        varnish v1 -vcl {{ {vcl} sub vcl_hash {{ hash_data("2"); }} }}
        client c1 -run
        varnish v1 -cliok "vcl.discard vcl1"
        shell {{ varnishadm -n ${{v1_name}} param.show > /dev/null }}
        shell {{ varnishlog -n ${{v1_name}} -d -g request > /dev/null }}
        shell {{ varnishstat -n ${{v1_name}} -1 {figures} > {session.folder}/figures }}
        """,
    )
    session.folder.chmod(0o755)
    extra = {"TMPDIR": str(session.folder)}
    status, log = session.attempt("varnishtest", "-b", "256M", "-t", "300", script, extra=extra)
    if status != 0:
        raise RuntimeError(log[-2000:])
    return re.sub(r"(\S+ +\d+).*", r"\1", (session.folder / "figures").read_text())


MARIADB = """
create database a; use a;
create table t (i int primary key, s varchar(99), k int, index (k), fulltext (s)) engine=innodb;
insert into t select seq, concat(repeat('x', seq mod 50), ' w', seq mod 97), seq mod 977 from seq_1_to_30000;
create temporary table b engine=aria select k, count(*) n, group_concat(s order by i) g from t group by k;
create temporary table m (k int, s varchar(99)) engine=memory select k, s from t;
select count(*), sum(n), md5(group_concat(g order by k)) from b;
select count(distinct s), md5(group_concat(distinct s order by s)) from m where k < 300;
select x.k, count(*) from t x join t y on x.k = y.k where x.i < 200 group by x.k order by 2 desc, 1 limit 5;
select k, sum(i) over (partition by k order by i) w from t order by w desc limit 3;
select count(*) from t where match (s) against ('w42');
with recursive r as (select 1 n union all select n + 1 from r where n < 900) select sum(n) from r;
select json_length(json_arrayagg(json_object('i', i, 's', s))), md5(json_arrayagg(s order by i)) from t where k < 50;
delimiter //
create procedure p() begin declare i int default 0; while i < 500 do
 update t set s = concat(s, i) where k = i; set i = i + 1; end while; end //
delimiter ;
call p(); alter table t add column c text default repeat('y', 40); optimize table t; analyze table t;
start transaction; delete from t where k mod 3 = 0; rollback; select count(*), md5(group_concat(s order by i)) from t;
"""


def mariadb(session: Session) -> str:
    """Initialised, spoken to by many clients at once, checked, dumped, and shut down by its own tools."""
    folder, path = session.folder, session.folder / "socket"
    data = ("--no-defaults", "--user=root", f"--datadir={folder}/data")
    session.run("mariadb-install-db", *data, "--auth-root-authentication-method=normal")
    tool = ("--no-defaults", "--user=root", f"--socket={path}")
    server = ("mariadbd", *data, "--skip-networking", f"--socket={path}", f"--pid-file={folder}/pid")
    with session.server(*server, "--group-concat-max-len=9999999", ready=lambda: accepts(path)) as process:
        answers = [session.run("mariadb", *tool, text=MARIADB)]
        load = ("--concurrency=8", "--iterations=2", "--auto-generate-sql", "--number-of-queries=400")
        session.run("mariadb-slap", *tool, *load)
        answers.append(session.run("mariadb-check", *tool, "--all-databases", "--extended"))
        dump = session.run("mariadb-dump", *tool, "--skip-dump-date", "--skip-comments", "a")
        answers.append(hashlib.sha256(dump.encode()).hexdigest())
        session.run("mariadb-admin", *tool, "shutdown")
        answers.append(str(process.wait()))
    return "\n".join(answers)


PROGRAMS: dict[str, Program] = {
    "redis": Program(("redis-server", "redis-cli", "redis-benchmark"), "redis-", redis),
    "valkey": Program(("valkey-server", "valkey-cli", "valkey-benchmark"), "valkey-", valkey),
    "nginx": Program(("nginx",), "nginx", nginx),
    "named": Program(("named", "dig", "delv", "nsupdate", "dnssec-signzone"), "named", named),
    "varnish": Program(("varnishd", "varnishtest", "gcc"), "varnishd", varnish),
    "mariadb_server": Program(("mariadbd", "mariadb-install-db"), "mariadbd", mariadb),
}
