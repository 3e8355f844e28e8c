"""The page of `freestone trace stats`: bars, grids and one curve, as one file without scripts."""

from collections.abc import Iterable
from html import escape
from typing import Literal

from freestone_lab.trace.behaviour import Bars, Behaviour, Grid

STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;font-size:.85rem}
td,th{padding:.15rem .5rem;text-align:right}th{font-weight:500}.bar{display:block;height:.8em;background:#0b6bcb}
td.wide{width:20rem;text-align:left}svg{width:100%;height:auto}path{fill:none;stroke:#0b6bcb;stroke-width:1.5}
.wrap{overflow-x:auto}.note{opacity:.75}caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
"""


def _share(value: float) -> str:
    return "" if value == 0 else "<0.1 %" if value < 0.001 else f"{100 * value:.1f} %"


def _cell(text: str, extra: str = "") -> str:
    return f"<td{extra}>{text}</td>"


def _head(text: str, of: Literal["row", "col"] = "row") -> str:
    return f"<th scope={of}>{escape(text)}</th>"


def _table(caption: str, rows: Iterable[str]) -> str:
    return f"<table><caption>{escape(caption)}</caption>{''.join(rows)}</table>"


def _row(*cells: str) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _bar(label: str, share: float, most: float) -> str:
    bar = f"<span class=bar style='width:{100 * share / most:.1f}%'></span>"
    return _row(_head(label), _cell(bar, extra=" class=wide"), _cell(escape(_share(share))))


def _bars(found: Bars) -> str:
    if not found.shares:
        return f"<h2>{escape(found.title)}</h2><p class=note>none</p>"
    most = max(found.shares) or 1
    rows = (_bar(label, share, most) for label, share in zip(found.labels, found.shares, strict=True))
    return f"<h2>{escape(found.title)}</h2><p class=note>{escape(found.note)}</p>{_table(found.title, rows)}"


def _shade(share: float, most: float) -> str:
    colour = f" style='background:rgba(11,107,203,{0.75 * (share / most) ** 0.5:.2f})'"
    return _cell(escape(_share(share)), extra=colour)


def _grid(found: Grid) -> str:
    most = max((share for row in found.shares for share in row), default=1) or 1
    rows = [_row(_cell(""), *(_head(name, "col") for name in found.columns))]
    for name, shares in zip(found.rows, found.shares, strict=True):
        rows.append(_row(_head(name), *(_shade(share, most) for share in shares)))
    return f"<h2>{escape(found.title)}</h2><div class=wrap>{_table(found.title, rows)}</div>"


def _curve(points: list[tuple[float, float]]) -> str:
    if len(points) < 2:
        return ""
    right, top = points[-1][0] or 1.0, max(y for _, y in points) or 1.0
    places = [f"{x / right * 800:.1f} {200 - y / top * 190:.1f}" for x, y in points]
    words = f"0 to {right:.2f} s, at most {top:.0f} KiB"
    drawing = f"<svg viewBox='0 0 800 205' role=img aria-label='live memory over time: {words}'>"
    return f"{drawing}<path d='M{' L'.join(places)}'/></svg><p class=note>{words}</p>"


def _fragmentation(found: Behaviour, needed: list[tuple[str, float, float]]) -> str:
    bound = max(1.0, found.least_pages_kib)
    rows = [_row(_cell(""), *(_head(text, "col") for text in ("peak, KiB", "mean, KiB", "peak over the bound")))]
    rows.append(_row(_head("the bound"), _cell(f"{bound:.0f}"), _cell(""), _cell("1.00")))
    for name, peak, mean in needed:
        figures = (f"{peak:.0f}", f"{mean:.0f}", f"{peak / bound:.2f}")
        rows.append(_row(_head(name), *(_cell(text) for text in figures)))
    note = "No allocator needs fewer pages than the live bytes fill when perfectly packed. Beside it, one replay each."
    return f"<h2>Fragmentation</h2><p class=note>{note}</p>{_table('Fragmentation', rows)}"


def page(title: str, found: Behaviour, needed: list[tuple[str, float, float]]) -> str:
    """HTML. `needed`: by allocator its peak and mean resident KiB."""
    head = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    parts = [
        f"{head}<title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1><p>{escape(found.size_sum_note)}</p>",
        f"<h2>Live memory over time</h2>{_curve(found.live)}",
        _fragmentation(found, needed),
        *(_bars(bars) for bars in found.bars),
        *(_grid(grid) for grid in found.grids),
    ]
    return "\n".join(parts) + "</html>\n"
