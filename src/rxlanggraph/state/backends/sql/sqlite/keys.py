"""Procedures on SQLite for keys and locks: those of procedures.sql, in Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rxlanggraph.state.backend import FENCE_RETENTION
from rxlanggraph.state.backends.sql.sqlite.numbers import NEXT, next_number
from rxlanggraph.state.backends.sql.sqlite.session import SqliteSession

__all__ = [
    "commit",
    "commit_in_one_statement",
    "increment",
    "increment_in_one_statement",
    "lock_acquire",
]

_INTEGER: Final = re.compile(r"-?[0-9]+")
# A longer text is not a 64-bit integer, and would be slow to parse.
_MAX_DIGITS: Final = 20


# -- keys ------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    item: str | None = None
    version: int = 0
    expires: float | None = None
    fence: int | None = None

    def refuses(self, token: int | None) -> bool:
        return token is not None and self.fence is not None and self.fence > token

    def forget(self, moment: float) -> float | None:
        """Return when the row is no longer needed; None: not known yet."""
        gone = moment if self.item is None else self.expires
        kept = 0.0 if self.fence is None else FENCE_RETENTION
        return None if gone is None else gone + kept


def _live_row(session: SqliteSession, namespace: str, key: str) -> _Row:
    """Return the row of a key; of a key that is gone, the fence only."""
    rows = session.query(
        "SELECT item, version, expires, fence FROM rxlanggraph_entries"
        " WHERE namespace = ? AND key = ?",
        namespace,
        key,
    )
    row = _Row(*rows[0]) if rows else _Row()
    is_over = row.expires is not None and row.expires <= session.transaction_time
    return _Row(fence=row.fence) if row.item is None or is_over else row


def _write(session: SqliteSession, namespace: str, key: str, row: _Row) -> None:
    if row.item is None and row.fence is None:
        session.query(
            "DELETE FROM rxlanggraph_entries WHERE namespace = ? AND key = ?", namespace, key
        )
    else:
        session.query(
            "INSERT INTO rxlanggraph_entries"
            " (namespace, key, item, version, expires, fence, forget)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET item = excluded.item,"
            " version = excluded.version, expires = excluded.expires, fence = excluded.fence,"
            " forget = excluded.forget",
            *(namespace, key, *row, row.forget(session.transaction_time)),
        )


def commit(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    session: SqliteSession,
    namespace: str,
    names: Sequence[str],
    items: Sequence[str | None],
    ttls: Sequence[float | None],
    tokens: Sequence[int | None],
    checked: Sequence[str],
    expected: Sequence[int],
) -> Sequence[Any]:
    """Return one row: the outcome, the key that was refused, the versions before and after."""
    found = {key: _live_row(session, namespace, key) for key in {*names, *checked}}
    for key, token in zip(names, tokens, strict=True):
        if found[key].refuses(token):
            return [("stale", key, None, None)]
    for key, version in zip(checked, expected, strict=True):
        if found[key].version != version:
            return [("changed", None, None, None)]
    befores, afters = [], []
    for key, item, ttl, token in zip(names, items, ttls, tokens, strict=True):
        before = found[key]
        version = 0 if item is None else next_number(session)
        expires = None if ttl is None else session.transaction_time + ttl
        fence = before.fence if token is None else token
        _write(session, namespace, key, _Row(item, version, expires, fence))
        befores.append(before.version)
        afters.append(version)
    expiring = sum(item is None or ttl is not None for item, ttl in zip(items, ttls, strict=True))
    if expiring:
        _delete_forgotten(session, expiring)
    return [("done", None, befores, afters)]


def commit_in_one_statement(  # noqa: PLR0917 - as above
    session: SqliteSession,
    namespace: str,
    names: Sequence[str],
    items: Sequence[str | None],
    ttls: Sequence[float | None],
    tokens: Sequence[int | None],
    checked: Sequence[str],
    expected: Sequence[int],
) -> Sequence[Any] | None:
    """Commit the replacement of one value, without a time to live; None for any other commit."""
    if len(names) != 1 or checked != names or items == [None] or ttls != [None] or expected == [0]:
        return None
    ((key,), (item,), (token,), (version,)) = names, items, tokens, expected
    written = session.query(
        _REPLACE, item, token, namespace, key, version, session.transaction_time, token
    )
    return [("done", None, [version], [written[0][0]])] if written else None


_REPLACE: Final = (
    f"UPDATE rxlanggraph_entries SET item = ?, version = {NEXT}, expires = NULL, forget = NULL,"  # noqa: S608 - no user input
    " fence = coalesce(?, fence) WHERE namespace = ? AND key = ? AND version = ?"
    " AND item IS NOT NULL AND coalesce(expires > ?, TRUE) AND coalesce(fence <= ?, TRUE)"
    " RETURNING version"
)


def _delete_forgotten(session: SqliteSession, count: int) -> None:
    """Delete up to twice ``count`` rows that are no longer needed, so that they do not pile up."""
    session.query(
        "DELETE FROM rxlanggraph_entries WHERE (namespace, key) IN ("
        "SELECT namespace, key FROM rxlanggraph_entries"
        " WHERE forget IS NOT NULL AND forget <= ? LIMIT ?)",
        *(session.transaction_time, 2 * count),
    )


def increment(
    session: SqliteSession, namespace: str, key: str, by: int, token: int | None
) -> Sequence[Any]:
    """Return one row: the outcome, and the sum."""
    return increment_in_one_statement(session, namespace, key, by, token) or _increment(
        session, namespace, key, by, token
    )


def increment_in_one_statement(
    session: SqliteSession, namespace: str, key: str, by: int, token: int | None
) -> Sequence[Any] | None:
    """Increment a counter that exists and does not expire; None in any other case."""
    counted = session.query(_COUNT, by, token, namespace, key, token, by)
    return [("done", counted[0][0])] if counted else None


_COUNT: Final = (
    "UPDATE rxlanggraph_entries SET item = CAST(item AS INTEGER) + ?,"  # noqa: S608 - no user input
    f" version = {NEXT}, fence = coalesce(?, fence)"
    " WHERE namespace = ? AND key = ? AND expires IS NULL AND coalesce(fence <= ?, TRUE)"
    " AND length(item) <= 18 AND item NOT GLOB '*[^0-9]*' AND item <> ''"
    " AND ? BETWEEN -1000000000000000000 AND 1000000000000000000 RETURNING item"
)


def _increment(
    session: SqliteSession, namespace: str, key: str, by: int, token: int | None
) -> Sequence[Any]:
    old = _live_row(session, namespace, key)
    if old.refuses(token):
        return [("stale", None)]
    text = old.item or "0"
    if not _INTEGER.fullmatch(text):
        return [("type", None)]
    if len(text) > _MAX_DIGITS or not _fits(int(text)) or not _fits(int(text) + by):
        return [("range", None)]
    total = int(text) + by
    fence = old.fence if token is None else token
    version = next_number(session)
    _write(session, namespace, key, _Row(str(total), version, old.expires, fence))
    return [("done", total)]


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**63


# -- locks -----------------------------------------------------------------------------------------


def lock_acquire(
    session: SqliteSession, namespace: str, key: str, owner: str, ttl: float
) -> Sequence[Any]:
    """Return one row: the token, or None."""
    rows = session.query(
        "SELECT owner, token FROM rxlanggraph_locks"
        " WHERE namespace = ? AND key = ? AND expires > ?",
        namespace,
        key,
        session.transaction_time,
    )
    if rows and rows[0][0] != owner:
        return [(None,)]
    token = rows[0][1] if rows else next_number(session)
    # Each acquisition deletes two expired locks, so that they do not pile up.
    session.query(
        "DELETE FROM rxlanggraph_locks WHERE (namespace, key) IN ("
        "SELECT namespace, key FROM rxlanggraph_locks WHERE expires <= ? LIMIT 2)",
        session.transaction_time,
    )
    session.query(
        "INSERT INTO rxlanggraph_locks (namespace, key, owner, token, expires)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET owner = excluded.owner,"
        " token = excluded.token, expires = excluded.expires",
        namespace,
        key,
        owner,
        token,
        session.transaction_time + ttl,
    )
    return [(token,)]
