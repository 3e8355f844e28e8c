"""Servers and tools that confine themselves, in their own sandboxes: what they do afterwards is done on the library."""

import contextlib
import os
import random
import shlex
import socket
import subprocess
import unittest
from pathlib import Path

from fault.filters_test import FOLDER, Filter
from preload.program import Program, digest, make_inputs
from preload.servers import accepts, free_port, listens
from preload.session import Session, find
from support import harness


def require_root() -> None:
    if os.geteuid() != 0:
        raise unittest.SkipTest("its sandbox needs root")


def ask(path: Path, text: str) -> str:
    """What a server says on its socket until it closes it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(text.encode())
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()


def sshd(session: Session) -> str:
    """Each login passes the filter that OpenSSH puts in force before it. What a login starts is on the library too."""
    require_root()
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = free_port()
    for name in ("host", "key", "other"):
        session.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", session.folder / name)
    session.write("authorized", (session.folder / "key.pub").read_text())
    conf = session.write(
        "sshd_config",
        f"ListenAddress 127.0.0.1:{port}\nHostKey {session.folder}/host\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {session.folder}/authorized\nPermitRootLogin yes\nPasswordAuthentication no\n"
        f"Subsystem sftp internal-sftp\nSubsystem other /usr/lib/openssh/sftp-server\n"
        f"SetEnv LD_PRELOAD={session.environment()['LD_PRELOAD']} FREESTONE_WITNESS={session.witness}\n",
    )
    big = random.Random(1).randbytes(40 << 20)
    (session.folder / "big").write_bytes(big)
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "IdentitiesOnly=yes")
    common = ["-q", "-F", "/dev/null", *(word for option in options for word in ("-o", option))]

    def login(key: str, *command: str) -> tuple[int, str]:
        where = ("-p", str(port), "-i", session.folder / key, "root@127.0.0.1")
        return session.attempt("ssh", *common, *where, *command)

    def copied(source: str, target: str) -> str:
        session.run("scp", *common, "-P", str(port), "-i", session.folder / "key", source, target)
        same = (session.folder / target.rpartition("/")[2]).read_bytes() == big
        return f"{source} is {target}: {same}"

    with session.server("sshd", "-D", "-e", "-f", conf, ready=lambda: listens(port)):
        logins = [login("key", f"echo in; seq {n} | sort -rn | head -3") for n in range(4)]
        there = f"root@127.0.0.1:{session.folder}"
        copies = [copied("big", f"{there}/to"), copied(f"{there}/to", "from")]
        sftp = ("-b", "-", "-s", "other", "-P", str(port), "-i", session.folder / "key", "root@127.0.0.1")
        session.run("sftp", *common, *sftp, text=f"put big {session.folder}/put\nls -l {session.folder}\n")
        copies.append(str((session.folder / "put").read_bytes() == big))
        return f"{logins} {login('other', 'echo in')} {copies}"


def chronyd(session: Session) -> str:
    require_root()
    folder = session.folder / "run"
    folder.mkdir(mode=0o700)
    path = folder / "chronyd.sock"
    conf = session.write(
        "chrony.conf",
        f"local stratum 3\nport 0\ncmdport 0\nbindcmdaddress {path}\npidfile {folder}/pid\ndriftfile {folder}/drift\n",
    )
    texts = []
    for level in "12":
        with session.server("chronyd", "-d", "-x", "-F", level, "-u", "root", "-f", conf, ready=path.exists):
            for _ in range(20):
                text = session.run("chronyc", "-n", "-h", path, "tracking")
                texts += [f"{level} {line}" for line in text.splitlines() if line.startswith(("Stratum", "Leap"))]
                session.run("chronyc", "-n", "-h", path, "sources")
    return "\n".join(sorted(set(texts)))


def tor(session: Session) -> str:
    folder = session.folder / "tor"
    folder.mkdir(mode=0o700)
    path = folder / "control"
    conf = session.write(
        "torrc",
        f"Sandbox 1\nDisableNetwork 1\nSocksPort 0\nDataDirectory {folder}\nControlPort unix:{path}\n"
        "CookieAuthentication 0\nLog notice stdout\n",
    )
    question = "GETINFO version config/names events/names\r\nGETCONF Sandbox\r\nGETCONF Log\r\n"
    is_up = lambda: path.exists() and accepts(path)  # noqa: E731
    with session.server("tor", "--defaults-torrc", "/dev/null", "-f", conf, ready=is_up):
        answers = ask(path, f"AUTHENTICATE\r\n{question * 30}QUIT\r\n")
        ask(path, "AUTHENTICATE\r\nSIGNAL HALT\r\n")  # some versions block the other signals in their sandbox
        return answers


def in_unit(session: Session) -> str:
    """As in a unit with SystemCallFilter=@system-service: the filter is in force when the program starts."""
    rules = session.folder / "filter"
    filter = Filter(FOLDER / "system-service.txt")
    filter.write(rules, filter.default)
    path = session.folder / "redis.sock"
    launcher = harness.PROBES / "calls_probe"
    commands = [f"SET key:{i} {'v' * (i * 37 % 9000)}\nAPPEND key:{i // 3} {'z' * (i % 700)}" for i in range(4000)]
    questions = ["INFO memory", "MEMORY DOCTOR", "MEMORY MALLOC-STATS", "MEMORY PURGE", "DBSIZE", "DEBUG DIGEST"]
    words = f"--port 0 --unixsocket {path} --save '' --enable-debug-command yes --dir {session.folder}"
    command = (rules, "exec", find("redis-server") or "", *shlex.split(words))
    with session.server(launcher, *command, ready=lambda: accepts(path)):
        answers = session.run("redis-cli", "-s", path, text="\n".join([*commands, *questions]) + "\n")
    return "\n".join(answers.splitlines()[-2:])


def apt_methods(session: Session) -> str:
    """apt's methods under the filter that APT::Sandbox::Seccomp puts in force."""
    stanza = "Package: p{0}\nVersion: {0}\nArchitecture: all\nDescription: {1}\n\n"
    (session.folder / "repository").mkdir()
    session.write("repository/Packages", "".join(stanza.format(i, "d" * (i % 70)) for i in range(4000)))
    port = free_port()
    server = subprocess.Popen(
        ["/usr/bin/python3", "-m", "http.server", "--bind", "127.0.0.1", str(port)],
        cwd=session.folder / "repository",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not listens(port) and server.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.05)
        root = session.folder / "root"
        for folder in ("state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"):
            (root / folder).mkdir(parents=True)
        (root / "state/status").touch()
        session.write("sources.list", f"deb [trusted=yes] http://127.0.0.1:{port} ./\n")
        conf = session.write(
            "apt.conf",
            f'Dir::State "{root}/state"; Dir::State::status "{root}/state/status"; Dir::Cache "{root}/cache";\n'
            f'Dir::Etc "{root}/etc"; Dir::Etc::sourcelist "{session.folder}/sources.list"; APT::Sandbox::User "root";\n'
            'APT::Sandbox::Seccomp "true"; Acquire::http::Proxy "false"; Acquire::Languages "none";\n',
        )
        extra = {"APT_CONFIG": str(conf)}
        session.run("apt-get", "-q", "update", extra=extra)
        return "\n".join(sorted(session.run("apt-cache", "pkgnames", extra=extra).splitlines()))
    finally:
        server.terminate()
        server.wait()


