"""The counter of versions and tokens in an SQLite file (rule 3 of the contract).

The database keeps it by itself: whatever statement writes a number notes it, by a trigger. So a
number is drawn by the statement that needs it, and there is nothing else to do.
"""

from __future__ import annotations

from typing import Final

from rxlanggraph.state.sql.sqlite_session import Session

__all__ = ["NEXT", "TRIGGERS", "next_number"]

NEXT: Final = "(SELECT coalesce(max(value), 0) + 1 FROM rxlanggraph_counters WHERE namespace = ?)"

_NOTE: Final = (
    "INSERT INTO rxlanggraph_counters (namespace, value) {row}"
    " ON CONFLICT DO UPDATE SET value = excluded.value WHERE excluded.value > value"
)


def _trigger(name: str, event: str, number: str, row: str) -> str:
    return (
        f"CREATE TRIGGER rxlanggraph_{name} AFTER {event} WHEN NEW.{number} > 0"
        f" BEGIN {_NOTE.format(row=row)}; END"
    )


_OF_ENTRY: Final = "VALUES (NEW.namespace, NEW.version)"
_OF_LOCK: Final = "VALUES (NEW.namespace, NEW.token)"
_OF_TASK: Final = "SELECT namespace, NEW.token FROM rxlanggraph_queues WHERE id = NEW.queue"
TRIGGERS: Final = (
    _trigger("entry_made", "INSERT ON rxlanggraph_entries", "version", _OF_ENTRY),
    _trigger("entry_changed", "UPDATE OF version ON rxlanggraph_entries", "version", _OF_ENTRY),
    _trigger("lock_made", "INSERT ON rxlanggraph_locks", "token", _OF_LOCK),
    _trigger("lock_changed", "UPDATE OF token ON rxlanggraph_locks", "token", _OF_LOCK),
    _trigger("task_claimed", "UPDATE OF token ON rxlanggraph_tasks", "token", _OF_TASK),
)


def next_number(at: Session, namespace: str) -> int:
    """Return what the next version or token is, for a statement that writes it."""
    ((number,),) = at.query(f"SELECT {NEXT}", namespace)
    return int(number)
