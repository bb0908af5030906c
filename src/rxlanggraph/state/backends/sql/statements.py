"""The operations that are a single statement, the same on every database, and so atomic.

In the SQL that the databases have in common. A parameter is ``:name``; ``column IN :names`` tests
whether a column is among the many names in one parameter. A database translates these two into its
own SQL. An operation that needs more than one statement is a procedure of the database.
"""

# ruff: noqa: S608 - no statement contains user input

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "DEAD",
    "DEAD_PAGE",
    "KEYS_PAGE",
    "LOCKS_PAGE",
    "LOCK_RELEASE",
    "LOCK_RENEW",
    "PARAMETER",
    "QUEUES_PAGE",
    "READ",
    "READ_ONE",
    "RESULTS",
    "RESULTS_PAGE",
    "TASKS_COUNT",
    "TASKS_PAGE",
    "TASK_READ",
    "TASK_RENEW",
]

PARAMETER: Final = re.compile(r":(\w+)")


# -- keys and locks --------------------------------------------------------------------------------

_READ: Final = """
SELECT key, item, version FROM rxlanggraph_entries
WHERE namespace = :namespace AND item IS NOT NULL
    AND (expires IS NULL OR expires > rxlanggraph_now()) AND """
READ: Final = f"{_READ}key IN :names"
# With one key, IN would take longer than the rest of the read.
READ_ONE: Final = f"{_READ}key = :name"

LOCK_RENEW: Final = """
UPDATE rxlanggraph_locks SET expires = rxlanggraph_now() + :ttl
WHERE namespace = :namespace AND key = :name AND token = :token AND expires > rxlanggraph_now()
RETURNING token
"""
# Deletes the row of an expired lease too, which is not needed; but returns that it was not held.
LOCK_RELEASE: Final = """
DELETE FROM rxlanggraph_locks
WHERE namespace = :namespace AND key = :name AND token = :token
RETURNING expires > rxlanggraph_now()
"""


# -- tasks -----------------------------------------------------------------------------------------

# States are literals and not parameters: otherwise no partial index would be used.
_OF_QUEUE: Final = """queue = (
    SELECT id FROM rxlanggraph_queues WHERE namespace = :namespace AND name = :queue_name
)"""
_CLOCK: Final = "WITH clock AS (SELECT rxlanggraph_now() AS moment)"  # one moment for all rows
# Literally the condition of a partial index, which is used only then.
_TIMED: Final = "state IN ('delayed', 'claimed')"

# A task that was swept back to ready is claimed again, as the same attempt.
TASK_RENEW: Final = f"""
UPDATE rxlanggraph_tasks SET state = 'claimed', due = rxlanggraph_now() + :ttl
WHERE {_OF_QUEUE} AND id = :task_id AND token = :token
    AND (state = 'ready'
        OR state = 'claimed' AND (due > rxlanggraph_now() OR attempts < max_attempts))
RETURNING seq
"""

_DEAD_COLUMNS: Final = """
    id, item, key, thread, attempts, coalesce(worker, ''),
    CASE WHEN state = 'dead' THEN error END"""
_OVERDUE: Final = "state = 'claimed' AND due <= moment"
_USED_UP: Final = f"{_OVERDUE} AND attempts >= max_attempts"

DEAD: Final = f"""
{_CLOCK}
SELECT {_DEAD_COLUMNS}
FROM rxlanggraph_tasks, clock
WHERE {_OF_QUEUE} AND (state = 'dead' OR {_USED_UP}) AND key IN :names
ORDER BY seq
"""

# The first of the tasks marked dead, and all tasks that are dead but were not swept yet.
DEAD_PAGE: Final = f"""
{_CLOCK}
SELECT {_DEAD_COLUMNS}, seq
FROM rxlanggraph_tasks
WHERE seq IN (
    SELECT seq FROM (
        SELECT seq FROM rxlanggraph_tasks
        WHERE {_OF_QUEUE} AND state = 'dead' AND seq > :after
        ORDER BY seq LIMIT :limit
    ) AS known
    UNION ALL
    SELECT seq FROM rxlanggraph_tasks, clock
    WHERE {_OF_QUEUE} AND {_TIMED} AND {_USED_UP} AND seq > :after
)
ORDER BY seq LIMIT :limit
"""

