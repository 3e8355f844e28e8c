"""From a matplotlib figure to an SVG fragment that follows the page: its theme, its font, its reproducibility.

Figures are drawn with placeholder colours (`INK`, `GRID`, `slot_colour(3)` ...); `finish` turns them into CSS
variables, so that one drawing serves light and dark. `standalone` adds the variables for use outside the page.
"""

from __future__ import annotations

import hashlib
import io
import re
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from freestone_lab.core.theme import variables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GRID, CARD, GOOD, BAD = "#010101", "#020202", "#030303", "#040404", "#060606", "#070707"
NAMES = {INK: "ink", MUTED: "muted", GRID: "line", CARD: "card", GOOD: "good", BAD: "bad"}
SLOTS = 14
FONT = 12.0
WIDTH = 5.0  # inches; 360 units, so a phone shows the text at about its size in CSS pixels

HALO = ".label text{paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round}"

RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "freestone",
    "font.size": FONT,
    "font.family": "DejaVu Sans",
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": FONT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "path.simplify_threshold": 0.5,
}


def slot_colour(slot: int) -> str:
    return f"#0500{slot % SLOTS:02x}"


def one_decimal(number: re.Match[str]) -> str:
    """A tenth of a unit is less than a pixel on any screen that the page is made for."""
    text = f"{float(number[0]):.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def short_path(path: re.Match[str]) -> str:
    """Pairs after a first one are lines without being told so."""
    return 'd="' + re.sub(r"(?<=\d) L ", " ", path[1].strip()) + '"'


def data_behind(figure: Figure, title: str) -> str:
    """A digest of what the figure shows: titles, labels, curves, marks, bars and spans, to six digits.

    Where a label or a tick stands is decided by the version of matplotlib, and is no part of it.
    """
    shown: list[object] = [title]
    for axes in figure.axes:
        shown += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale(), axes.get_yscale()]
        shown += sorted(text.get_text() for text in axes.texts)
        shown += [_rounded(line.get_xydata()) for line in axes.lines]
        shown += [_rounded(p.get_patch_transform().transform_path(p.get_path()).vertices) for p in axes.patches]
        for marks in axes.collections:
            shown += [_rounded(marks.get_offsets()), *(_rounded(path.vertices) for path in marks.get_paths())]
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def _rounded(points: object) -> list[list[str]]:
    return [[f"{value:.6g}" for value in point] for point in np.atleast_2d(np.asarray(points, dtype=float))]


DATA = re.compile(r'data-shown="[0-9a-f]+"')


def finish(figure: Figure, title: str) -> str:
    """The figure as an <svg> element with `title` as its accessible name, and a digest of the data behind it."""
    import matplotlib  # here, because this module's colours are also used where nothing is drawn

    buffer = io.StringIO()
    empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context(RC):
        figure.savefig(buffer, format="svg", transparent=True, metadata=empty)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.S)
    text = re.sub(r"<defs>\s*</defs>", "", text)
    text = re.sub(r' id="peer-(\d+)[^"]*"', r' class="p p\1"', text)
    text = text.replace(' id="label-1"', ' class="label"')
    text = re.sub(r' id="\w*_\d+(\.\w+)?"', "", text)
    text = re.sub(r"font(-family)?: (?:[\d.]+px )?'[^;\"]*sans-serif;? ?", "", text)
    text = re.sub(r" transform=\"rotate\(-0 [^\"]*\"", "", text)
    for placeholder, name in NAMES.items():
        text = text.replace(placeholder, f"var(--{name})")
    text = re.sub(r"#0500([0-9a-f]{2})", lambda m: f"var(--s{int(m[1], 16)})", text)
    text = re.sub(r"<[^>]+>", lambda tag: re.sub(r"-?\d+\.\d{2,}", one_decimal, tag[0]), text)
    text = re.sub(r'\bd="([^"]*)"', short_path, text)
    text = re.sub(r'style="[^"]*"', lambda style: re.sub(r"([;:]) ", r"\1", style[0]), text)
    text = re.sub(r"\s*\n\s*", " ", text)
    text = re.sub(r"> <", "><", text)
    opening = re.compile(r"<svg[^>]*>")
    view = re.search(r'viewBox="[^"]*"', text)
    head = (
        '<svg xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg" '
        f'{view[0] if view else ""} role="img" class="plot" '
        f'data-shown="{data_behind(figure, title)}"><title>{escape(title)}</title>'
    )
    return opening.sub(lambda _: head, text, count=1).strip()


def standalone(svg: str, width: int = 640) -> str:
    """The fragment as an SVG file of its own, light and dark."""
    style = (
        f"<style>svg{{{variables(False)};background:var(--card);font-family:system-ui,sans-serif}}"
        f"{HALO}"
        f"@media(prefers-color-scheme:dark){{svg{{{variables(True)}}}}}</style>"
    )
    return svg.replace(' class="plot"', f' width="{width}"', 1).replace("</title>", "</title>" + style, 1) + "\n"
