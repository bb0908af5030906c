"""Procedures on SQLite for queues of work: those of postgresql.sql, in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from rxlanggraph.state.sql.sqlite_numbers import NEXT
from rxlanggraph.state.sql.sqlite_session import Session

__all__ = [
    "claim_alone",
    "complete_alone",
    "is_idle",
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


def is_idle(at: Session, namespace: str, queue_name: str, *_: Any) -> bool:
    """Whether there is nothing to claim: whoever waits for work disturbs nobody."""
    # Where one was found there is likely to be another, and no need to look first.
    if (namespace, queue_name) in at.marks:
        return False
    # One look for both: between two of them another process might make ready what is overdue.
    ((is_something,),) = at.query(_LOOK, *(namespace, queue_name) * 2, at.moment)
    return not is_something


def task_claim(
    at: Session, namespace: str, queue_name: str, worker: str, lease: float
) -> Sequence[Any]:
    """The row of the task, or none."""
    claimed = claim_alone(at, namespace, queue_name, worker, lease)
    if not claimed:
        _sweep(at, _queue(at, namespace, queue_name))
        claimed = claim_alone(at, namespace, queue_name, worker, lease)
    return claimed or []


def claim_alone(
    at: Session, namespace: str, queue_name: str, worker: str, lease: float
) -> Sequence[Any] | None:
    """The same, if there is nothing to sweep; else None."""
    claimed = at.query(_CLAIM, worker, at.moment + lease, namespace, queue_name, at.moment)
    mark = (namespace, queue_name)
    if claimed:
        if len(at.marks) >= _MOST_MARKS:
            at.marks.clear()
        at.marks.add(mark)
    else:
        at.marks.discard(mark)
    return claimed or None


_MOST_MARKS: Final = 1_000
_QUEUE: Final = "(SELECT id FROM rxlanggraph_queues WHERE namespace = ? AND name = ?)"
_OF_QUEUE: Final = f"queue = {_QUEUE}"
_READY: Final = (
    f"SELECT seq FROM rxlanggraph_tasks WHERE {_OF_QUEUE} AND state = 'ready'"  # noqa: S608 - here and below: no input of anybody
    " ORDER BY priority DESC, seq LIMIT 1"
)
_OVERDUE: Final = (
    "SELECT 1 FROM rxlanggraph_tasks AS t WHERE t.queue = {queue}"
    " AND t.state IN ('delayed', 'claimed') AND t.due <= ?"
)
_LOOK: Final = f"SELECT EXISTS ({_READY}) OR EXISTS ({_OVERDUE.format(queue=_QUEUE)})"
# The first that is ready; but nothing as long as there is something to sweep: which is looked for
# with the number that its row has, so that the queue is looked up once.
_CLAIM: Final = (
    "UPDATE rxlanggraph_tasks SET"  # noqa: S608
    f" state = 'claimed', attempts = attempts + 1, worker = ?, token = {NEXT}, due = ?"
    f" WHERE seq = ({_READY}) AND NOT EXISTS ({_OVERDUE.format(queue='rxlanggraph_tasks.queue')})"
    " RETURNING id, item, key, thread, attempts, token"
)


# -- what the holder of a token does ---------------------------------------------------------------


class _Held(NamedTuple):
    seq: int
    queue: int
    thread: str | None
    is_last: bool  # no attempt is left


# A claim that can still end its task: not if its lease is over and was the last one.
_CURRENT: Final = (
    "token = ? AND (state = 'ready' OR state = 'claimed' AND (attempts < max_attempts OR due > ?))"
)


def _held(at: Session, namespace: str, queue_name: str, task_id: str, token: int) -> _Held | None:
    """Return the task, if ``token`` is current."""
    rows = at.query(
        "SELECT seq, queue, thread, attempts >= max_attempts FROM rxlanggraph_tasks"  # noqa: S608
        f" WHERE {_OF_QUEUE} AND id = ? AND {_CURRENT}",
        *(namespace, queue_name, task_id, token, at.moment),
    )
    return _Held(*rows[0]) if rows else None


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


def complete_alone(  # noqa: PLR0917 - as above
    at: Session, namespace: str, queue_name: str, task_id: str, token: int, result: str
) -> Sequence[Any] | None:
    """The same for a task without a thread, if that is all there is to do; else None."""
    done = at.query(_COMPLETE, result, namespace, queue_name, task_id, token, at.moment)
    return done or None


_COMPLETE: Final = (
    "UPDATE rxlanggraph_tasks SET state = 'completed', result = ?"  # noqa: S608
    f" WHERE {_OF_QUEUE} AND id = ? AND thread IS NULL AND {_CURRENT} RETURNING TRUE"
)


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
