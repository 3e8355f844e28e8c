"""A headless Chromium for tests: a page is loaded from a file, and its DOM after the scripts comes back."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--allow-file-access-from-files", "--virtual-time-budget=4000", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
WATCH = """<script>window.__errors=[];window.addEventListener('error',function(e){window.__errors.push(e.message)});
</script>"""
REPORT = """document.body.dataset.errors=JSON.stringify(window.__errors);
document.body.dataset.width=document.documentElement.scrollWidth;"""


def chromium() -> str:
    """The browser's path; the test is skipped where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed (Debian package chromium)")
    return found


def dump(page: Path, width: int = 1280, script: str = "") -> str:
    """The DOM after the page's scripts and `script` ran; the body's data-errors and data-width tell the rest.

    The page is shown in a frame of `width` pixels: a headless window cannot be narrower than 500.
    """
    text = page.read_text(encoding="utf-8").replace("<head>", "<head>" + WATCH, 1)
    after = f"<script>window.addEventListener('load',function(){{{script};{REPORT}}});</script></body>"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "page.html").write_text(text.replace("</body>", after, 1), encoding="utf-8")
        (Path(folder) / "frame.html").write_text(
            f'<iframe id=f src=page.html style="width:{width}px;height:900px;border:0"></iframe><script>'
            "f.onload=function(){setTimeout(function(){document.documentElement.innerHTML="
            "f.contentDocument.documentElement.outerHTML},200)}</script>"
        )
        done = subprocess.run(
            [chromium(), *FLAGS, f"--user-data-dir={folder}/profile", "--window-size=1400,1000", "--dump-dom",
             (Path(folder) / "frame.html").as_uri()],
            capture_output=True, text=True, timeout=1200, check=True,
        )  # fmt: skip
    return done.stdout
