"""Rows of text as aligned columns."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["columns"]


def columns(rows: Iterable[tuple[str, ...]]) -> str:
    """Return the rows, of equal length, with each column as wide as its widest cell."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)
