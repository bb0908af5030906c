"""Procedures on SQLite for queues of work as a whole: those of procedures.sql, in Python."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rxlanggraph.state.backend import MAX_PER_STEP
from rxlanggraph.state.backends.sql.sqlite.session import SqliteSession

__all__ = [
    "queue_of",
    "sweep",
    "sweep_step",
    "tasks_add",
    "tasks_cancel",
    "tasks_delete",
    "tasks_purge_step",
    "tasks_requeue",
    "tasks_requeue_step",
    "unblock",
]


# -- used by claims too ----------------------------------------------------------------------------


def queue_of(session: SqliteSession, namespace: str, queue_name: str) -> int | None:
    """Return the number of a queue; None if nothing was ever added to it."""
    rows = session.query(
        "SELECT id FROM rxlanggraph_queues WHERE namespace = ? AND name = ?", namespace, queue_name
    )
    return rows[0][0] if rows else None


def sweep(session: SqliteSession, queue: int | None) -> bool:
    """Sweep one step of a queue, and make due tasks ready; return whether there is more."""
    swept = session.query(
        "UPDATE rxlanggraph_tasks SET"
        " state = iif(state = 'claimed' AND attempts >= max_attempts, 'dead', 'ready'),"
        " ended = iif(state = 'claimed' AND attempts >= max_attempts, due, NULL),"
        " token = iif(state = 'claimed' AND attempts >= max_attempts, NULL, token),"
        " error = iif(state = 'claimed' AND attempts >= max_attempts, NULL, error)"
        " WHERE seq IN (SELECT seq FROM rxlanggraph_tasks"
        " WHERE queue = ? AND state IN ('delayed', 'claimed') AND due <= ? ORDER BY due LIMIT ?)"
        " RETURNING thread, state",
        *(queue, session.transaction_time, MAX_PER_STEP),
    )
    unblock(session, queue, {thread for thread, state in swept if state == "dead"})
    return len(swept) == MAX_PER_STEP


def sweep_step(session: SqliteSession, namespace: str, queue_name: str) -> Sequence[Any]:
    """Return one row: whether there is more to sweep."""
    return [(sweep(session, queue_of(session, namespace, queue_name)),)]


def unblock(session: SqliteSession, queue: int | None, threads: Iterable[str | None]) -> None:
    """Unblock the first unfinished task of each thread, if it is blocked."""
    for thread in threads:
        if thread is not None:
            session.query(
                "UPDATE rxlanggraph_tasks SET state = iif(due > ?, 'delayed', 'ready')"
                " WHERE state = 'blocked' AND seq = (SELECT seq FROM rxlanggraph_tasks"
                " WHERE queue = ? AND thread = ? AND state NOT IN ('completed', 'dead')"
                " ORDER BY seq LIMIT 1)",
                session.transaction_time,
                queue,
                thread,
            )


# -- adding ----------------------------------------------------------------------------------------

# One statement for all tasks, for the reason given in claims.py. Each is an array of its columns.
# WHERE true: otherwise ON would be taken for that of a join.
_COLUMNS: Final = ", ".join(f"json_extract(new.value, '$[{place}]')" for place in range(8))
_ADD: Final = (
    "INSERT INTO rxlanggraph_tasks"  # noqa: S608 - no user input
    " (queue, added, attempts, id, key, thread, priority, state, due, max_attempts, item)"
    f" SELECT ?, ?, 0, {_COLUMNS} FROM json_each(?) AS new WHERE true ORDER BY new.key"
    " ON CONFLICT DO NOTHING"
)
# The id of each of them, or that of the known task with this key.
_ADDED: Final = (
    "SELECT json_group_array(coalesce("
    "(SELECT id FROM rxlanggraph_tasks WHERE queue = ? AND id = json_extract(new.value, '$[0]')),"
    "(SELECT id FROM rxlanggraph_tasks WHERE queue = ? AND key = json_extract(new.value, '$[1]'))"
    ")) FROM json_each(?) AS new"
)


def tasks_add(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    session: SqliteSession,
    namespace: str,
    queue_name: str,
    ids: Sequence[str],
    items: Sequence[str],
    keys: Sequence[str | None],
    priorities: Sequence[int],
    delays: Sequence[float],
    threads: Sequence[str | None],
    caps: Sequence[int],
) -> Sequence[Any]:
    """Return one row: the ids."""
    session.query(
        "INSERT INTO rxlanggraph_queues (namespace, name) VALUES (?, ?) ON CONFLICT DO NOTHING",
        namespace,
        queue_name,
    )
    queue, now = queue_of(session, namespace, queue_name), session.transaction_time
    rows = json.dumps(
        [
            (task_id, key, thread, priority, _first_state(thread, delay), now + delay, cap, item)
            for task_id, item, key, priority, delay, thread, cap in zip(
                ids, items, keys, priorities, delays, threads, caps, strict=True
            )
        ],
        ensure_ascii=False,
    )
    session.query(_ADD, queue, now, rows)
    ((added,),) = session.query(_ADDED, queue, queue, rows)
    unblock(session, queue, set(threads))
    return [(json.loads(added),)]


def _first_state(thread: str | None, delay: float) -> str:
    return "blocked" if thread is not None else "delayed" if delay > 0 else "ready"


# -- cancelling ------------------------------------------------------------------------------------


def tasks_cancel(
    session: SqliteSession, namespace: str, queue_name: str, ids: Sequence[str], error: str
) -> Sequence[Any]:
    """Return one row: how many were ended. The queue was swept."""
    queue, now = queue_of(session, namespace, queue_name), session.transaction_time
    ended = session.query(
        "UPDATE rxlanggraph_tasks SET state = 'dead', error = ?, token = NULL, due = ?, ended = ?"
        " WHERE queue = ? AND state NOT IN ('completed', 'dead')"
        " AND id IN (SELECT value FROM json_each(?)) RETURNING thread",
        *(error, now, now, queue, json.dumps(ids)),
    )
    unblock(session, queue, {thread for (thread,) in ended})
    return [(len(ended),)]


# -- requeueing and purging ------------------------------------------------------------------------


# The plus sign keeps SQLite from using the index of dead tasks: each task is looked up by its id.
_DEAD_NAMED: Final = (
    "SELECT seq FROM rxlanggraph_tasks WHERE queue = ? AND +state = 'dead'"
    " AND id IN (SELECT value FROM json_each(?)) ORDER BY seq"
)
_DEAD_AFTER: Final = (
    "SELECT seq FROM rxlanggraph_tasks WHERE queue = ? AND state = 'dead'"
    " AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
)
_PUT_BACK: Final = (
    "UPDATE rxlanggraph_tasks SET seq = back.seq,"
    " state = iif(thread IS NULL, 'ready', 'blocked'),"
    " attempts = 0, worker = NULL, error = NULL, due = ?, claimed = NULL, ended = NULL"
    " FROM (SELECT value AS old, key + 1 + (SELECT max(seq) FROM rxlanggraph_tasks) AS seq"
    " FROM json_each(?)) AS back"
    " WHERE rxlanggraph_tasks.seq = back.old RETURNING thread"
)


def tasks_requeue(
    session: SqliteSession, namespace: str, queue_name: str, ids: Sequence[str]
) -> Sequence[Any]:
    """Return one row: how many were put back."""
    queue = queue_of(session, namespace, queue_name)
    dead = [seq for (seq,) in session.query(_DEAD_NAMED, queue, json.dumps(ids))]
    _put_back(session, queue, dead)
    return [(len(dead),)]


def tasks_requeue_step(
    session: SqliteSession, namespace: str, queue_name: str, last: int, until: int | None
) -> Sequence[Any]:
    """Return one row: how many were put back, the last one of them, and of all; None at the end."""
    queue = queue_of(session, namespace, queue_name)
    if until is None:
        highest = "SELECT max(seq) FROM rxlanggraph_tasks WHERE queue = ? AND state = 'dead'"
        ((until,),) = session.query(highest, queue)
    dead = [seq for (seq,) in session.query(_DEAD_AFTER, queue, last, until, MAX_PER_STEP)]
    _put_back(session, queue, dead)
    if len(dead) < MAX_PER_STEP:
        return [(len(dead), None, None)]
    return [(len(dead), dead[-1], until)]


def _put_back(session: SqliteSession, queue: int | None, dead: Sequence[int]) -> None:
    """Move these tasks to the end of the queue, in this order."""
    back = session.query(_PUT_BACK, session.transaction_time, json.dumps(dead))
    unblock(session, queue, {thread for (thread,) in back})


def tasks_purge_step(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    session: SqliteSession,
    namespace: str,
    queue_name: str,
    states: Sequence[str],
    last: str,
    until: str | None,
) -> Sequence[Any]:
    """Return one row: how many were deleted, the last one read, and of all; None at the end."""
    queue = queue_of(session, namespace, queue_name)
    if until is None:
        ((until,),) = session.query("SELECT max(id) FROM rxlanggraph_tasks WHERE queue = ?", queue)
    rows = session.query(
        "SELECT id, seq, state, thread FROM rxlanggraph_tasks"
        " WHERE queue = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?",
        *(queue, last, until, MAX_PER_STEP),
    )
    gone = {seq: thread for _, seq, state, thread in rows if state in states}
    session.query(
        "DELETE FROM rxlanggraph_tasks WHERE seq IN (SELECT value FROM json_each(?))",
        json.dumps([*gone]),
    )
    unblock(session, queue, set(gone.values()))
    if len(rows) < MAX_PER_STEP:
        _forget_empty(session, queue)
        return [(len(gone), None, None)]
    return [(len(gone), rows[-1][0], until)]


def tasks_delete(
    session: SqliteSession,
    namespace: str,
    queue_name: str,
    ids: Sequence[str],
    states: Sequence[str],
) -> Sequence[Any]:
    """Return one row: how many were deleted. The queue was swept."""
    queue = queue_of(session, namespace, queue_name)
    # The plus sign: each task is looked up by its id, not in an index of its state.
    gone = session.query(
        "DELETE FROM rxlanggraph_tasks WHERE queue = ? AND id IN (SELECT value FROM json_each(?))"
        " AND +state IN (SELECT value FROM json_each(?)) RETURNING thread",
        *(queue, json.dumps(ids), json.dumps(states)),
    )
    unblock(session, queue, {thread for (thread,) in gone})
    _forget_empty(session, queue)
    return [(len(gone),)]


def _forget_empty(session: SqliteSession, queue: int | None) -> None:
    session.query(
        "DELETE FROM rxlanggraph_queues WHERE id = ?"
        " AND NOT EXISTS (SELECT 1 FROM rxlanggraph_tasks WHERE queue = ?)",
        *(queue, queue),
    )
