"""Browsers in their own sandboxes: each process that shows a page puts a filter in force that kills.

They bring a malloc of their own. The library is loaded into each of their processes all the same, and serves what asks
libc by name.
"""

from __future__ import annotations

from preload.program import Program, digest
from preload.sandboxes import require_root
from preload.session import Session

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


PROGRAMS: dict[str, Program] = {
    "chromium": Program(("chromium", "setpriv"), "chromium", chromium, own_malloc=True),
    "firefox": Program(("firefox-esr", "setpriv"), "firefox", firefox, own_malloc=True),
}
PACKAGES: dict[str, str] = {"chromium": "chromium", "firefox": "firefox-esr"}
