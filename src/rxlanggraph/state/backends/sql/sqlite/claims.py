"""Procedures on SQLite for claims: those of procedures.sql, in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rxlanggraph.state.backends.sql.sqlite.numbers import NEXT
from rxlanggraph.state.backends.sql.sqlite.queues import queue_of, sweep, unblock
from rxlanggraph.state.backends.sql.sqlite.session import SqliteSession

__all__ = [
    "claim_in_one_statement",
    "complete_in_one_statement",
    "nothing_to_claim",
    "task_claim",
    "task_complete",
    "task_fail",
    "task_release",
]

# Queues in which something was found the last time.
_MOST_HOT_QUEUES: Final = 1_000

_QUEUE: Final = "(SELECT id FROM rxlanggraph_queues WHERE namespace = ? AND name = ?)"
_OF_QUEUE: Final = f"queue = {_QUEUE}"
_READY: Final = (
    f"SELECT seq FROM rxlanggraph_tasks WHERE {_OF_QUEUE} AND state = 'ready'"  # noqa: S608 - here and below: no user input
    " ORDER BY priority DESC, seq LIMIT 1"
)
_OVERDUE: Final = (
    "SELECT 1 FROM rxlanggraph_tasks AS t WHERE t.queue = {queue}"
    " AND t.state IN ('delayed', 'claimed') AND t.due <= ?"
)
_LOOK: Final = f"SELECT EXISTS ({_READY}) OR EXISTS ({_OVERDUE.format(queue=_QUEUE)})"
# The first that is ready; but nothing as long as there is something to sweep: which is looked for
# with the number that its row has, so that the queue is looked up once.
_TO_CLAIM: Final = (
    "UPDATE rxlanggraph_tasks SET"  # noqa: S608
    f" state = 'claimed', attempts = attempts + 1, worker = ?, token = {NEXT}, due = ?"
    f" WHERE seq = ({_READY})"
)
_GIVE: Final = " RETURNING id, item, key, thread, attempts, token"
_CLAIM: Final = (
    f"{_TO_CLAIM} AND NOT EXISTS ({_OVERDUE.format(queue='rxlanggraph_tasks.queue')}){_GIVE}"
)
_CLAIM_READY: Final = f"{_TO_CLAIM}{_GIVE}"
# A claim that can still end its task: not if its lease is over and was the last one.
_CURRENT: Final = (
    "token = ? AND (state = 'ready' OR state = 'claimed' AND (attempts < max_attempts OR due > ?))"
)
_COMPLETE: Final = (
    "UPDATE rxlanggraph_tasks SET state = 'completed', result = ?"  # noqa: S608
    f" WHERE {_OF_QUEUE} AND id = ? AND thread IS NULL AND {_CURRENT} RETURNING TRUE"
)


# -- claiming --------------------------------------------------------------------------------------


def nothing_to_claim(at: SqliteSession, namespace: str, queue_name: str, *_: Any) -> bool:
    """Whether there is nothing to claim: a look that does not hold the file."""
    # Where one was found there is likely to be another, and no need to look first.
    if (namespace, queue_name) in at.hot_queues:
        return False
    # One look for both: between two of them another process might make ready what is overdue.
    ((is_something,),) = at.query(_LOOK, *(namespace, queue_name) * 2, at.transaction_time)
    return not is_something


def task_claim(
    at: SqliteSession, namespace: str, queue_name: str, worker: str, lease: float
) -> Sequence[Any]:
    """The row of the task, or none; one of None if there is none, but more to sweep."""
    claimed = claim_in_one_statement(at, namespace, queue_name, worker, lease)
    if claimed:
        return claimed
    is_more = sweep(at, queue_of(at, namespace, queue_name))
    claimed = _claimed(at, _CLAIM_READY, namespace, queue_name, worker, lease)
    return claimed or ([(None,) * 6] if is_more else [])


def claim_in_one_statement(
    at: SqliteSession, namespace: str, queue_name: str, worker: str, lease: float
) -> Sequence[Any] | None:
    """The same, if there is nothing to sweep; else None."""
    return _claimed(at, _CLAIM, namespace, queue_name, worker, lease, at.transaction_time)


def _claimed(  # noqa: PLR0917 - what the statements take
    at: SqliteSession,
    statement: str,
    namespace: str,
    queue_name: str,
    worker: str,
    lease: float,
    *now: float,
) -> Sequence[Any] | None:
    claimed = at.query(statement, worker, at.transaction_time + lease, namespace, queue_name, *now)
    queue = (namespace, queue_name)
    if claimed:
        if len(at.hot_queues) >= _MOST_HOT_QUEUES:
            at.hot_queues.clear()
        at.hot_queues.add(queue)
    else:
        at.hot_queues.discard(queue)
    return claimed or None


# -- what the holder of a token does ---------------------------------------------------------------


class _Held(NamedTuple):
    seq: int
    queue: int
    thread: str | None
    is_last: bool  # no attempt is left


def _held(
    at: SqliteSession, namespace: str, queue_name: str, task_id: str, token: int
) -> _Held | None:
    """Return the task, if ``token`` is current."""
    rows = at.query(
        "SELECT seq, queue, thread, attempts >= max_attempts FROM rxlanggraph_tasks"  # noqa: S608
        f" WHERE {_OF_QUEUE} AND id = ? AND {_CURRENT}",
        *(namespace, queue_name, task_id, token, at.transaction_time),
    )
    return _Held(*rows[0]) if rows else None


def task_complete(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    at: SqliteSession, namespace: str, queue_name: str, task_id: str, token: int, result: str
) -> Sequence[Any]:
    """One row: whether it is complete."""
    task = _held(at, namespace, queue_name, task_id, token)
    if task is None:
        return at.query(
            "SELECT EXISTS (SELECT 1 FROM rxlanggraph_tasks"
            " WHERE queue = ? AND id = ? AND token = ? AND state = 'completed')",
            *(queue_of(at, namespace, queue_name), task_id, token),
        )
    at.query(
        "UPDATE rxlanggraph_tasks SET state = 'completed', result = ? WHERE seq = ?",
        *(result, task.seq),
    )
    unblock(at, task.queue, [task.thread])
    return [(True,)]


def complete_in_one_statement(  # noqa: PLR0917 - as above
    at: SqliteSession, namespace: str, queue_name: str, task_id: str, token: int, result: str
) -> Sequence[Any] | None:
    """The same for a task without a thread, if that is all there is to do; else None."""
    done = at.query(_COMPLETE, result, namespace, queue_name, task_id, token, at.transaction_time)
    return done or None


def task_fail(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    at: SqliteSession,
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
        state, due = "dead", at.transaction_time
    else:
        state, due = "delayed" if retry_in > 0 else "ready", at.transaction_time + retry_in
    at.query(
        "UPDATE rxlanggraph_tasks SET state = ?, error = ?, token = NULL, due = ? WHERE seq = ?",
        *(state, error, due, task.seq),
    )
    unblock(at, task.queue, [task.thread])
    return [(True,)]


def task_release(
    at: SqliteSession, namespace: str, queue_name: str, task_id: str, token: int
) -> Sequence[Any]:
    """One row: whether it was given back."""
    task = _held(at, namespace, queue_name, task_id, token)
    if task is not None:
        at.query(
            "UPDATE rxlanggraph_tasks SET"
            " state = 'ready', attempts = attempts - 1, token = NULL, due = ? WHERE seq = ?",
            *(at.transaction_time, task.seq),
        )
    return [(task is not None,)]
