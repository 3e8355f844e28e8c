"""Quantities as users type them: `90s`, `5m`, `1%`."""

from __future__ import annotations

import re

from freestone_lab.errors import UserError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(text: str, option: str) -> float:
    """A positive duration such as `90s`, `5m` or `1h`; a bare number is seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?", text.strip())
    if not match:
        raise UserError(f"{option} '{text}': expected a duration such as 60s, 5m or 1h")
    value = float(match[1]) * _SECONDS[match[2] or "s"]
    if value <= 0:
        raise UserError(f"{option} '{text}': expected more than nothing")
    return value


def fraction(text: str, option: str) -> float:
    """A percentage above 0 as a fraction: `1%` is 0.01."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if not match or float(match[1]) <= 0:
        raise UserError(f"{option} '{text}': expected a percentage above 0, such as 1%")
    return float(match[1]) / 100


def words(seconds: float) -> str:
    """Seconds as `8 s` or `3 min 20 s`."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
