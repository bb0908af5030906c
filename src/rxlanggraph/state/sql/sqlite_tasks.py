"""Procedures on SQLite for queues of work: those of postgresql.sql, in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rxlanggraph.state.sql.sqlite_keys import next_number
from rxlanggraph.state.sql.sqlite_session import Session, writing

__all__ = [
    "task_claim",
    "task_complete",
    "task_fail",
    "task_release",
    "tasks_add",
    "tasks_purge",
    "tasks_requeue",
]

# -- queues and threads ----------------------------------------------------------------------------


def _queue(at: Session, namespace: str, queue_name: str) -> int | None:
    rows = at.query(
        "SELECT id FROM rxlanggraph_queues WHERE namespace = ? AND name = ?", namespace, queue_name
    )
    return rows[0][0] if rows else None


def _sweep(at: Session, queue: int | None) -> None:
    """Sweep the queue, as the contract says, and let go what is due now."""
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
    _unblock(at, queue, {thread for thread, state in swept if state == "dead"})


def _unblock(at: Session, queue: int | None, threads: Iterable[str | None]) -> None:
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


# -- adding and claiming ---------------------------------------------------------------------------


@writing
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
    queue = _queue(at, namespace, queue_name)
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
    _unblock(at, queue, set(threads))
    return [(added,)]


def _known(at: Session, queue: int | None, task_id: str, key: str | None) -> str:
    """Return the id of what has this id, or this key."""
    ((known,),) = at.query(
        "SELECT id FROM rxlanggraph_tasks WHERE queue = ? AND (id = ? OR key = ?)"
        " ORDER BY id = ? DESC LIMIT 1",
        *(queue, task_id, key, task_id),
    )
    return str(known)


def task_claim(
    at: Session, namespace: str, queue_name: str, worker: str, lease: float
) -> Sequence[Any]:
    """The row of the task, or none."""
    # First a look without holding the file: who waits for work disturbs nobody.
    at.check_path()
    found = at.query(
        "SELECT id,"
        " EXISTS (SELECT 1 FROM rxlanggraph_tasks WHERE queue = id_of.id AND state = 'ready'),"
        " EXISTS (SELECT 1 FROM rxlanggraph_tasks"
        " WHERE queue = id_of.id AND state IN ('delayed', 'claimed') AND due <= ?)"
        " FROM rxlanggraph_queues AS id_of WHERE namespace = ? AND name = ?",
        *(at.moment, namespace, queue_name),
    )
    for queue, is_ready, is_overdue in found:
        if is_ready or is_overdue:
            return _claim(at, namespace, queue, worker, lease, sweep=bool(is_overdue))
    return []


@writing
def _claim(
    at: Session, namespace: str, queue: int, worker: str, lease: float, *, sweep: bool
) -> Sequence[Any]:
    if sweep:
        _sweep(at, queue)
    return at.query(
        "UPDATE rxlanggraph_tasks SET"
        " state = 'claimed', attempts = attempts + 1, worker = ?, token = ?, due = ?"
        " WHERE seq = (SELECT seq FROM rxlanggraph_tasks WHERE queue = ? AND state = 'ready'"
        " ORDER BY priority DESC, seq LIMIT 1)"
        " RETURNING id, item, key, thread, attempts, token",
        *(worker, next_number(at, namespace), at.moment + lease, queue),
    )


# -- what the holder of a token does ---------------------------------------------------------------


class _Held(NamedTuple):
    seq: int
    queue: int
    thread: str | None
    is_last: bool  # no attempt is left


def _held(at: Session, namespace: str, queue_name: str, task_id: str, token: int) -> _Held | None:
    """Return the task, if ``token`` is current: not if its lease is over and was the last one."""
    rows = at.query(
        "SELECT seq, queue, thread, attempts >= max_attempts FROM rxlanggraph_tasks"
        " WHERE queue = ? AND id = ? AND token = ?"
        " AND (state = 'ready' OR state = 'claimed' AND (attempts < max_attempts OR due > ?))",
        *(_queue(at, namespace, queue_name), task_id, token, at.moment),
    )
    return _Held(*rows[0]) if rows else None


@writing
def task_complete(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    at: Session, namespace: str, queue_name: str, task_id: str, token: int, result: str
) -> Sequence[Any]:
    """One row: whether it is complete."""
    task = _held(at, namespace, queue_name, task_id, token)
    if task is None:
        return at.query(
            "SELECT EXISTS (SELECT 1 FROM rxlanggraph_tasks"
            " WHERE queue = ? AND id = ? AND token = ? AND state = 'completed')",
            *(_queue(at, namespace, queue_name), task_id, token),
        )
    at.query(
        "UPDATE rxlanggraph_tasks SET state = 'completed', result = ? WHERE seq = ?",
        *(result, task.seq),
    )
    _unblock(at, task.queue, [task.thread])
    return [(True,)]


@writing
def task_fail(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    at: Session,
    namespace: str,
    queue_name: str,
    task_id: str,
    token: int,
    error: str,
    retry_in: float | None,
) -> Sequence[Any]:
    """One row: whether the attempt has ended by it."""
    task = _held(at, namespace, queue_name, task_id, token)
    if task is None:
        return [(False,)]
    if task.is_last or retry_in is None:
        state, due = "dead", at.moment
    else:
        state, due = "delayed" if retry_in > 0 else "ready", at.moment + retry_in
    at.query(
        "UPDATE rxlanggraph_tasks SET state = ?, error = ?, token = NULL, due = ? WHERE seq = ?",
        *(state, error, due, task.seq),
    )
    _unblock(at, task.queue, [task.thread])
    return [(True,)]


@writing
def task_release(
    at: Session, namespace: str, queue_name: str, task_id: str, token: int
) -> Sequence[Any]:
    """One row: whether it was given back."""
    task = _held(at, namespace, queue_name, task_id, token)
    if task is not None:
        at.query(
            "UPDATE rxlanggraph_tasks SET"
            " state = 'ready', attempts = attempts - 1, token = NULL, due = ? WHERE seq = ?",
            *(at.moment, task.seq),
        )
    return [(task is not None,)]


# -- clearing up -----------------------------------------------------------------------------------


@writing
def tasks_requeue(
    at: Session, namespace: str, queue_name: str, ids: Sequence[str] | None
) -> Sequence[Any]:
    """One row: how many were put back."""
    queue = _queue(at, namespace, queue_name)
    _sweep(at, queue)
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
    _unblock(at, queue, {thread for _, thread in back})
    return [(len(back),)]


@writing
def tasks_purge(
    at: Session, namespace: str, queue_name: str, states: Sequence[str]
) -> Sequence[Any]:
    """One row: how many were forgotten."""
    queue = _queue(at, namespace, queue_name)
    _sweep(at, queue)
    threads = [
        thread
        for state in states
        for (thread,) in at.query(
            "DELETE FROM rxlanggraph_tasks WHERE queue = ? AND state = ? RETURNING thread",
            *(queue, state),
        )
    ]
    _unblock(at, queue, set(threads))
    return [(len(threads),)]
