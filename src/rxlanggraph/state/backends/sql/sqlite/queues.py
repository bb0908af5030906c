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
    queue = queue_of(session, namespace, queue_name)
    added = []
    for row in zip(ids, items, keys, priorities, delays, threads, caps, strict=True):
        task_id, item, key, priority, delay, thread, cap = row
        state = "blocked" if thread is not None else "delayed" if delay > 0 else "ready"
        new = session.query(
            "INSERT INTO rxlanggraph_tasks"
            " (queue, id, key, thread, priority, state, due, attempts, max_attempts, item)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
            *(
                queue,
                task_id,
                key,
                thread,
                priority,
                state,
                session.transaction_time + delay,
                cap,
                item,
            ),
        )
        added.append(task_id if new else _known(session, queue, task_id, key))
    unblock(session, queue, set(threads))
    return [(added,)]


def _known(session: SqliteSession, queue: int | None, task_id: str, key: str | None) -> str:
    """Return the id of the task that has this id, or this key."""
    ((known,),) = session.query(
        "SELECT id FROM rxlanggraph_tasks WHERE queue = ? AND (id = ? OR key = ?)"
        " ORDER BY id = ? DESC LIMIT 1",
        *(queue, task_id, key, task_id),
    )
    return str(known)


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
    " attempts = 0, worker = NULL, error = NULL, due = ?"
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
        session.query(
            "DELETE FROM rxlanggraph_queues WHERE id = ?"
            " AND NOT EXISTS (SELECT 1 FROM rxlanggraph_tasks WHERE queue = ?)",
            *(queue, queue),
        )
        return [(len(gone), None, None)]
    return [(len(gone), rows[-1][0], until)]
