"""Rows of text as aligned columns, and durations in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["columns", "duration", "printable"]

_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60))


def columns(rows: Iterable[Sequence[str]]) -> str:
    """Return the rows, of equal length, with each column as wide as its widest cell.

    Control characters are escaped: cells have texts of the program, which may be a model's.
    """
    table = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)


def printable(text: str) -> str:
    """Return text with control characters, and others that cannot be seen, escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    parts: list[str] = []
    left = int(seconds)
    for name, size in (*_UNITS, ("s", 1)):
        if left >= size or parts:
            parts.append(f"{left // size}{name}")
            left %= size
        if len(parts) == 2:
            break
    return " ".join(parts)
