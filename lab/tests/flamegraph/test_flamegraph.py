"""Profiles are read as their makers meant them, addresses get the right names, and the page shows both in a browser."""

import contextlib
import gzip
import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import browser
import pytest

from freestone_lab.core.errors import UserError
from freestone_lab.flamegraph import pprof, table
from freestone_lab.flamegraph.model import Frame, Mapping, Profile, ProfileError, Sample
from freestone_lab.flamegraph.readers import collapsed_text, parse_profile, read_profile, unbiased
from freestone_lab.flamegraph.view import payload, render_profiles
from freestone_lab.heap import profiling, symbolize

DATA = Path(__file__).parents[1] / "data"
LIVE = [("inuse_space", "bytes")]

PROGRAM = r"""
#include <cstdio>
#include <cstdint>
#include <fstream>
#include <string>
namespace shop {
struct Cart { __attribute__((noinline)) std::uintptr_t fill(int n); };
static inline __attribute__((always_inline)) std::uintptr_t inner(int n) {
  std::uintptr_t here = 0;
  asm volatile("call 1f\n1: pop %0" : "=r"(here) : "r"(n));  // line INNER
  return here;
}
std::uintptr_t Cart::fill(int n) {
  return inner(n);  // line FILL
}
}
int main() {
  shop::Cart cart;
  std::uintptr_t at = cart.fill(3);
  std::printf("heap_v2/1\n  t*: 2: 4096 [5: 9000]\n@ 0x%lx\n  t*: 2: 4096 [5: 9000]\nMAPPED_LIBRARIES:\n", at);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) std::puts(line.c_str());
}
"""


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program with an inlined call, and the heap_v2 profile of its own that it prints."""
    folder = tmp_path_factory.mktemp("cart")
    (folder / "cart.cc").write_text(PROGRAM)
    subprocess.run(["g++", "-g", "-O1", "-Wl,--build-id", "-o", folder / "cart", folder / "cart.cc"], check=True)
    text = subprocess.run([str(folder / "cart")], capture_output=True, text=True, check=True).stdout
    (folder / "cart.heap").write_text(text)
    return folder / "cart", folder / "cart.heap"


def test_profile_written_by_go_is_read_with_its_names_and_sums() -> None:
    profile = read_profile(DATA / "go-heap.pb.gz")
    assert [n for n, _ in profile.sample_types] == ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
    via = {"main.branchA": [0, 0], "main.branchB": [0, 0]}
    for stack, values in profile.samples:
        names = [frame.function for frame in stack]
        for name in via:
            size = {"main.branchA": 10240, "main.branchB": 40960}.get(name)  # Go's size classes for the requests
            if name in names and names[-1] == "main.leaf" and values[1] == values[0] * (size or 0) > 0:
                assert names[: names.index(name) + 2] == ["runtime.main", "main.main", name, "main.leaf"]
                via[name][0] += values[0]
                via[name][1] += values[1]
    assert via["main.branchA"] == [100, 100 * 10240]
    assert via["main.branchB"] == [50, 50 * 40960]
    assert profile.time > 1e9
    assert profile.mappings[0].build_id


def test_inlined_calls_of_pprof_become_frames_outermost_first() -> None:
    lines = [{"function_id": 2, "line": 20}, {"function_id": 1, "line": 10}]  # the innermost stands first
    raw = {
        "string_table": ["", "inuse_space", "bytes", "outer", "inner", "a.cc"],
        "sample_type": [{"type": 1, "unit": 2}],
        "function": [{"id": 1, "name": 3, "filename": 5}, {"id": 2, "name": 4, "filename": 5}],
        "location": [{"id": 7, "address": 0x10, "line": lines}],
        "sample": [{"location_id": [7], "value": [64]}],
    }
    stack = pprof.decode(pprof.serialize("Profile", raw), "x").samples[0][0]
    assert [(f.function, f.line, f.inlined) for f in stack] == [("outer", 10, False), ("inner", 20, True)]


def test_a_profile_that_is_written_reads_the_same_and_damage_is_one_error() -> None:
    inner = (Frame("outer", "a.cc", 10, False, "/bin/x", 0x10), Frame("inner", "a.cc", 20, True, "/bin/x", 0x10))
    samples: list[Sample] = [(inner, (1, -64)), ((Frame(module="/bin/x", address=1 << 63),), (2, 1 << 40))]
    types = [("inuse_objects", "count"), ("inuse_space", "bytes")]
    written = Profile(types, samples, 3.0, 0.5, "x", [Mapping(0, 1 << 20, 0, "/bin/x", "ab")], ["a note"])
    data = gzip.decompress(pprof.encode(written, "inuse_space"))
    assert pprof.decode(data, "x") == written
    source = random.Random(1)
    for _ in range(3000):
        damaged = bytearray(data[: source.randrange(1, len(data) + 1)])
        damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
        with contextlib.suppress(ProfileError):
            pprof.decode(bytes(damaged), "x")


def test_a_table_names_what_holds_most_and_counts_recursion_once() -> None:
    a, b = Frame("a"), Frame("b")
    profile = Profile([("inuse_space", "bytes")], [((a, b, a), (100,)), ((a, b), (4096,))], notes=["seen"])
    assert table.lines([profile], "inuse_space") == [
        "inuse_space: 4.1 KiB; itself, with what it calls, function",
        "     4.0 KiB    4.1 KiB  b",
        "       100 B    4.1 KiB  a",
    ]
    found = table.as_json(profile)
    assert found["schema"] == "freestone-profile/1" and found["notes"] == ["seen"]
    assert found["functions"][0] == {
        "function": "a", "file": "", "module": "", "self": {"inuse_space": 100}, "total": {"inuse_space": 4196},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b\x08rubbish", "gzip data is damaged"),
        (b"\xff\xfe\x00\x01rubbish\xff", "not a pprof profile"),
        (b"main;work\n", "line 1"),
        (b"main;work twelve\n", "expected 'outer;inner VALUE'"),
    ],
)
def test_damaged_profiles_get_one_clear_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.prof"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=said) as raised:
        read_profile(path)
    assert "broken.prof" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_profile_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"nothing\.pb: cannot be read"):
        read_profile(tmp_path / "nothing.pb")


def parsed(text: str) -> Profile:
    return parse_profile(text.encode(), "x")


def test_collapsed_stacks_with_types_mappings_and_addresses() -> None:
    head = "# type alloc_space bytes\n# mapping 0x1000-0x2000 0x0 abcd /lib/x.so\n"
    profile = parsed(f"{head}main;f (a b);0x1010 7\nmain 5\n")
    assert profile.sample_types == [("alloc_space", "bytes")]
    assert profile.mappings == [Mapping(0x1000, 0x2000, 0, "/lib/x.so", "abcd")]
    assert profile.samples[0] == ((Frame("main"), Frame("f (a b)"), Frame(module="/lib/x.so", address=0x1010)), (7,))
    assert profile.total(0) == 12


def test_heap_v2_estimates_follow_the_sampling_law() -> None:
    counts = "2: 200 [4: 4194304]"
    text = f"heap_v2/524288\n  t*: 3: 300 [0: 0]\n@ 0x10 0x20\n  t*: {counts}\n  t0: {counts}\n"
    ((stack, values),) = parsed(text).samples
    assert [f.address for f in stack] == [0x1F, 0xF]  # return addresses, less one; the outermost first
    assert values[2] == pytest.approx(2 / (1 - 2.718281828 ** (-100 / 524288)), rel=1e-3)
    assert values[1] == round(4194304 / (1 - 2.718281828 ** (-2)))
    assert unbiased(0, 0, 524288) == (0, 0)


def test_gperftools_form_is_read_too() -> None:
    text = "heap profile:  1:  64 [  2: 128] @ heap_v2/1\n  1:  64 [  2: 128] @ 0x10 0x20\n\nMAPPED_LIBRARIES:\n"
    assert parsed(text).samples[0][1] == (2, 128, 1, 64)


def test_empty_profile_says_why() -> None:
    assert "less than the sampling rate" in parsed("heap_v2/524288\n  t*: 0: 0 [0: 0]\n").notes[-1]


TOOLS = ["llvm-symbolizer", "addr2line"]


@pytest.mark.parametrize("tool", TOOLS)
def test_addresses_become_functions_files_lines_and_inlines(
    tool: str, cart: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    if tool == "addr2line":
        monkeypatch.setattr(symbolize, "SYMBOLIZERS", ())
    profile = symbolize.symbolize(read_profile(cart[1]))
    ((stack, values),) = profile.samples
    lines = PROGRAM.splitlines()
    found = [(re.sub(r"\(.*", "", f.function).removeprefix("shop::"), f.inlined) for f in stack]
    if tool == "addr2line" and len(found) == 1:  # this version does not name the inlined call; then it is left out
        assert found == [("Cart::fill", False)]
        return
    assert found == [("Cart::fill", False), ("inner", True)]
    assert stack[0].line == next(i for i, t in enumerate(lines, 1) if "line FILL" in t)
    assert stack[1].line == next(i for i, t in enumerate(lines, 1) if "line INNER" in t)
    assert stack[0].file.endswith("cart.cc")
    assert values[3] == 4096


def test_symbol_table_is_enough_for_names(cart: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolize, "SYMBOLIZERS", ())
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "addr2line" else f"/usr/bin/{name}")
    ((stack, _),) = symbolize.symbolize(read_profile(cart[1])).samples
    assert [f.function for f in stack] == ["shop::Cart::fill(int)"]


def test_a_rebuilt_module_gives_no_wrong_names(cart: tuple[Path, Path]) -> None:
    profile = read_profile(cart[1])
    stale = replace(profile, mappings=[replace(m, build_id="00" * 20) for m in profile.mappings])
    found = symbolize.symbolize(stale)
    assert all(not frame.function for stack, _ in found.samples for frame in stack)
    assert any("build-id" in note for note in found.notes)
    own = symbolize.build_id(str(cart[0]))
    fitting = [replace(m, build_id=own) if m.path == str(cart[0]) else m for m in profile.mappings]
    named = symbolize.symbolize(replace(profile, mappings=fitting))
    assert all(frame.function for stack, _ in named.samples for frame in stack)


def test_a_module_that_is_gone_is_named_in_a_note() -> None:
    frame = Frame(module="/gone/lib.so", address=0x1010)
    profile = Profile(LIVE, [((frame,), (5,))], mappings=[Mapping(0x1000, 0x2000, 0, "/gone/lib.so")])
    found = symbolize.symbolize(profile)
    assert found.samples == profile.samples
    assert found.notes == ["/gone/lib.so: no such file here; its addresses are shown as they are"]


def test_cpp_and_rust_names_are_readable() -> None:
    mangled = [
        "_ZN4shop4Cart4fillEi", "_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "_RNvCs1234_7mycrate3foo", "main",
    ]  # fmt: skip
    samples: list[Sample] = [(tuple(Frame(n) for n in mangled), (1,))]
    cpp, rust, newer, c = (f.function for f in symbolize.demangled(samples)[0][0])
    assert (cpp, rust, c) == ("shop::Cart::fill(int)", "core::ptr::drop_in_place", "main")
    assert newer.startswith("mycrate")


def tree(seed: int, scale: float) -> Profile:
    """A plausible heap of a server, for pages."""
    generator = random.Random(seed)
    serve = "main;Server::run();Connection::serve(Request const&)"
    paths = (
        f"{serve};Json::parse(std::string_view);Json::Object::insert(std::string, Json)",
        f"{serve};Json::parse(std::string_view);std::vector<Json>::reserve(unsigned long)",
        f"{serve};Cache::put(Key const&, Value);Cache::Node::Node(Key const&, Value)",
        f"{serve};Cache::put(Key const&, Value);Cache::rehash(unsigned long)",
        "main;Server::run();ThreadPool::worker(int);Log::format[abi:cxx11](char const*, ...);std::string::append()",
        "main;Server::start(Config const&);Config::load(std::filesystem::path const&);Yaml::node(Yaml::Token)",
        "main;Server::start(Config const&);Tls::context(Certificate const&);OPENSSL_malloc",
    )
    samples: list[Sample] = []
    for path in paths:
        for inlined in range(3):
            new = f"operator new(unsigned long)#{inlined}"
            tail = Frame(new, "new_op.cc", 40 + inlined, inlined > 0, "/usr/lib/libstdc++.so.6")
            size = int(scale * generator.lognormvariate(13, 1.2) * (6 if "rehash" in path and scale > 1.4 else 1))
            calls = enumerate(path.split(";"), 1)
            stack = (*(Frame(n, "src/server.cc", 10 * i, False, "/srv/server") for i, n in calls), tail)
            samples.append((stack, (size // 512 + 1, 3 * size, size // 1024 + 1, size)))
    types = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
    return Profile(types, samples, 1.79e9 + 60 * seed, 60.0, f"dump {seed}")


def test_tree_of_the_page_adds_up() -> None:
    profiles = [tree(1, 1.0), tree(2, 1.5)]
    data = json.loads(json.dumps(payload(profiles, False)))
    (calls,) = data["trees"]
    for number, profile in enumerate(profiles):
        for place in range(4):
            assert sum(own[number][place] for own in calls["own"]) == profile.total(place)
    assert all(parent < place for place, parent in enumerate(calls["parents"]))
    assert data["types"][data["start"]] == ["inuse_space", "bytes"]
    assert len(calls["frames"]) == len({tuple(f[:3]) for f in calls["frames"]})


def python_profile() -> Profile:
    """As libfreestone writes it: calls of Python have a file and neither module nor address."""
    start, core = Frame("_start", "", 0, False, "/bin/python3", 0x10), Frame("list_resize", "l.c", 8, False, "/p.so")
    module, frozen = Frame("<module>", "/srv/app.py", 9), Frame("_load", "<frozen importlib._bootstrap>", 1)
    one, two = (Frame("fill", "/srv/app/__init__.py", line) for line in (3, 4))
    stacks: list[Sample] = [((start, module, one, core), (100,)), ((start, module, frozen, two, core), (200,))]
    return Profile([("peak_space", "bytes")], [*stacks, ((start, core), (1,))], label="python3 app.py", process=7)


def test_each_export_has_the_lines_of_python_that_the_page_opens_with() -> None:
    wanted = {"fill (app/__init__.py:4)", "fill (app/__init__.py:3)", "<module> (app.py:9)", "outside Python"}
    text = collapsed_text(python_profile(), "peak_space")
    for again in (pprof.decode(pprof.encode(python_profile()), "p"), parse_profile(text.encode(), "p")):
        assert {f.function for stack, _ in again.samples for f in stack} == wanted
        assert table.lines([again], "peak_space") == table.lines([python_profile()], "peak_space")
    assert {f["function"] for f in table.as_json(python_profile())["functions"]} == wanted


def page_of(folder: Path, *profiles: Profile, compare: bool = False) -> Path:
    path = folder / "p.html"
    path.write_text(render_profiles(profiles, "p", compare=compare), encoding="utf-8")
    return path


def shown(folder: Path, *profiles: Profile, script: str = "", compare: bool = False, width: int = 1280) -> str:
    """The page of these profiles in a browser, after the script."""
    return browser.dump(page_of(folder, *profiles, compare=compare), width, script)


@pytest.mark.all
def test_a_python_profile_shows_python_lines_first_and_all_functions_when_asked(tmp_path: Path) -> None:
    assert table.lines([python_profile()], "peak_space") == [
        "peak_space: 301 B; itself, with what it calls, function",
        "       200 B      200 B  fill (app/__init__.py:4)",
        "       100 B      100 B  fill (app/__init__.py:3)",
        "         1 B        1 B  outside Python",
        "         0 B      300 B  <module> (app.py:9)",
    ]
    first = top_rows(shown(tmp_path, python_profile()))[:2]
    assert [name for name, _ in first] == ["fill (app/__init__.py:4)", "fill (app/__init__.py:3)"]
    all_ = "var s=document.getElementById('tree');s.value='1';s.dispatchEvent(new Event('change'))"
    assert dict(top_rows(shown(tmp_path, python_profile(), script=all_)))["list_resize"][-2:] == ["301 B", "301 B"]


@pytest.mark.all
def test_the_page_lists_processes_by_command_line_and_opens_with_the_largest(tmp_path: Path) -> None:
    shims = [
        Profile([("peak_space", "bytes")], [((Frame("xmalloc"),), (50 - n,))], label=f"bash {'x' * 80} {n}", process=n)
        for n in (8, 9)
    ]
    assert table.lines([python_profile(), *shims], "peak_space")[:5] == [
        "peak_space of 3 processes",
        "       301 B  python3 app.py",
        *(f"        {50 - n} B  bash {'x' * 80} {n}" for n in (8, 9)),
        "peak_space: 301 B in python3 app.py; itself, with what it calls, function",
    ]
    path = page_of(tmp_path, python_profile(), *shims)
    dom = browser.dump(path, 375)
    assert re.findall(r"<b>(\d+ B)</b>([^<]*)</button>", dom) == [
        ("301 B", "python3 app.py"), *((f"{50 - n} B", f"bash {'x' * 80} {n}") for n in (8, 9))
    ]  # fmt: skip
    assert top_rows(dom)[0][0] == "fill (app/__init__.py:4)"
    assert 'data-width="375"' in dom and "over time" not in re.sub(r"<script.*?</script>", "", dom, flags=re.S)
    second = browser.dump(path, 375, "document.querySelectorAll('#timeline button')[1].click()")
    assert [(name, values[-1]) for name, values in top_rows(second)] == [("xmalloc", "42 B")]


def test_profiles_without_a_common_type_are_refused() -> None:
    with pytest.raises(ProfileError, match="share no sample type"):
        render_profiles([Profile(LIVE, []), Profile([("cpu", "ns")], [])], "x")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flame") / "heap.html"
    profiles = [tree(n, 1 + 0.15 * n) for n in range(1, 7)]
    path.write_text(render_profiles(profiles, "Heap of <server>"), encoding="utf-8")
    return path


@pytest.mark.all
@pytest.mark.parametrize("width", [1280, 375])
def test_page_works_alone_without_errors_or_sideways_scrolling(page: Path, width: int) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"https?:|@import|<(?:script|img|link)[^>]+(?:src|href)=", text)
    dom = browser.dump(page, width)
    assert 'data-errors="[]"' in dom
    assert 'data-ready="yes"' in dom
    found = re.search(r'data-width="(\d+)"', dom)
    assert found is not None
    assert int(found[1]) <= width
    assert dom.count('class="f') > 20
    assert "Heap of &lt;server&gt;" in dom


@pytest.mark.all
@pytest.mark.parametrize("compare", [False, True])
def test_a_telephone_shows_every_column(tmp_path: Path, compare: bool) -> None:
    wide = "var s=document.querySelector('.scroll');document.body.dataset.cut=s.scrollWidth-s.clientWidth"
    assert 'data-cut="0"' in shown(tmp_path, tree(1, 1.0), tree(2, 1234.5), script=wide, compare=compare, width=390)


def top_rows(dom: str) -> list[tuple[str, list[str]]]:
    body = re.search(r'<tbody id="top">(.*?)</tbody>', dom, re.S)
    assert body is not None
    rows = []
    for row in re.findall(r"<tr>(.*?)</tr>", body[1], re.S):
        name = re.search(r"<button[^>]*>(.*?)</button>", row, re.S)
        assert name is not None
        rows.append((name[1], re.findall(r"<td[^>]*>([^<]*)<", row)))
    return rows


@pytest.mark.all
def test_recursion_counts_a_stack_once(tmp_path: Path) -> None:
    stack: tuple[Frame, ...] = (Frame("main"), Frame("walk"), Frame("walk"), Frame("walk"))
    samples: list[Sample] = [(stack, (1024,)), (stack[:2], (512,))]
    rows = dict(top_rows(shown(tmp_path, Profile(LIVE, samples))))
    assert rows["walk"][-2:] == ["1.5 KiB", "1.5 KiB"]
    assert rows["main"][-2:] == ["0 B", "1.5 KiB"]


@pytest.mark.all
def test_table_shows_blocks_beside_bytes(tmp_path: Path) -> None:
    samples: list[Sample] = [((Frame("main"), Frame("parse")), (3, 300)), ((Frame("main"),), (1, 50))]
    dom = shown(tmp_path, Profile([("inuse_objects", "count"), ("inuse_space", "bytes")], samples))
    row = r"main</button></td><td>50 B<small>14.3 %</small><small>1 block</small></td><td>350 B.*?4 blocks"
    assert re.search(row, dom)


@pytest.mark.all
def test_search_marks_hits_and_adds_each_stack_once(tmp_path: Path) -> None:
    main = Frame("main")
    samples: list[Sample] = [((main, Frame("parse"), Frame("parse_more")), (300,)), ((main, Frame("other")), (100,))]
    typed = "var s=document.getElementById('search');s.value='PARSE';s.dispatchEvent(new Event('input'))"
    dom = shown(tmp_path, Profile(LIVE, samples), script=typed)
    assert "matched 300 B, 75.0 %" in dom
    assert len(re.findall(r'class="f hit"', dom)) == 2
    assert {name for name, _ in top_rows(dom)} == {"parse", "parse_more"}


@pytest.mark.all
def test_zoom_fills_the_width_with_the_chosen_call(tmp_path: Path) -> None:
    samples: list[Sample] = [((Frame("main"), Frame("small")), (1,)), ((Frame("main"), Frame("big")), (99,))]
    tap = "Array.from(document.querySelectorAll('.f')).filter(f=>f.title.startsWith('small'))[0].click()"
    plain, zoomed = (shown(tmp_path, Profile(LIVE, samples), script=script) for script in ("", tap))

    def width(dom: str) -> float:
        found = re.search(r'title="small[^>]* width: ([\d.]+)px', dom)
        assert found is not None
        return float(found[1])

    assert width(plain) < 20
    assert width(zoomed) > 1000
    assert 'title="big' not in zoomed


@pytest.mark.all
def test_diff_shows_growth_red_and_shrinkage_blue_even_of_what_is_gone(tmp_path: Path) -> None:
    before = Profile(LIVE, [((Frame("main"), Frame("leaky")), (1000,)), ((Frame("main"), Frame("gone")), (4000,))])
    after = Profile(LIVE, [((Frame("main"), Frame("leaky")), (9000,))])
    dom = shown(tmp_path, before, after, compare=True)
    rows = dict(top_rows(dom))
    for name, change, colour in (("leaky", "+7.8 KiB", "grow"), ("gone", "-3.9 KiB", "shrink")):
        assert rows[name][-1] == change
        assert re.search(rf'title="{name}[^>]*background: rgba\(var\(--{colour}\)', dom)


@pytest.mark.all
def test_timeline_is_to_scale_and_a_bar_leads_to_its_profile(tmp_path: Path) -> None:
    dumps = [
        Profile(LIVE, [((Frame("main"), Frame(name)), (size,))], label=name)
        for name, size in (("first", 2048), ("second", 8192), ("third", 4096))
    ]
    dom = shown(tmp_path, *dumps)
    bars = re.findall(r'<button (?:class="([^"]*)" )?type="button" title="([^"]*)"[^>]*style="height: ([\d.]+)%', dom)
    assert bars == [("", "first: 2.0 KiB", "25"), ("", "second: 8.0 KiB", "100"), ("on", "third: 4.0 KiB", "50")]
    assert "the highest 8.0 KiB" in dom
    assert 'title="third' in dom
    clicked = shown(tmp_path, *dumps, script="document.querySelectorAll('#timeline button')[1].click()")
    assert "8.0 KiB" in dict(top_rows(clicked))["second"]


@pytest.mark.all
def test_empty_profile_page_explains_itself(tmp_path: Path) -> None:
    assert '<p id="empty">Nothing was sampled' in shown(tmp_path, Profile(LIVE, []))


def test_configuration_keeps_the_users_settings_and_refuses_odd_folders(tmp_path: Path) -> None:
    found = profiling.configuration("confirm:true", tmp_path, profiling.Form.pprof, 4096)
    sampled = f"prof:true,prof_file:{tmp_path}/profile.%p,prof_sample_bytes:4096,prof_format:pprof"
    assert found == f"confirm:true,{sampled},background_purge:true"
    with pytest.raises(UserError, match="cannot stand in FREESTONE_CONF"):
        profiling.configuration("", Path("/tmp/a,b"), profiling.Form.pprof, 1)