def man(session: Session) -> str:
    """What man starts is confined, each by a filter of its own, and says so."""
    text = "".join(f".SH Part {i}\nSome \\fBbold\\fP text {'word ' * (i % 60)}\n" for i in range(300))
    session.write("page.1", f".TH X 1\n{text}")
    page = session.run("man", "-d", "-l", "page.1", extra={"MANWIDTH": "80"})
    loaded = session.errors.count("loading seccomp filter")
    return f"{page} {loaded > 0}"


def file(session: Session) -> str:
    """Confined, and not."""
    make_inputs(session)
    names = sorted(session.folder.glob("*.[!t]*")) + sorted(Path("/usr/bin").iterdir())[:200]
    return "".join(session.run("file", *words, "-b", "-k", *names) for words in ((), ("-S",)))


def bubblewrap(session: Session) -> str:
    """In new namespaces, behind the profile that containers have."""
    require_root()
    rules = session.folder / "filter"
    filter = Filter(FOLDER / "container.txt")
    filter.write(rules, filter.default)
    make_inputs(session)
    words = f"--ro-bind / / --bind {session.folder} {session.folder} --dev /dev --unshare-user --unshare-ipc"
    inside = "sort -R --random-source=page.html input.txt | md5sum; gzip -n -9 < input.txt | md5sum; "
    inside += "perl -e 'print crypt(1, 2), length(join(q(), map { $_ x 9 } 1 .. 90000)), qq(\\n)'; "
    inside += "grep Seccomp: /proc/self/status"
    words += f" --unshare-net --unshare-uts --die-with-parent --seccomp 9 bash -c {shlex.quote(inside)}"
    return session.run("bash", "-c", f"bwrap {words} 9< {rules}")


