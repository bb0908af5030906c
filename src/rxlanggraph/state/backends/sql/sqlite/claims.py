"""Procedures on SQLite for claims: those of procedures.sql, in Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from rxlanggraph.state.backends.sql.sqlite.numbers import NEXT, next_number
from rxlanggraph.state.backends.sql.sqlite.queues import queue_of, sweep, unblock
from rxlanggraph.state.backends.sql.sqlite.session import SqliteSession

__all__ = [
    "claim_in_one_statement",
    "complete_in_one_statement",
    "no_place_to_claim",
    "nothing_to_claim",
    "task_claim",
    "task_complete",
    "task_fail",
    "task_release",
    "task_renew_within",
    "tasks_claim",
    "tasks_claim_within",
    "tasks_complete",
]

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
_HAS_WORK: Final = f"SELECT EXISTS ({_READY}) OR EXISTS ({_OVERDUE.format(queue=_QUEUE)})"
# Claims the first ready task; with `_CLAIM`, only if there is nothing to sweep, which is checked by
# the queue number in the row of that task, so that the queue is looked up once.
_TO_CLAIM: Final = (
    "UPDATE rxlanggraph_tasks SET"  # noqa: S608
    f" state = 'claimed', attempts = attempts + 1, worker = ?, token = {NEXT}, claimed = ?, due = ?"
    f" WHERE seq = ({_READY})"
)
_RETURNING: Final = " RETURNING id, item, key, thread, attempts, token"
_CLAIM: Final = (
    f"{_TO_CLAIM} AND NOT EXISTS ({_OVERDUE.format(queue='rxlanggraph_tasks.queue')}){_RETURNING}"
)
_CLAIM_READY: Final = f"{_TO_CLAIM}{_RETURNING}"
# The condition for a current token: not if the lease of the last attempt is over.
_CURRENT: Final = (
    "token = ? AND (state = 'ready' OR state = 'claimed' AND (attempts < max_attempts OR due > ?))"
)
_TO_COMPLETE: Final = (
    "UPDATE rxlanggraph_tasks SET state = 'completed', result = ?, ended = ?"  # noqa: S608
    f" WHERE {_OF_QUEUE} AND id = ? AND {_CURRENT}"
)
_COMPLETE: Final = f"{_TO_COMPLETE} RETURNING queue, thread"
_COMPLETE_WITHOUT_THREAD: Final = f"{_TO_COMPLETE} AND thread IS NULL RETURNING TRUE"

# Many tasks: one statement for all of them, which returns a single row. SQLite gives the
# interpreter to the other threads of this process for each statement, and for each row.
_IS_OVERDUE: Final = f"SELECT EXISTS ({_OVERDUE.format(queue='?')})"
_MANY_READY: Final = (
    "SELECT json_group_array(seq) FROM (SELECT seq FROM rxlanggraph_tasks"
    " WHERE queue = ? AND state = 'ready' ORDER BY priority DESC, seq LIMIT ?)"
)
_CLAIM_MANY: Final = (
    "UPDATE rxlanggraph_tasks SET state = 'claimed', attempts = attempts + 1, worker = ?,"
    " token = ? + chosen.key, due = ?, claimed = ?"
    " FROM json_each(?) AS chosen WHERE rxlanggraph_tasks.seq = chosen.value"
)
_CLAIMED_MANY: Final = (
    "SELECT json_group_array(json_array(t.id, t.item, t.key, t.thread, t.attempts, t.token))"
    " FROM json_each(?) AS chosen JOIN rxlanggraph_tasks AS t ON t.seq = chosen.value"
)
# The place of each named task whose token is current (1) or has completed it (0).
_TO_COMPLETE_MANY: Final = (
    "SELECT json_group_array(json_array(named.key, t.seq, t.thread, t.state <> 'completed'))"
    " FROM json_each(?) AS named CROSS JOIN rxlanggraph_tasks AS t"
    " ON t.queue = ? AND t.id = json_extract(named.value, '$[0]')"
    " WHERE t.token = json_extract(named.value, '$[1]')"
    " AND (t.state IN ('completed', 'ready')"
    " OR t.state = 'claimed' AND (t.attempts < t.max_attempts OR t.due > ?))"
)
# The results by `seq`, as one JSON object.
_COMPLETE_MANY: Final = (
    "UPDATE rxlanggraph_tasks SET state = 'completed', result = done.value, ended = ?"
    " FROM json_each(?) AS done WHERE seq = CAST(done.key AS INTEGER)"
)

# How many tasks are claimed, counted up to a limit.
_COUNT_CLAIMED: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM rxlanggraph_tasks WHERE queue = {queue}"
    " AND state = 'claimed' ORDER BY token LIMIT ?)"
)
_IS_FULL: Final = (
    f"SELECT NOT EXISTS ({_OVERDUE.format(queue=_QUEUE)})"
    f" AND ({_COUNT_CLAIMED.format(queue=_QUEUE)}) = ?"
)
_RENEW: Final = (
    "UPDATE rxlanggraph_tasks SET state = 'claimed', due = ?"  # noqa: S608
    f" WHERE {_OF_QUEUE} AND id = ? AND {_CURRENT}"
)


# -- claiming --------------------------------------------------------------------------------------


def nothing_to_claim(session: SqliteSession, namespace: str, queue_name: str, *_: Any) -> bool:
    """Whether there is nothing to claim and nothing to sweep. Does not lock the file."""
    # One statement for both: between two, another process might make an overdue task ready.
    ((has_work,),) = session.query(
        _HAS_WORK, *(namespace, queue_name) * 2, session.transaction_time
    )
    return not has_work


def task_claim(
    session: SqliteSession, namespace: str, queue_name: str, worker: str, lease: float
) -> Sequence[Any]:
    """Return the row of the task, or none; a row of None if more has to be swept."""
    queue, now = (namespace, queue_name), session.transaction_time
    claimed = _claimed(session, _CLAIM, queue, worker, lease, now)
    if claimed:
        return claimed
    is_more = sweep(session, queue_of(session, namespace, queue_name))
    claimed = _claimed(session, _CLAIM_READY, queue, worker, lease)
    return claimed or ([(None,) * 6] if is_more else [])


def claim_in_one_statement(
    session: SqliteSession, namespace: str, queue_name: str, worker: str, lease: float
) -> Sequence[Any] | None:
    """Return the row of the task; None if there is no work, or something to sweep."""
    queue, now = (namespace, queue_name), session.transaction_time
    return _claimed(session, _CLAIM, queue, worker, lease, now)


def tasks_claim(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    session: SqliteSession, namespace: str, queue_name: str, worker: str, lease: float, count: int
) -> Sequence[Any]:
    """Return the rows of the tasks, or none; a row of None if more has to be swept."""
    queue, now = queue_of(session, namespace, queue_name), session.transaction_time
    ((is_overdue,),) = session.query(_IS_OVERDUE, queue, now)
    is_more = bool(is_overdue) and sweep(session, queue)
    ((chosen,),) = session.query(_MANY_READY, queue, count)
    if chosen == "[]":
        return [(None,) * 6] if is_more else []
    session.query(_CLAIM_MANY, worker, next_number(session), now + lease, now, chosen)
    ((claimed,),) = session.query(_CLAIMED_MANY, chosen)
    return sorted(json.loads(claimed), key=itemgetter(-1))  # in the order of their tokens


def no_place_to_claim(  # noqa: PLR0917 - as `tasks_claim_within`
    session: SqliteSession,
    namespace: str,
    queue_name: str,
    worker: str,
    lease: float,
    count: int,
    max_claimed: int,
) -> bool:
    """Whether there is nothing to claim, or as many tasks are claimed as may be. Does not lock."""
    queue, now = (namespace, queue_name), session.transaction_time
    if nothing_to_claim(session, namespace, queue_name):
        return True
    ((is_full,),) = session.query(_IS_FULL, *queue, now, *queue, max_claimed, max_claimed)
    return bool(is_full)


def tasks_claim_within(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    session: SqliteSession,
    namespace: str,
    queue_name: str,
    worker: str,
    lease: float,
    count: int,
    max_claimed: int,
) -> Sequence[Any]:
    """Claim as `tasks_claim` does, at most so many that ``max_claimed`` tasks are claimed."""
    queue = queue_of(session, namespace, queue_name)
    is_more = sweep(session, queue)
    room = max_claimed - _count_claimed(session, queue, max_claimed)
    if not room:
        return [(None,) * 6] if is_more else []
    return tasks_claim(session, namespace, queue_name, worker, lease, min(count, room))


def _count_claimed(session: SqliteSession, queue: int | None, most: int) -> int:
    ((count,),) = session.query(_COUNT_CLAIMED.format(queue="?"), queue, most)
    return int(count)


def _claimed(
    session: SqliteSession,
    statement: str,
    queue: tuple[str, str],
    worker: str,
    lease: float,
    *now: float,
) -> Sequence[Any] | None:
    moment = session.transaction_time
    return session.query(statement, worker, moment, moment + lease, *queue, *now) or None


# -- with a token ----------------------------------------------------------------------------------


class _ClaimedRow(NamedTuple):
    seq: int
    queue: int
    thread: str | None
    is_last: bool  # no attempt is left


def _current(
    session: SqliteSession, namespace: str, queue_name: str, task_id: str, token: int
) -> _ClaimedRow | None:
    """Return the task, if ``token`` is current."""
    rows = session.query(
        "SELECT seq, queue, thread, attempts >= max_attempts FROM rxlanggraph_tasks"  # noqa: S608
        f" WHERE {_OF_QUEUE} AND id = ? AND {_CURRENT}",
        *(namespace, queue_name, task_id, token, session.transaction_time),
    )
    return _ClaimedRow(*rows[0]) if rows else None


def task_renew_within(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    session: SqliteSession,
    namespace: str,
    queue_name: str,
    task_id: str,
    token: int,
    lease: float,
    max_claimed: int,
) -> Sequence[Any]:
    """Return one row: whether the lease was renewed."""
    names, now = (namespace, queue_name, task_id), session.transaction_time
    renew = (now + lease, *names, token, now)
    if session.query(f"{_RENEW} AND state = 'claimed' RETURNING TRUE", *renew):
        return [(True,)]
    queue = queue_of(session, namespace, queue_name)
    sweep(session, queue)
    if _count_claimed(session, queue, max_claimed) == max_claimed:
        return [(False,)]
    return [(bool(session.query(f"{_RENEW} RETURNING TRUE", *renew)),)]


def task_complete(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    session: SqliteSession, namespace: str, queue_name: str, task_id: str, token: int, result: str
) -> Sequence[Any]:
    """Return one row: whether the task is complete."""
    completed = session.query(
        *(_COMPLETE, result, session.transaction_time, namespace, queue_name, task_id, token),
        session.transaction_time,
    )
    if not completed:
        return session.query(
            "SELECT EXISTS (SELECT 1 FROM rxlanggraph_tasks"
            " WHERE queue = ? AND id = ? AND token = ? AND state = 'completed')",
            *(queue_of(session, namespace, queue_name), task_id, token),
        )
    ((queue, thread),) = completed
    if thread is not None:
        unblock(session, queue, [thread])
    return [(True,)]


def tasks_complete(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    session: SqliteSession,
    namespace: str,
    queue_name: str,
    ids: Sequence[str],
    tokens: Sequence[int],
    results: Sequence[str],
) -> Sequence[Any]:
    """Return one row: for each task whether it is complete."""
    queue, now = queue_of(session, namespace, queue_name), session.transaction_time
    named = json.dumps([*zip(ids, tokens, strict=True)])
    ((found,),) = session.query(_TO_COMPLETE_MANY, named, queue, now)
    current = json.loads(found)
    texts = {seq: results[place] for place, seq, _, is_open in current if is_open}
    session.query(_COMPLETE_MANY, now, json.dumps(texts))
    unblock(session, queue, {thread for _, _, thread, is_open in current if is_open})
    complete = {place for place, *_ in current}
    return [([place in complete for place in range(len(ids))],)]


def complete_in_one_statement(  # noqa: PLR0917 - as above
    session: SqliteSession, namespace: str, queue_name: str, task_id: str, token: int, result: str
) -> Sequence[Any] | None:
    """Complete a task without a thread, if ``token`` is current; otherwise return None."""
    done = session.query(
        *(_COMPLETE_WITHOUT_THREAD, result, session.transaction_time),
        *(namespace, queue_name, task_id, token),
        session.transaction_time,
    )
    return done or None


def task_fail(  # noqa: PLR0917 - as backend.py calls it, and in PostgreSQL
    session: SqliteSession,
    namespace: str,
    queue_name: str,
    task_id: str,
    token: int,
    error: str,
    retry_in: float | None,
) -> Sequence[Any]:
    """Return one row: whether this has ended the attempt."""
    task = _current(session, namespace, queue_name, task_id, token)
    if task is None:
        return [(False,)]
    if task.is_last or retry_in is None:
        state, due, ended = "dead", session.transaction_time, session.transaction_time
    else:
        due, ended = session.transaction_time + retry_in, None
        state = "delayed" if retry_in > 0 else "ready"
    session.query(
        "UPDATE rxlanggraph_tasks SET state = ?, error = ?, token = NULL, due = ?, ended = ?"
        " WHERE seq = ?",
        *(state, error, due, ended, task.seq),
    )
    unblock(session, task.queue, [task.thread])
    return [(True,)]


def task_release(
    session: SqliteSession, namespace: str, queue_name: str, task_id: str, token: int
) -> Sequence[Any]:
    """Return one row: whether the task was given back."""
    task = _current(session, namespace, queue_name, task_id, token)
    if task is not None:
        session.query(
            "UPDATE rxlanggraph_tasks SET"
            " state = 'ready', attempts = attempts - 1, token = NULL, due = ? WHERE seq = ?",
            *(session.transaction_time, task.seq),
        )
    return [(task is not None,)]
