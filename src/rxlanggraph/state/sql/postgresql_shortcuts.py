"""What most calls come to, in one statement each; where it finds no row, the procedure is called.

A procedure costs PostgreSQL several times as much as a statement. These do what the procedures of
the same names do, and keep to the same locks (postgresql.sql), for the plain case: one value, a
counter that is one and goes on being one, a queue with nothing to sweep, a task without a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

__all__ = ["shortcut"]

# What is locked here is in its latest state, also where it was changed since the statement began;
# what was made since then is not seen: the last condition finds that.
_COMMIT: Final = """
WITH held AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(1920494187, hashtext($1 || '/' || ($2::text[])[1]) & 1023)
), old AS MATERIALIZED (
    SELECT e.version, CASE
        WHEN e.item IS NOT NULL AND (e.expires IS NULL OR e.expires > rxlanggraph_now())
        THEN e.version ELSE 0 END AS seen
    FROM held CROSS JOIN rxlanggraph_entries AS e
    WHERE e.namespace = $1 AND e.key = ($2)[1]
    FOR UPDATE OF e
)
INSERT INTO rxlanggraph_entries AS e (namespace, key, item, version, fence)
SELECT $1, ($2)[1], ($3::text[])[1], nextval('rxlanggraph_counter'), ($5::bigint[])[1]
FROM held LEFT JOIN old ON true
WHERE ($4::double precision[])[1] IS NULL
    AND (cardinality($6::text[]) = 0 OR coalesce(old.seen, 0) = ($7::bigint[])[1])
ON CONFLICT (namespace, key) DO UPDATE SET
    item = excluded.item, version = excluded.version, expires = NULL,
    fence = coalesce(excluded.fence, e.fence)
WHERE (e.fence <= excluded.fence) IS NOT FALSE AND e.version = (SELECT version FROM old)
RETURNING 'done', NULL, ARRAY[coalesce((SELECT seen FROM old), 0)], ARRAY[e.version]
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

_TASK_CLAIM: Final = """
UPDATE rxlanggraph_tasks SET
    state = 'claimed', attempts = attempts + 1, worker = $3,
    token = nextval('rxlanggraph_counter'), due = rxlanggraph_now() + $4::double precision
WHERE seq = (
    SELECT seq FROM rxlanggraph_tasks
    WHERE queue = (SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2)
        AND state = 'ready'
    ORDER BY priority DESC, seq LIMIT 1
    FOR UPDATE SKIP LOCKED
) AND NOT EXISTS (
    SELECT FROM rxlanggraph_tasks
    WHERE queue = (SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2)
        AND state IN ('delayed', 'claimed') AND due <= (SELECT rxlanggraph_now())
)
RETURNING id, item, key, thread, attempts, token
"""

_TASKS_CLAIM: Final = """
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
WHERE seq = ANY (seqs) AND NOT EXISTS (
    SELECT FROM rxlanggraph_tasks
    WHERE queue = (SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2)
        AND state IN ('delayed', 'claimed') AND due <= (SELECT rxlanggraph_now())
)
RETURNING array_position(seqs, seq), id, item, key, thread, attempts, token
"""

_TASK_COMPLETE: Final = """
UPDATE rxlanggraph_tasks SET state = 'completed', result = $5
WHERE queue = (SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2)
    AND id = $3 AND token = $4::bigint AND thread IS NULL
    AND (state = 'ready' OR state = 'claimed'
        AND (attempts < max_attempts OR due > rxlanggraph_now()))
RETURNING true
"""

_SHORTCUTS: Final = {
    "commit": _COMMIT,
    "increment": _INCREMENT,
    "task_claim": _TASK_CLAIM,
    "tasks_claim": _TASKS_CLAIM,
    "task_complete": _TASK_COMPLETE,
}


def shortcut(procedure: str, arguments: Sequence[Any]) -> str | None:
    """Return the statement that may do instead of a procedure; None if there is none.

    It takes the same arguments and returns the same rows, or none; of claims fewer where there are
    no more that nobody else is about to have. Any thread; never blocks.
    """
    if procedure == "commit" and not _is_plain(*arguments):
        return None
    return _SHORTCUTS.get(procedure)


def _is_plain(
    _namespace: str,
    names: Sequence[str],
    items: Sequence[str | None],
    ttls: Sequence[float | None],
    _tokens: Sequence[int | None],
    checked: Sequence[str],
    _expected: Sequence[int],
) -> bool:
    """Whether one value is set for good, and nothing beside it is looked at."""
    return len(names) == 1 and None not in items and ttls == [None] and checked in ([], names)