# Results of named tasks, by ids or by keys.
RESULTS: Final = {
    name: f"""
SELECT {name}, result FROM rxlanggraph_tasks
WHERE {_OF_QUEUE} AND state = 'completed' AND {name} IN :names
"""
    for name in ("id", "key")
}

# Reads a fixed number of tasks, completed or not, so that every page takes the same time.
RESULTS_PAGE: Final = f"""
SELECT id, CASE WHEN state = 'completed' THEN result END FROM rxlanggraph_tasks
WHERE {_OF_QUEUE} AND id > :after
ORDER BY id LIMIT :limit
"""


# Each part counts the entries of one index. Only claimed tasks are read, which are few.
_COUNTS: Final = (
    ("all", "true"),
    ("waiting", "state = 'ready'"),
    ("waiting", "state = 'blocked' AND due <= moment"),
    ("delayed", "state = 'blocked' AND due > moment"),
    ("waiting", f"{_TIMED} AND state = 'delayed' AND due <= moment"),
    ("delayed", f"{_TIMED} AND state = 'delayed' AND due > moment"),
    ("waiting", f"{_TIMED} AND {_OVERDUE} AND attempts < max_attempts"),
    ("dead", f"{_TIMED} AND {_USED_UP}"),
    ("expired", f"{_TIMED} AND {_USED_UP}"),
    ("dead", "state = 'dead'"),
    ("expired", "state = 'dead' AND error IS NULL"),
)
_COUNT: Final = "\n".join(
    f"""SELECT '{kind}', '', count(*) FROM rxlanggraph_tasks, clock
WHERE {_OF_QUEUE} AND {condition}
UNION ALL"""
    for kind, condition in _COUNTS
)
TASKS_COUNT: Final = f"""
{_CLOCK}
{_COUNT}
SELECT 'claimed', worker, count(*) FROM rxlanggraph_tasks, clock
WHERE {_OF_QUEUE} AND {_TIMED} AND state = 'claimed' AND due > moment
GROUP BY worker
"""


# -- looking after it ------------------------------------------------------------------------------

QUEUES_PAGE: Final = """
SELECT name FROM rxlanggraph_queues
WHERE namespace = :namespace AND name > :after
ORDER BY name LIMIT :limit
"""

# From the first key that may begin with the prefix; those after the last one are read in vain.
KEYS_PAGE: Final = """
SELECT key, version, expires - rxlanggraph_now() FROM rxlanggraph_entries
WHERE namespace = :namespace AND key > :after AND key >= :prefix AND item IS NOT NULL
    AND (expires IS NULL OR expires > rxlanggraph_now())
ORDER BY key LIMIT :limit
"""

LOCKS_PAGE: Final = """
SELECT key, token, expires - rxlanggraph_now() FROM rxlanggraph_locks
WHERE namespace = :namespace AND key > :after AND expires > rxlanggraph_now()
ORDER BY key LIMIT :limit
"""

# As if the queue had just been swept.
_SWEPT: Final = f"""
SELECT id, key, thread, priority, attempts, max_attempts, worker, due, added, claimed,
    CASE WHEN {_USED_UP} THEN due ELSE ended END AS ended,
    CASE WHEN {_USED_UP} THEN 'dead'
        WHEN {_OVERDUE} OR state IN ('ready', 'delayed', 'blocked') THEN 'waiting'
        ELSE state END AS state,
    item, result, CASE WHEN state = 'dead' THEN error END AS error
FROM rxlanggraph_tasks, clock
WHERE {_OF_QUEUE}"""


def _tasks(which: str, texts: str) -> str:
    return f"""
{_CLOCK}, swept AS ({_SWEPT} AND {which})
SELECT id, key, thread, priority, state, attempts, max_attempts, worker,
    CASE WHEN state IN ('waiting', 'claimed') THEN due - moment END,
    moment - coalesce(
        CASE state WHEN 'waiting' THEN added WHEN 'claimed' THEN claimed ELSE ended END,
        (SELECT since FROM rxlanggraph_schema), moment),
    added, claimed, ended{texts}
FROM swept, clock ORDER BY id
"""


TASKS_PAGE: Final = _tasks("id > :after ORDER BY id LIMIT :limit", "")
TASK_READ: Final = _tasks("id = :task_id", ", item, result, error")
