"""What most calls come to, in one statement each; where it finds no row, the procedure is called.

A procedure costs PostgreSQL several times as much as a statement. The statements here do what the
procedures of the same names do, and keep to the same locks (procedures.sql), for the plain case:
one value, a counter that is one and goes on being one; of a queue a task without a thread, where
there is nothing to sweep.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.backends.sql.backend import Row
from rxlanggraph.state.backends.sql.batcher import Batcher
from rxlanggraph.state.backends.sql.postgresql.pool import Pool

__all__ = ["FastPath", "QueueFastPath"]

# -- values ----------------------------------------------------------------------------------------

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
    item = excluded.item, version = excluded.version, expires = NULL, forget = NULL,
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
    fence = coalesce(excluded.fence, e.fence),
    forget = rxlanggraph_forget(e.expires, coalesce(excluded.fence, e.fence))
WHERE e.item ~ '^-?[0-9]{1,18}$' AND $3 BETWEEN -1000000000000000000 AND 1000000000000000000
    AND (e.expires IS NULL OR e.expires > rxlanggraph_now())
    AND (e.fence <= $4) IS NOT FALSE
RETURNING 'done', e.item::bigint
"""


class _Shortcut(NamedTuple):
    """A statement that may do instead of a procedure.

    Attributes:
        statement: What it is.
        arguments: What it takes.
        answer: Makes of its rows what the procedure would return; no row: it has done nothing.
    """

    statement: str
    arguments: Sequence[Any]
    answer: Callable[[Sequence[Row]], Sequence[Row]]


def _shortcut(procedure: str, arguments: Sequence[Any]) -> _Shortcut | None:
    """Return what may do instead of a call; None if nothing can. Any thread; never blocks."""
    if procedure == "commit":
        return _replacement(*arguments)
    if procedure == "increment":
        return _Shortcut(_INCREMENT, arguments, _same)
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
) -> _Shortcut | None:
    """For one value that is set for good, where nothing beside it is looked at.

    Without arrays, which the driver takes apart and puts together in Python.
    """
    if len(names) != 1 or None in items or ttls != [None] or checked not in ([], names):
        return None
    version = expected[0] if checked else None
    return _Shortcut(_COMMIT, (namespace, *names, *items, *tokens, version), _replaced)


def _replaced(rows: Sequence[Row]) -> Sequence[Row]:
    return [("done", None, [before], [after]) for before, after in rows]


# -- one queue -------------------------------------------------------------------------------------

# Of one moment for the whole statement: so that an index can be searched for it. Not by extract(),
# which takes a number with decimals on the way.
_NOW: Final = "date_part('epoch', statement_timestamp())"
_OVERDUE: Final = f"""(
    SELECT FROM rxlanggraph_tasks
    WHERE queue = $1
        AND state IN ('delayed', 'claimed')
        AND due <= {_NOW} AND due > {_NOW} - $4::double precision
)"""

# Which of those that are ready: any, or those behind one that was claimed.
_ANY: Final = "state = 'ready' ORDER BY priority DESC, seq"
_BEHIND: Final = "state = 'ready' AND priority = $5 AND seq > $6 ORDER BY seq"
# Besides the task: where it stands, and for how many seconds the server has been looking.
_BESIDES: Final = 3
_WHERE: Final = "priority, seq, date_part('epoch', clock_timestamp() - statement_timestamp())"


def _claim_of(which: str) -> str:
    return f"""
UPDATE rxlanggraph_tasks SET
    state = 'claimed', attempts = attempts + 1, worker = $2,
    token = nextval('rxlanggraph_counter'),
    due = date_part('epoch', clock_timestamp()) + $3::double precision
WHERE seq = (
    SELECT seq FROM rxlanggraph_tasks
    WHERE queue = $1
        AND {which} LIMIT 1
    FOR UPDATE SKIP LOCKED
) AND NOT EXISTS {_OVERDUE}
RETURNING id, item, key, thread, attempts, token, {_WHERE}
"""  # noqa: S608 - here and below: no user input


def _claims_of(which: str) -> str:
    return f"""
WITH first AS MATERIALIZED (SELECT ARRAY(
    SELECT seq FROM rxlanggraph_tasks
    WHERE queue = $1
        AND {which} LIMIT cardinality($2::text[])
    FOR UPDATE SKIP LOCKED
) AS seqs)
UPDATE rxlanggraph_tasks SET
    state = 'claimed', attempts = attempts + 1, worker = ($2)[array_position(seqs, seq)],
    token = nextval('rxlanggraph_counter'),
    due = rxlanggraph_now() + ($3::double precision[])[array_position(seqs, seq)]
FROM first
WHERE seq = ANY (seqs) AND NOT EXISTS {_OVERDUE}
RETURNING array_position(seqs, seq), id, item, key, thread, attempts, token, {_WHERE}
"""  # noqa: S608


