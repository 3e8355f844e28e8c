"""The colours of every page, light and dark, as CSS variables."""

LIGHT = {
    "ink": "#20242a",
    "muted": "#5c646e",
    "line": "#e2e0db",
    "card": "#ffffff",
    "good": "#18794e",
    "bad": "#b42318",
}
DARK = {"ink": "#e8e6e1", "muted": "#a3a9b1", "line": "#383c42", "card": "#1e2125", "good": "#4cc38a", "bad": "#ff8b7e"}
SERIES_LIGHT = (
    "#7a8088", "#0b6bcb", "#c2410c", "#18794e", "#8250c4", "#b8860b", "#c2256c", "#0e8a8a", "#6b7f1c", "#a0522d",
    "#4553c4", "#d1495b", "#3f7d58", "#9b5fa8",
)  # fmt: skip
SERIES_DARK = (
    "#a8aeb6", "#5eb1ff", "#ff9a5c", "#4cc38a", "#b794f4", "#e5c04b", "#ff7eb6", "#3fd0d0", "#b5cc4f", "#d99a6c",
    "#93a0ff", "#ff8f9f", "#7fc9a0", "#d3a3df",
)  # fmt: skip


def variables(dark: bool) -> str:
    """The CSS declarations behind the placeholders."""
    base = DARK if dark else LIGHT
    series = SERIES_DARK if dark else SERIES_LIGHT
    named = [f"--{name}:{value}" for name, value in base.items()]
    return ";".join(named + [f"--s{i}:{value}" for i, value in enumerate(series)])
