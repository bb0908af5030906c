"""What most calls come to, in one statement each; where it finds no row, the procedure is called.

A procedure costs PostgreSQL several times as much as a statement. These do what the procedures of
the same names do, and keep to the same locks (procedures.sql), for the plain case: one value, a
counter that is one and goes on being one. Those for queues are in fast_path.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from rxlanggraph.state.backends.sql.backend import Row

__all__ = ["Shortcut", "call_of", "shortcut"]

# What is locked here is in its latest state, also where it was changed since the statement began;
# what was made since then is not seen: the last condition finds that.
_COMMIT: Final = """
WITH held AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(1920494187, hashtext($1 || '/' || $2) & 1023)
), old AS MATERIALIZED (
    SELECT e.version, CASE
        WHEN e.item IS NOT NULL AND (e.expires IS NULL OR e.expires > rxlanggraph_now())
        THEN e.version ELSE 0 END AS seen
    FROM held CROSS JOIN rxlanggraph_entries AS e
    WHERE e.namespace = $1 AND e.key = $2
    FOR UPDATE OF e
)
INSERT INTO rxlanggraph_entries AS e (namespace, key, item, version, fence)
SELECT $1, $2, $3, nextval('rxlanggraph_counter'), $4::bigint
FROM held LEFT JOIN old ON true
WHERE $5::bigint IS NULL OR coalesce(old.seen, 0) = $5
ON CONFLICT (namespace, key) DO UPDATE SET
    item = excluded.item, version = excluded.version, expires = NULL, forget = NULL,
    fence = coalesce(excluded.fence, e.fence)
WHERE (e.fence <= excluded.fence) IS NOT FALSE AND e.version = (SELECT version FROM old)
RETURNING coalesce((SELECT seen FROM old), 0), e.version
"""

# The version is drawn when the name is held: so what is written later has the larger one.
_INCREMENT: Final = """
WITH held AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(1920494187, hashtext($1 || '/' || $2) & 1023)
)
INSERT INTO rxlanggraph_entries AS e (namespace, key, item, version, fence)
SELECT $1, $2, $3::bigint::text, nextval('rxlanggraph_counter'), $4::bigint FROM held
ON CONFLICT (namespace, key) DO UPDATE SET
    item = (e.item::bigint + $3)::text, version = excluded.version,
    fence = coalesce(excluded.fence, e.fence),
    forget = rxlanggraph_forget(e.expires, coalesce(excluded.fence, e.fence))
WHERE e.item ~ '^-?[0-9]{1,18}$' AND $3 BETWEEN -1000000000000000000 AND 1000000000000000000
    AND (e.expires IS NULL OR e.expires > rxlanggraph_now())
    AND (e.fence <= $4) IS NOT FALSE
RETURNING 'done', e.item::bigint
"""


class Shortcut(NamedTuple):
    """A statement that may do instead of a procedure.

    Attributes:
        statement: What it is.
        arguments: What it takes.
        answer: Makes of its rows what the procedure would return; no row: it has done nothing.
    """

    statement: str
    arguments: Sequence[Any]
    answer: Callable[[Sequence[Row]], Sequence[Row]]


@cache
def call_of(procedure: str, count: int) -> str:
    """Return the statement that calls a procedure with so many arguments. Any thread."""
    places = ", ".join(f"${place}" for place in range(1, count + 1))
    return f"SELECT * FROM rxlanggraph_{procedure}({places})"  # noqa: S608 - no input of anybody


def shortcut(procedure: str, arguments: Sequence[Any]) -> Shortcut | None:
    """Return what may do instead of a call; None if nothing can. Any thread; never blocks."""
    if procedure == "commit":
        return _replacement(*arguments)
    if procedure == "increment":
        return Shortcut(_INCREMENT, arguments, _same)
    return None


def _same(rows: Sequence[Row]) -> Sequence[Row]:
    return rows


def _replacement(  # noqa: PLR0917 - as backend.py calls it
    namespace: str,
    names: Sequence[str],
    items: Sequence[str | None],
    ttls: Sequence[float | None],
    tokens: Sequence[int | None],
    checked: Sequence[str],
    expected: Sequence[int],
) -> Shortcut | None:
    """For one value that is set for good, where nothing beside it is looked at.

    Without arrays, which the driver takes apart and puts together in Python.
    """
    if len(names) != 1 or None in items or ttls != [None] or checked not in ([], names):
        return None
    version = expected[0] if checked else None
    return Shortcut(_COMMIT, (namespace, *names, *items, *tokens, version), _replaced)


def _replaced(rows: Sequence[Row]) -> Sequence[Row]:
    return [("done", None, [before], [after]) for before, after in rows]
