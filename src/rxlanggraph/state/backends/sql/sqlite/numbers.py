"""The counter of versions and tokens in an SQLite file (rule 3 of the contract).

Triggers keep it up to date, whatever statement writes a number. So a statement draws the number
that it needs, and no other statement is necessary.
"""

from __future__ import annotations

from typing import Final

from rxlanggraph.state.backends.sql.sqlite.session import SqliteSession

__all__ = ["COUNTER", "NEXT", "next_number"]

NEXT: Final = "(SELECT value + 1 FROM rxlanggraph_counter)"


def _trigger(name: str, event: str, number: str) -> str:
    return (
        f"CREATE TRIGGER rxlanggraph_{name} AFTER {event} WHEN NEW.{number} > 0 BEGIN"  # noqa: S608 - no user input
        f" UPDATE rxlanggraph_counter SET value = NEW.{number} WHERE value < NEW.{number}; END"
    )


# The statements that create it.
COUNTER: Final = (
    "CREATE TABLE rxlanggraph_counter (value INTEGER NOT NULL)",
    "INSERT INTO rxlanggraph_counter VALUES (0)",
    _trigger("entry_made", "INSERT ON rxlanggraph_entries", "version"),
    _trigger("entry_changed", "UPDATE OF version ON rxlanggraph_entries", "version"),
    _trigger("lock_made", "INSERT ON rxlanggraph_locks", "token"),
    _trigger("lock_changed", "UPDATE OF token ON rxlanggraph_locks", "token"),
    _trigger("task_claimed", "UPDATE OF token ON rxlanggraph_tasks", "token"),
)


def next_number(session: SqliteSession) -> int:
    """Return the next version or token; drawn once a statement writes it."""
    ((number,),) = session.query(f"SELECT {NEXT}")
    return int(number)