class _Claims(NamedTuple):
    """The statements that claim: of all that is ready, and of what is ready behind a task."""

    any: str
    behind: str


_CLAIM: Final = _Claims(_claim_of(_ANY), _claim_of(_BEHIND))
_CLAIM_MANY: Final = _Claims(_claims_of(_ANY), _claims_of(_BEHIND))

_COMPLETE: Final = """
UPDATE rxlanggraph_tasks SET state = 'completed', result = $4
WHERE queue = $1 AND id = $2 AND token = $3::bigint AND thread IS NULL
    AND (state = 'ready' OR state = 'claimed'
        AND (attempts < max_attempts OR due > rxlanggraph_now()))
RETURNING true
"""

# Seconds: a guess; and more than any date.
_PERIOD: Final = 0.25
_FOREVER: Final = 1e12
# Full looks are slow if so many in a row took the server so many seconds, and so many times as long
# as the fastest. Then there is that much more time between them than they take. Guesses.
_MEASURED: Final = 8
_SLOW: Final = 0.0003
_TIMES_SLOWER: Final = 3
_TIMES_AS_LONG: Final = 20
# Instead of a task: others got theirs, or there is more to sweep; there may be one.
_AGAIN: Final[Row] = []
# Instead of a task: another transaction is claiming or sweeping, and may leave one.
_HELD: Final[Row] = []
# Seconds to wait for that transaction, each time; after the last one there is nothing to claim.
# Ours take milliseconds, but a user's may have locked a row for long.
_PAUSES: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
# No queue has something to sweep so often in a row.
_SUSPICIOUS: Final = 20


@cache
def _call_of(procedure: str, count: int) -> str:
    """Return the statement that calls a procedure with so many arguments. Any thread."""
    places = ", ".join(f"${place}" for place in range(1, count + 1))
    return f"SELECT * FROM rxlanggraph_{procedure}({places})"  # noqa: S608 - no user input


