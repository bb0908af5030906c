"""What most calls come to, in one statement each; where it finds no row, the procedure is called.

A procedure costs PostgreSQL several times as much as a statement. These do what the procedures of
the same names do, and keep to the same locks (postgresql.sql), for the plain case: one value, a
counter that is one and goes on being one, a queue with nothing to sweep, a task without a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from rxlanggraph.state.sql.backend import Row

__all__ = ["IN_QUEUES", "Queue", "Shortcut", "shortcut", "shortcut_in"]

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
    item = excluded.item, version = excluded.version, expires = NULL,
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
    fence = coalesce(excluded.fence, e.fence)
WHERE e.item ~ '^-?[0-9]{1,18}$' AND $3 BETWEEN -1000000000000000000 AND 1000000000000000000
    AND (e.expires IS NULL OR e.expires > rxlanggraph_now())
    AND (e.fence <= $4) IS NOT FALSE
RETURNING 'done', e.item::bigint
"""

# Of one moment for the whole statement: so that an index can be searched for it.
_NOW: Final = "extract(epoch FROM statement_timestamp())::double precision"
_OVERDUE: Final = f"""(
    SELECT FROM rxlanggraph_tasks
    WHERE queue = $1
        AND state IN ('delayed', 'claimed')
        AND due <= {_NOW} AND due > {_NOW} - $4::double precision
)"""

_TASK_CLAIM: Final = f"""
UPDATE rxlanggraph_tasks SET
    state = 'claimed', attempts = attempts + 1, worker = $2,
    token = nextval('rxlanggraph_counter'), due = rxlanggraph_now() + $3::double precision
WHERE seq = (
    SELECT seq FROM rxlanggraph_tasks
    WHERE queue = $1
        AND state = 'ready'
    ORDER BY priority DESC, seq LIMIT 1
    FOR UPDATE SKIP LOCKED
) AND NOT EXISTS {_OVERDUE}
RETURNING id, item, key, thread, attempts, token
"""  # noqa: S608 - here and below: no input of anybody

_TASKS_CLAIM: Final = f"""
WITH first AS MATERIALIZED (SELECT ARRAY(
    SELECT seq FROM rxlanggraph_tasks
    WHERE queue = $1
        AND state = 'ready'
    ORDER BY priority DESC, seq LIMIT cardinality($2::text[])
    FOR UPDATE SKIP LOCKED
) AS seqs)
UPDATE rxlanggraph_tasks SET
    state = 'claimed', attempts = attempts + 1, worker = ($2)[array_position(seqs, seq)],
    token = nextval('rxlanggraph_counter'),
    due = rxlanggraph_now() + ($3::double precision[])[array_position(seqs, seq)]
FROM first
WHERE seq = ANY (seqs) AND NOT EXISTS {_OVERDUE}
RETURNING array_position(seqs, seq), id, item, key, thread, attempts, token
"""  # noqa: S608

_TASK_COMPLETE: Final = """
UPDATE rxlanggraph_tasks SET state = 'completed', result = $4
WHERE queue = $1 AND id = $2 AND token = $3::bigint AND thread IS NULL
    AND (state = 'ready' OR state = 'claimed'
        AND (attempts < max_attempts OR due > rxlanggraph_now()))
RETURNING true
"""

# In one queue, whose number they take instead of its namespace and name.
IN_QUEUES: Final = {
    "task_claim": _TASK_CLAIM,
    "tasks_claim": _TASKS_CLAIM,
    "task_complete": _TASK_COMPLETE,
}

# Seconds: a guess; and more than any date.
_PERIOD: Final = 0.25
_FOREVER: Final = 1e12


class Queue:
    """What is known of a queue. Confined to a loop.

    Args:
        number: Its number, which it has for ever. To look it up takes PostgreSQL as long as to find
            the next task.
        time: The clock of the loop.
    """

    def __init__(self, number: int, time: Callable[[], float]) -> None:
        self.number = number
        self._time = time
        self._looked = -_FOREVER

    def hindsight(self) -> float:
        """Return for how many seconds back a claim looks for tasks that fell due.

        Before these are the leases of all tasks that were completed since the last VACUUM, in an
        index through which PostgreSQL would step for each claim: thousands. So claims look through
        all of it now and then, and else at what has fallen due since; a bit more, for transactions
        that took their time: what escapes them is found the next time.
        """
        ago = self._time() - self._looked
        if ago < _PERIOD:
            return ago + _PERIOD
        self._looked = self._time()
        return _FOREVER


class Shortcut(NamedTuple):
    """A statement that may do instead of a procedure.

    Attributes:
        statement: What it is.
        arguments: What it takes.
        answer: Makes of its rows what the procedure would return; no row: it has done nothing. Of
            claims there are fewer where there are no more that nobody else is about to have.
    """

    statement: str
    arguments: Sequence[Any]
    answer: Callable[[Sequence[Row]], Sequence[Row]]


def shortcut(procedure: str, arguments: Sequence[Any]) -> Shortcut | None:
    """Return what may do instead of a call; None if nothing can. Any thread; never blocks."""
    if procedure == "commit":
        return _replacement(*arguments)
    if procedure == "increment":
        return Shortcut(_INCREMENT, arguments, _same)
    return None


def shortcut_in(queue: Queue, procedure: str, arguments: Sequence[Any]) -> Shortcut:
    """Return what may do instead of a call that is one of `IN_QUEUES`. On the loop of ``queue``."""
    _space, _name, *others = arguments
    if procedure != "task_complete":
        others.append(queue.hindsight())
    return Shortcut(IN_QUEUES[procedure], (queue.number, *others), _same)


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
