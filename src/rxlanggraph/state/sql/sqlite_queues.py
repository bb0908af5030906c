"""Procedures on SQLite for queues of work as a whole: those of postgresql.sql, in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rxlanggraph.state.sql.sqlite_session import Session

__all__ = ["queue_of", "sweep", "tasks_add", "tasks_purge", "tasks_requeue", "unblock"]


# -- what claims need, too -------------------------------------------------------------------------


def queue_of(at: Session, namespace: str, queue_name: str) -> int | None:
    """Return the number of a queue; None if nothing was ever added to it."""
    rows = at.query(
        "SELECT id FROM rxlanggraph_queues WHERE namespace = ? AND name = ?", namespace, queue_name
    )
    return rows[0][0] if rows else None


def sweep(at: Session, queue: int | None) -> None:
    """Sweep a queue, as the contract says, and let go what is due now."""
    swept = at.query(
        "UPDATE rxlanggraph_tasks SET"
        " state = iif(state = 'claimed' AND attempts >= max_attempts, 'dead', 'ready'),"
        " token = iif(state = 'claimed' AND attempts >= max_attempts, NULL, token),"
        " error = iif(state = 'claimed' AND attempts >= max_attempts, NULL, error)"
        " WHERE queue = ? AND state IN ('delayed', 'claimed') AND due <= ?"
        " RETURNING thread, state",
        queue,
        at.moment,
    )
    unblock(at, queue, {thread for thread, state in swept if state == "dead"})


def unblock(at: Session, queue: int | None, threads: Iterable[str | None]) -> None:
    """Let the first unfinished task of each thread go, if it does not yet."""
    for thread in threads:
        if thread is not None:
            at.query(
                "UPDATE rxlanggraph_tasks SET state = iif(due > ?, 'delayed', 'ready')"
                " WHERE state = 'blocked' AND seq = (SELECT seq FROM rxlanggraph_tasks"
                " WHERE queue = ? AND thread = ? AND state NOT IN ('completed', 'dead')"
                " ORDER BY seq LIMIT 1)",
                at.moment,
                queue,
                thread,
            )


# -- adding ----------------------------------------------------------------------------------------


def tasks_add(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    at: Session,
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
    """One row: the ids."""
    at.query(
        "INSERT INTO rxlanggraph_queues (namespace, name) VALUES (?, ?) ON CONFLICT DO NOTHING",
        namespace,
        queue_name,
    )
    queue = queue_of(at, namespace, queue_name)
    added = []
    for row in zip(ids, items, keys, priorities, delays, threads, caps, strict=True):
        task_id, item, key, priority, delay, thread, cap = row
        state = "blocked" if thread is not None else "delayed" if delay > 0 else "ready"
        new = at.query(
            "INSERT INTO rxlanggraph_tasks"
            " (queue, id, key, thread, priority, state, due, attempts, max_attempts, item)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
            *(queue, task_id, key, thread, priority, state, at.moment + delay, cap, item),
        )
        added.append(task_id if new else _known(at, queue, task_id, key))
    unblock(at, queue, set(threads))
    return [(added,)]


def _known(at: Session, queue: int | None, task_id: str, key: str | None) -> str:
    """Return the id of what has this id, or this key."""
    ((known,),) = at.query(
        "SELECT id FROM rxlanggraph_tasks WHERE queue = ? AND (id = ? OR key = ?)"
        " ORDER BY id = ? DESC LIMIT 1",
        *(queue, task_id, key, task_id),
    )
    return str(known)


# -- clearing up -----------------------------------------------------------------------------------


def tasks_requeue(
    at: Session, namespace: str, queue_name: str, ids: Sequence[str] | None
) -> Sequence[Any]:
    """One row: how many were put back."""
    queue = queue_of(at, namespace, queue_name)
    sweep(at, queue)
    wanted = None if ids is None else set(ids)
    dead = at.query(
        "SELECT seq, id, thread FROM rxlanggraph_tasks WHERE queue = ? AND state = 'dead'"
        " ORDER BY seq",
        queue,
    )
    back = [(seq, thread) for seq, task_id, thread in dead if wanted is None or task_id in wanted]
    for seq, thread in back:
        at.query(
            "UPDATE rxlanggraph_tasks SET seq = (SELECT max(seq) + 1 FROM rxlanggraph_tasks),"
            " state = ?, attempts = 0, worker = NULL, error = NULL, due = ? WHERE seq = ?",
            *("ready" if thread is None else "blocked", at.moment, seq),
        )
    unblock(at, queue, {thread for _, thread in back})
    return [(len(back),)]


def tasks_purge(
    at: Session, namespace: str, queue_name: str, states: Sequence[str]
) -> Sequence[Any]:
    """One row: how many were forgotten."""
    queue = queue_of(at, namespace, queue_name)
    sweep(at, queue)
    threads = [
        thread
        for state in states
        for (thread,) in at.query(
            "DELETE FROM rxlanggraph_tasks WHERE queue = ? AND state = ? RETURNING thread",
            *(queue, state),
        )
    ]
    unblock(at, queue, set(threads))
    return [(len(threads),)]