class QueueFastPath:
    """A queue whose number is known, which no other one ever has.

    To look the number up takes PostgreSQL as long as to find the next task. Confined to the loop on
    which it is made.

    Args:
        number: Its number.
        name: Its namespace and its name.
        pool: Runs statements.
    """

    def __init__(self, number: int, name: tuple[str, str], pool: Pool) -> None:
        self.number = number
        self._name = name
        self._pool = pool
        self._time = asyncio.get_running_loop().time
        self._looked = -_FOREVER
        self._period = _PERIOD
        # Seconds that the server took for the last full looks.
        self._took: deque[float] = deque(maxlen=_MEASURED)
        self._fastest = _FOREVER
        # The task behind which looks begin that are not full; None: they begin at the first one.
        self._mark: tuple[int, int] | None = None
        self._swept = 0  # claims in a row that only the procedure could make
        # The worker and the lease of each.
        self._claims: Batcher[tuple[str, float], Row | None] = Batcher(self._claim)

    @property
    def is_suspicious(self) -> bool:
        """Whether the number may be that of tables that no longer exist: look it up again."""
        return self._swept >= _SUSPICIOUS

    async def task_claim(self, worker: str, lease: float) -> Sequence[Row]:
        """Claim a task; concurrent claims share one statement."""
        pauses = iter(_PAUSES)
        try:
            while (row := await self._claims.call((worker, lease))) is _AGAIN or row is _HELD:
                # After _AGAIN at once: a task was claimed, or some were swept, so this ends.
                if row is _HELD:
                    if (pause := next(pauses, None)) is None:
                        return []
                    await asyncio.sleep(pause)
        except StateUnavailableError as error:
            # Each caller gets an error of its own, to which it may add notes about its attempts.
            raise StateUnavailableError(str(error), in_doubt=error.in_doubt) from error
        return [] if row is None else [row]

    async def task_complete(self, task_id: str, token: int, result: str) -> Sequence[Row]:
        """Complete a task; one row: whether it is complete."""
        arguments = (task_id, token, result)
        rows = await self._pool.fetch(_COMPLETE, (self.number, *arguments))
        return rows or await self._call("task_complete", *arguments)

    async def _claim(self, claims: Sequence[tuple[str, float]]) -> Sequence[Row | None]:
        if len(claims) == 1:
            rows = await self._look(_CLAIM, *claims[0])
            rows = rows or await self._sweep("task_claim", *claims[0])
            return [_instead_of(row) if row[0] is None else row for row in rows] or [None]
        each = [*map(list, zip(*claims, strict=True))]
        claimed = {place: row for place, *row in await self._look(_CLAIM_MANY, *each)}
        # What has been claimed is handed out first, whatever becomes of a second look.
        missing = _AGAIN if claimed else None
        if not claimed:
            claimed = {place: row for place, *row in await self._sweep("tasks_claim", *each)}
            missing = _instead_of(claimed[None]) if None in claimed else None
        return [claimed.get(place, missing) for place in range(1, len(claims) + 1)]

    async def _look(self, claims: _Claims, *arguments: Any) -> Sequence[Row]:
        """Claim, where nothing has fallen due as far as one looks.

        Long ago fell due the leases of all tasks that were completed since the last VACUUM, in an
        index through which PostgreSQL would step for each claim: thousands. So claims look through
        all of it now and then, and else at what has fallen due since; a bit more, for transactions
        that took their time: what escapes them is found the next time.

        In the same way it would step over all that was claimed. It does so once, and notes that
        there is nothing to find; but not while a transaction is open that still sees those tasks.
        Where that makes every full look slow, the looks between them begin behind the last task
        that was claimed here.
        """
        now = self._time()
        ago = now - self._looked
        is_full = ago >= self._period
        hindsight = _FOREVER if is_full else ago + _PERIOD
        bounds = (self.number, *arguments, hindsight)
        rows: Sequence[Row] = []
        if self._mark is not None and not is_full:
            rows = await self._pool.fetch(claims.behind, (*bounds, *self._mark))
        if not rows:
            rows = await self._pool.fetch(claims.any, bounds)
        if is_full:
            self._looked = now
            self._measure(rows)
        if not rows:
            return rows
        self._swept = 0
        if self._mark is not None:
            self._mark = _last(rows)
        return [row[:-_BESIDES] for row in rows]

    def _measure(self, rows: Sequence[Row]) -> None:
        """Note how long a full look took, and whether the next ones are to be short."""
        if rows:
            self._took.append(rows[0][-1])
            self._fastest = min(self._fastest, rows[0][-1])
        slow = max(_SLOW, _TIMES_SLOWER * self._fastest)
        is_slow = len(self._took) == _MEASURED and min(self._took) > slow
        self._mark = _last(rows) if rows and is_slow else None
        self._period = max(_PERIOD, _TIMES_AS_LONG * self._took[-1]) if is_slow else _PERIOD

    async def _sweep(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        """Claim, after what has fallen due was made ready."""
        rows = await self._call(procedure, *arguments)
        self._swept += bool(rows)
        return rows

    async def _call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        every = (*self._name, *arguments)
        return await self._pool.fetch(_call_of(procedure, len(every)), every)


def _instead_of(task: Row) -> Row:
    """Return what to do after a row that has no task, but its `attempts`."""
    return _HELD if task[4] else _AGAIN


def _last(rows: Sequence[Row]) -> tuple[int, int]:
    """Return priority and place of the last one of the tasks that were claimed."""
    return max(((row[-3], row[-2]) for row in rows), key=lambda place: (-place[0], place[1]))


# -- all procedures --------------------------------------------------------------------------------

_QUEUE: Final = "SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2"
_MOST_QUEUES: Final = 1_000
_IN_QUEUES: Final[Mapping[str, Callable[..., Coroutine[Any, Any, Sequence[Row]]]]] = {
    "task_claim": QueueFastPath.task_claim,
    "task_complete": QueueFastPath.task_complete,
}


class FastPath:
    """Calls procedures, by way of a statement where one will do. Confined to the loop of the pool.

    Args:
        pool: Runs statements.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # By namespace and name.
        self._queues: dict[tuple[Any, ...], QueueFastPath] = {}

    def call(self, procedure: str, *arguments: Any) -> Coroutine[Any, Any, Sequence[Row]]:
        """Call a procedure; return its rows."""
        if procedure not in _IN_QUEUES:
            return self._call(procedure, *arguments)
        queue = self._queues.get(arguments[:2])
        if queue is None or queue.is_suspicious:
            return self._call_in(procedure, *arguments)
        return _IN_QUEUES[procedure](queue, *arguments[2:])

    async def _call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        short = _shortcut(procedure, arguments)
        if short is not None:
            rows = await self._pool.fetch(short.statement, short.arguments)
            if rows:
                return short.answer(rows)
        return await self._pool.fetch(_call_of(procedure, len(arguments)), arguments)

    async def _call_in(
        self, procedure: str, space: str, name: str, *arguments: Any
    ) -> Sequence[Row]:
        """Call a procedure for a queue, whose number is looked up first."""
        try:
            rows = await self._pool.fetch(_QUEUE, (space, name))
        except StateUnavailableError as error:
            error.in_doubt = False  # of what it was asked for
            raise
        if not rows:
            self._queues.pop((space, name), None)
            return await self._call(procedure, space, name, *arguments)
        if len(self._queues) >= _MOST_QUEUES:
            self._queues.clear()
        # Others may have looked it up meanwhile, and wait for each other in theirs.
        queue = self._queues.get((space, name))
        if queue is None or queue.is_suspicious:
            queue = QueueFastPath(rows[0][0], (space, name), self._pool)
            self._queues[space, name] = queue
        return await _IN_QUEUES[procedure](queue, *arguments)
