"""What most calls come to, in one statement each; where it finds no row, the procedure is called.

A procedure costs PostgreSQL several times as much as a statement. These do what the procedures of
the same names do, and keep to the same locks (postgresql.sql), for the plain case: one value, a
counter that is one and goes on being one, a queue with nothing to sweep, a task without a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from rxlanggraph.state.sql.backend import Row

__all__ = ["Hindsight", "Shortcut", "shortcut"]

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
    WHERE queue = (SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2)
        AND state IN ('delayed', 'claimed')
        AND due <= {_NOW} AND due > {_NOW} - $5::double precision
)"""  # noqa: S608 - here and below: no input of anybody

_TASK_CLAIM: Final = f"""
UPDATE rxlanggraph_tasks SET
    state = 'claimed', attempts = attempts + 1, worker = $3,
    token = nextval('rxlanggraph_counter'), due = rxlanggraph_now() + $4::double precision
WHERE seq = (
    SELECT seq FROM rxlanggraph_tasks
    WHERE queue = (SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2)
        AND state = 'ready'
    ORDER BY priority DESC, seq LIMIT 1
    FOR UPDATE SKIP LOCKED
) AND NOT EXISTS {_OVERDUE}
RETURNING id, item, key, thread, attempts, token
"""  # noqa: S608

_TASKS_CLAIM: Final = f"""
WITH first AS MATERIALIZED (SELECT ARRAY(
    SELECT seq FROM rxlanggraph_tasks
    WHERE queue = (SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2)
        AND state = 'ready'
    ORDER BY priority DESC, seq LIMIT cardinality($3::text[])
    FOR UPDATE SKIP LOCKED
) AS seqs)
UPDATE rxlanggraph_tasks SET
    state = 'claimed', attempts = attempts + 1, worker = ($3)[array_position(seqs, seq)],
    token = nextval('rxlanggraph_counter'),
    due = rxlanggraph_now() + ($4::double precision[])[array_position(seqs, seq)]
FROM first
WHERE seq = ANY (seqs) AND NOT EXISTS {_OVERDUE}
RETURNING array_position(seqs, seq), id, item, key, thread, attempts, token
"""  # noqa: S608

_TASK_COMPLETE: Final = """
UPDATE rxlanggraph_tasks SET state = 'completed', result = $5
WHERE queue = (SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2)
    AND id = $3 AND token = $4::bigint AND thread IS NULL
    AND (state = 'ready' OR state = 'claimed'
        AND (attempts < max_attempts OR due > rxlanggraph_now()))
RETURNING true
"""

_SHORTCUTS: Final = {
    "increment": _INCREMENT,
    "task_complete": _TASK_COMPLETE,
}
_CLAIMS: Final = {"task_claim": _TASK_CLAIM, "tasks_claim": _TASKS_CLAIM}


# Seconds: a guess; and more than any date.
_PERIOD: Final = 0.25
_FOREVER: Final = 1e12
_MOST_QUEUES: Final = 1_000


class Hindsight:
    """For how many seconds back claims of a queue look for tasks that fell due. Confined to a loop.

    Before these are the leases of all tasks that were completed since the last VACUUM, in an index
    through which PostgreSQL would step for each claim: thousands. So it looks through all of it
    now and then, and else at what has fallen due since; a bit more, for transactions that took
    their time: what escapes it is found the next time.

    Args:
        time: The clock of the loop.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._looked: dict[tuple[str, str], float] = {}

    def seconds(self, queue: tuple[str, str]) -> float:
        """Return it for a claim that is made now."""
        now = self._time()
        ago = now - self._looked.get(queue, -_FOREVER)
        if ago < _PERIOD:
            return ago + _PERIOD
        if len(self._looked) >= _MOST_QUEUES:
            self._looked.clear()
        self._looked[queue] = now
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


def shortcut(procedure: str, arguments: Sequence[Any], hindsight: float) -> Shortcut | None:
    """Return what may do instead of a call; None if nothing can. Any thread; never blocks.

    Args:
        procedure: Its name.
        arguments: Its arguments.
        hindsight: For claims, see `Hindsight`.
    """
    if procedure == "commit":
        return _replacement(*arguments)
    if (statement := _CLAIMS.get(procedure)) is not None:
        return Shortcut(statement, (*arguments, hindsight), _same)
    if (statement := _SHORTCUTS.get(procedure)) is not None:
        return Shortcut(statement, arguments, _same)
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
