"""Quantities as users type them: `90s`, `5m`, `1%`, `2g`."""

import re

from freestone_lab.core.errors import UserError

LONGEST_S = 10 * 365 * 86400.0
LARGEST_BYTES = (1 << 63) - 1
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(text: str, option: str) -> float:
    """A positive duration such as `90s`, `5m` or `1h`; a bare number is seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?", text.strip())
    if not match:
        raise UserError(f"{option} '{text}': expected a duration such as 60s, 5m or 1h")
    value = float(match[1]) * _SECONDS[match[2] or "s"]
    if value <= 0:
        raise UserError(f"{option} '{text}': expected more than nothing")
    if value > LONGEST_S:
        raise UserError(f"{option} '{text}': expected at most ten years")
    return value


def fraction(text: str, option: str) -> float:
    """A percentage above 0, at most 100, as a fraction: `1%` is 0.01."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if not match or not 0 < float(match[1]) <= 100:
        raise UserError(f"{option} '{text}': expected a percentage above 0 and up to 100, such as 1%")
    return float(match[1]) / 100


_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size_bytes(text: str, option: str) -> int:
    """A size such as `500k`, `64m` or `2g`, in powers of 1024; a bare number is bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if not match or float(match[1]) <= 0:
        raise UserError(f"{option} '{text}': expected a size such as 500k, 64m or 2g")
    value = float(match[1]) * _BYTES[match[2]]
    if value > LARGEST_BYTES:
        raise UserError(f"{option} '{text}': expected less than 8589934592g")
    return int(value)


def size_words(count: float) -> str:
    """Bytes as `512 B`, `1.5 KiB` or `2.0 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def words(seconds: float) -> str:
    """Seconds as `0.2 s`, `8 s` or `3 min 20 s`."""
    if 0 < seconds < 0.95:
        return f"{seconds:.1g} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
