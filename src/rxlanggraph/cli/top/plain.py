"""``rxlanggraph top --once``: a snapshot as plain text."""

from __future__ import annotations

from rxlanggraph.cli.tables import columns, printable
from rxlanggraph.cli.top.views import VIEWS, View, counts_of, shown_views
from rxlanggraph.live.schema import Snapshot

__all__ = ["as_plain_text"]

# Rows of each table, and characters of a cell.
_MOST_ROWS = 50
_LONGEST_CELL = 80


def as_plain_text(snapshot: Snapshot) -> str:
    """Return a snapshot as text: its counters, and a table for each view that has rows."""
    parts = [f"{printable(snapshot['name'])}  {snapshot['state']}\n{counts_of(snapshot)}"]
    views = shown_views(snapshot)
    parts += [part for view in VIEWS if view in views and (part := _table(view, snapshot))]
    return "\n\n".join(parts)


def _table(view: View, snapshot: Snapshot) -> str:
    rows = list(view.rows(snapshot))
    if not rows:
        return ""
    more = len(rows[_MOST_ROWS:]) + snapshot["left_out"].get(view.list, 0)
    heads = tuple(column.title for column in view.columns)
    cells = [tuple(map(_cut, row.cells)) for row in rows[:_MOST_ROWS]]
    text = f"{view.title}\n{columns([heads, *cells])}"
    return f"{text}\nand {more:,} more" if more else text


def _cut(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_CELL else f"{cell[: _LONGEST_CELL - 1]}…"