def qemu(session: Session) -> str:
    sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
    answers = ""
    for machine in ("none", "pc"):
        words = f"-sandbox {sandbox} -M {machine} -m 64 -accel tcg -display none -nodefaults -S -monitor stdio"
        text = "info version\ninfo mtree\ninfo qom-tree\ninfo roms\nquit\n"
        answers += session.run("qemu-system-x86_64", *words.split(), text=text)
    return "\n".join(sorted(line for line in answers.splitlines() if "(qemu)" not in line))


PROGRAMS: dict[str, Program] = {
    "sshd": Program(("sshd", "ssh", "ssh-keygen"), "sshd", sshd),
    "chronyd": Program(("chronyd", "chronyc"), "chronyd", chronyd),
    "tor": Program(("tor",), "tor", tor),
    "redis_in_unit": Program(("redis-server", "redis-cli"), "redis-check-rdb", in_unit),
    "man": Program(("man", "groff"), "man", man),
    "file_confined": Program(("file",), "file", file),
    "bubblewrap": Program(("bwrap", "perl"), "bwrap", bubblewrap),
    "qemu": Program(("qemu-system-x86_64",), "qemu-system-x86_64", qemu),
    "apt_methods": Program(("apt-get", "apt-cache"), "http", apt_methods),
}

# Browsers in their own sandboxes: each process that shows a page puts a filter in force that kills. They bring a malloc
# of their own. The library is loaded into each of their processes all the same, and serves what asks libc by name.

# A page that works: memory is taken and given back by scripts and by what draws.
PAGE = """<html><body><canvas id=c width=200 height=150></canvas><script>
const all = [];
for (let i = 0; i < 40000; i++) all.push({ key: i * 7919 % 10007, text: "word ".repeat(i % 20) });
all.sort((a, b) => a.key - b.key || a.text.length - b.text.length);
const pen = document.getElementById("c").getContext("2d");
for (let i = 0; i < 400; i++) { pen.fillStyle = `hsl(${i}, 70%, 50%)`; pen.fillRect(i % 190, i * 7 % 140, 9, 9); }
document.body.append(String(all.reduce((sum, one) => (sum * 31 + one.key + one.text.length) % 1000003, 7)));
</script></body></html>
"""


def ordinary_user(session: Session) -> tuple[str, ...]:
    """The words before a command that is not root's: a browser confines itself for ordinary users only."""
    require_root()
    session.folder.chmod(0o755)
    session.write("page.html", PAGE)
    session.write("witness.txt", "").chmod(0o666)
    home = session.folder / "home"
    home.mkdir()
    home.chmod(0o777)
    return ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "env", f"HOME={home}")


def chromium(session: Session) -> str:
    page = session.folder / "page.html"
    words = ("--headless", "--disable-gpu", f"--user-data-dir={session.folder}/home/profile", "--dump-dom")
    return session.run(*ordinary_user(session), "chromium", *words, f"file://{page}")


def firefox(session: Session) -> str:
    picture = session.folder / "home" / "picture.png"
    words = ("--headless", "--no-remote", "--profile", session.folder / "home", "--window-size", "400,300")
    session.run(
        *ordinary_user(session), "firefox-esr", *words, "--screenshot", picture, f"file://{session.folder}/page.html"
    )
    return digest(picture)


BROWSERS: dict[str, Program] = {
    "chromium": Program(("chromium", "setpriv"), "chromium", chromium, own_malloc=True),
    "firefox": Program(("firefox-esr", "setpriv"), "firefox", firefox, own_malloc=True),
}
BROWSER_PACKAGES: dict[str, str] = {"chromium": "chromium", "firefox": "firefox-esr"}
