"""Daemons that their packages' own tools set up, speak to, and end."""

from __future__ import annotations

import hashlib
import re
import socket
from collections import Counter

from preload.program import Program
from preload.sandboxes import free_port
from preload.servers import accepts
from preload.session import Session

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


SQL = """
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
        answers = [session.run("mariadb", *tool, text=SQL)]
        load = ("--concurrency=8", "--iterations=2", "--auto-generate-sql", "--number-of-queries=400")
        session.run("mariadb-slap", *tool, *load)
        answers.append(session.run("mariadb-check", *tool, "--all-databases", "--extended"))
        dump = session.run("mariadb-dump", *tool, "--skip-dump-date", "--skip-comments", "a")
        answers.append(hashlib.sha256(dump.encode()).hexdigest())
        session.run("mariadb-admin", *tool, "shutdown")
        answers.append(str(process.wait()))
    return "\n".join(answers)


PROGRAMS: dict[str, Program] = {
    "named": Program(("named", "dig", "delv", "nsupdate", "dnssec-signzone"), "named", named),
    "varnish": Program(("varnishd", "varnishtest", "gcc"), "varnishd", varnish),
    "mariadb_server": Program(("mariadbd", "mariadb-install-db"), "mariadbd", mariadb),
}
