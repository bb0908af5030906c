"""One statement instead of a procedure, for the common cases; the procedure if it finds no row.

A procedure costs PostgreSQL several times as much as a statement. Each statement here does what the
procedure of the same name does, under the same locks (procedures.sql), in the common case: one
value; a counter that exists, does not expire and does not overflow; a task without a thread, in a
queue with nothing to sweep.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.backends.sql.backend import Row
from rxlanggraph.state.backends.sql.postgresql.arrivals import TELL, TELLING
from rxlanggraph.state.backends.sql.postgresql.batcher import Batcher
from rxlanggraph.state.backends.sql.postgresql.pool import Pool

__all__ = ["FastPath", "QueueFastPath"]

_C = TypeVar("_C")

# -- values ----------------------------------------------------------------------------------------

# A row that is locked here is seen in its latest version, even if that is newer than the statement;
# a row inserted since then is not seen, but conflicts, and fails the last condition.
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

# The version is drawn under the lock of the name, so that a later write has a larger one.
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
    """A statement to try instead of a procedure.

    Attributes:
        statement: The statement. If it returns no row, it has done nothing.
        arguments: Its arguments.
        answer: Turns its rows into those of the procedure.
    """

    statement: str
    arguments: Sequence[Any]
    answer: Callable[[Sequence[Row]], Sequence[Row]]


def _shortcut_for(procedure: str, arguments: Sequence[Any]) -> _Shortcut | None:
    """Return the statement to try instead of a call, or None. Any thread; never blocks."""
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
    """Return the statement for setting one value that does not expire, if no other key is checked.

    It has no arrays, which the driver encodes and decodes in Python.
    """
    if len(names) != 1 or None in items or ttls != [None] or checked not in ([], names):
        return None
    version = expected[0] if checked else None
    return _Shortcut(_COMMIT, (namespace, *names, *items, *tokens, version), _replaced)


def _replaced(rows: Sequence[Row]) -> Sequence[Row]:
    return [("done", None, [before], [after]) for before, after in rows]


# -- one queue -------------------------------------------------------------------------------------

# Constant within the statement, so that an index can be searched for it. Not extract(), which
# converts to numeric on the way.
_NOW: Final = "date_part('epoch', statement_timestamp())"
_OVERDUE: Final = f"""(
    SELECT FROM rxlanggraph_tasks
    WHERE queue = $1
        AND state IN ('delayed', 'claimed')
        AND due <= {_NOW} AND due > {_NOW} - $4::double precision
)"""

# The ready tasks to claim: any, or those behind one that was claimed.
_ANY: Final = "state = 'ready' ORDER BY priority DESC, seq"
_BEHIND: Final = "state = 'ready' AND priority = $5 AND seq > $6 ORDER BY seq"
# Extra columns after those of the task: its position, and the seconds that the search has taken.
_EXTRA_COLUMNS: Final = 3
_POSITION: Final = "priority, seq, date_part('epoch', clock_timestamp() - statement_timestamp())"


def _claim_statement(which: str) -> str:
    return f"""
UPDATE rxlanggraph_tasks SET
    state = 'claimed', attempts = attempts + 1, worker = $2,
    token = nextval('rxlanggraph_counter'),
    due = date_part('epoch', clock_timestamp()) + $3::double precision,
    claimed = date_part('epoch', clock_timestamp())
WHERE seq = (
    SELECT seq FROM rxlanggraph_tasks
    WHERE queue = $1
        AND {which} LIMIT 1
    FOR UPDATE SKIP LOCKED
) AND NOT EXISTS {_OVERDUE}
RETURNING id, item, key, thread, attempts, token, {_POSITION}
"""  # noqa: S608 - here and below: no user input


def _claims_statement(which: str) -> str:
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
    due = rxlanggraph_now() + ($3::double precision[])[array_position(seqs, seq)],
    claimed = rxlanggraph_now()
FROM first
WHERE seq = ANY (seqs) AND NOT EXISTS {_OVERDUE}
RETURNING array_position(seqs, seq), id, item, key, thread, attempts, token, {_POSITION}
"""  # noqa: S608


class _Claims(NamedTuple):
    """The statements that claim: any ready task, and one behind a given task."""

    any: str
    behind: str


_CLAIM: Final = _Claims(_claim_statement(_ANY), _claim_statement(_BEHIND))
_CLAIM_MANY: Final = _Claims(_claims_statement(_ANY), _claims_statement(_BEHIND))

_COMPLETE: Final = """
UPDATE rxlanggraph_tasks SET state = 'completed', result = $4, ended = rxlanggraph_now()
WHERE queue = $1 AND id = $2 AND token = $3::bigint AND thread IS NULL
    AND (state = 'ready' OR state = 'claimed'
        AND (attempts < max_attempts OR due > rxlanggraph_now()))
RETURNING true
"""

# Seconds: a guess; and more than any date.
_FULL_SEARCH_INTERVAL: Final = 0.25
_FOREVER: Final = 1e12
# Full searches count as slow if the last _MEASURED of them took more than _SLOW seconds each, and
# more than _TIMES_SLOWER times as long as the fastest. The interval between them is then
# _TIMES_AS_LONG times as long as a search. Guesses.
_MEASURED: Final = 8
_SLOW: Final = 0.0003
_TIMES_SLOWER: Final = 3
_TIMES_AS_LONG: Final = 20
# Instead of tasks: claim again, as there may be one. Other claims got theirs, or more has to be
# swept.
_AGAIN: Final[Sequence[Row]] = ["again"]
# Instead of tasks: another transaction holds some, and may leave one.
_HELD: Final[Sequence[Row]] = ["held"]
# Seconds to wait for that transaction; after the last pause there is nothing to claim. Transactions
# of a state are short, but one of a user may have locked a row for long.
_PAUSES: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
# More sweeps in a row than any queue needs.
_MAX_SWEEPS: Final = 20


# A worker, a lease, and how many tasks it claims.
_ClaimCall: TypeAlias = "tuple[str, float, int]"


@cache
def _call_statement(procedure: str, count: int) -> str:
    """Return the statement that calls a procedure with ``count`` arguments. Any thread."""
    places = ", ".join(f"${place}" for place in range(1, count + 1))
    tell = f", {TELL}" if procedure in TELLING else ""
    return f"SELECT called.*{tell} FROM rxlanggraph_{procedure}({places}) AS called"  # noqa: S608 - no user input


async def _call_procedure(pool: Pool, procedure: str, arguments: Sequence[Any]) -> Sequence[Row]:
    """Call a procedure; tell other processes if it may have made a task claimable."""
    rows = await pool.fetch(_call_statement(procedure, len(arguments)), arguments)
    return [row[:-1] for row in rows] if procedure in TELLING else rows


class QueueFastPath:
    """A queue whose number is known: numbers are not reused.

    Looking the number up takes PostgreSQL as long as finding the next task. Confined to the loop on
    which it is made.

    Args:
        number: The number of the queue.
        name: Its namespace and its name.
        pool: Runs statements.
    """

    def __init__(self, number: int, name: tuple[str, str], pool: Pool) -> None:
        self.number = number
        self._name = name
        self._pool = pool
        self._time = asyncio.get_running_loop().time
        self._searched_at = -_FOREVER
        self._interval = _FULL_SEARCH_INTERVAL
        # Seconds that the last full searches took the server.
        self._durations: deque[float] = deque(maxlen=_MEASURED)
        self._fastest = _FOREVER
        # The task behind which searches begin that are not full; None: they begin at the first.
        self._last_claimed: tuple[int, int] | None = None
        self._sweeps = 0  # claims in a row that only the procedure could make
        self._claims: Batcher[_ClaimCall, Sequence[Row]] = Batcher(self._claim)
        self._claims_within: Batcher[tuple[_ClaimCall, int], Sequence[Row]] = Batcher(
            self._claim_within
        )
        # Whether claims here have a limit, so that completed tasks are told to other processes.
        self._is_limited = False

    @property
    def may_be_stale(self) -> bool:
        """Whether the number may be stale, as the tables were recreated: look it up again."""
        return self._sweeps >= _MAX_SWEEPS

    async def task_claim(self, worker: str, lease: float) -> Sequence[Row]:
        """Claim a task; concurrent claims share one statement."""
        return await self.tasks_claim(worker, lease, 1)

    async def tasks_claim(self, worker: str, lease: float, count: int) -> Sequence[Row]:
        """Claim up to ``count`` tasks; concurrent claims share one statement."""
        return await self._until_known(self._claims, (worker, lease, count))

    async def tasks_claim_within(
        self, worker: str, lease: float, count: int, most: int
    ) -> Sequence[Row]:
        """Claim up to ``count`` tasks, at most so many that ``most`` are claimed, by procedure."""
        self._is_limited = True
        return await self._until_known(self._claims_within, ((worker, lease, count), most))

    async def _until_known(self, claims: Batcher[_C, Sequence[Row]], call: _C) -> Sequence[Row]:
        pauses = iter(_PAUSES)
        try:
            while (rows := await claims.call(call)) is _AGAIN or rows is _HELD:
                # Claim again at once after _AGAIN: tasks were claimed or swept, so the loop ends.
                if rows is _HELD:
                    if (pause := next(pauses, None)) is None:
                        return []
                    await asyncio.sleep(pause)
        except StateUnavailableError as error:
            # Each caller of a batch needs an exception of its own, to which notes may be added.
            raise StateUnavailableError(str(error), in_doubt=error.in_doubt) from error
        return rows

    async def task_complete(self, task_id: str, token: int, result: str) -> Sequence[Row]:
        """Complete a task; return one row: whether it is complete."""
        arguments = (task_id, token, result)
        if self._is_limited:
            return await self._call("task_complete", *arguments)
        rows = await self._pool.fetch(_COMPLETE, (self.number, *arguments))
        return rows or await self._call("task_complete", *arguments)

    async def _claim(self, claims: Sequence[_ClaimCall]) -> Sequence[Sequence[Row]]:
        each = _workers_and_leases(claims)
        if len(each) == 1:
            rows = await self._claim_ready(_CLAIM, *each[0])
            rows = rows or await self._sweep("task_claim", *each[0])
            return [_next_action(rows[0]) if rows and rows[0][0] is None else rows]
        many = [*map(list, zip(*each, strict=True))]
        claimed = {place: row for place, *row in await self._claim_ready(_CLAIM_MANY, *many)}
        # Claimed tasks are returned before a second search, which may fail.
        missing: Sequence[Row] = _AGAIN if claimed else []
        if not claimed:
            claimed = {place: row for place, *row in await self._sweep("tasks_claim", *many)}
            missing = _next_action(claimed[None]) if None in claimed else []
        return _shared(claims, claimed, missing)

    async def _claim_within(
        self, limited: Sequence[tuple[_ClaimCall, int]]
    ) -> Sequence[Sequence[Row]]:
        claims = [claim for claim, _ in limited]
        many = map(list, zip(*_workers_and_leases(claims), strict=True))
        # A state has one limit; those of a batch differ only if it has just been changed.
        most = min(most for _, most in limited)
        rows = await self._call("tasks_claim_within", *many, most)
        claimed = {place: row for place, *row in rows}
        if None in claimed:
            return _shared(claims, {}, _next_action(claimed[None]))
        return _shared(claims, claimed, _AGAIN if claimed else [])

    async def _claim_ready(self, claims: _Claims, *arguments: Any) -> Sequence[Row]:
        """Claim ready tasks, unless a task is overdue within the searched part of the due dates.

        Until the next VACUUM, the index of due dates has entries of completed tasks, all of them
        overdue, and each claim would step over them. So a claim searches the whole index only once
        per interval (a full search), and otherwise the tasks that have fallen due since then; plus
        some time before, for transactions that were slow to commit. An overdue task that is missed
        is found by the next full search.

        The index of ready tasks likewise has entries of tasks that were claimed. PostgreSQL marks
        them dead when it first steps over them, unless an open transaction still sees those tasks.
        If that makes full searches slow, those in between begin behind the last task claimed here.
        """
        now = self._time()
        ago = now - self._searched_at
        is_full = ago >= self._interval
        hindsight = _FOREVER if is_full else ago + _FULL_SEARCH_INTERVAL
        bounds = (self.number, *arguments, hindsight)
        rows: Sequence[Row] = []
        if self._last_claimed is not None and not is_full:
            rows = await self._pool.fetch(claims.behind, (*bounds, *self._last_claimed))
        if not rows:
            rows = await self._pool.fetch(claims.any, bounds)
        if is_full:
            self._searched_at = now
            self._measure(rows)
        if not rows:
            return rows
        self._sweeps = 0
        if self._last_claimed is not None:
            self._last_claimed = _last_position(rows)
        return [row[:-_EXTRA_COLUMNS] for row in rows]

    def _measure(self, rows: Sequence[Row]) -> None:
        """Record how long a full search took, and choose how the next ones begin."""
        if rows:
            self._durations.append(rows[0][-1])
            self._fastest = min(self._fastest, rows[0][-1])
        slow = max(_SLOW, _TIMES_SLOWER * self._fastest)
        slow_searches = len(self._durations) == _MEASURED and min(self._durations) > slow
        self._last_claimed = _last_position(rows) if rows and slow_searches else None
        self._interval = _FULL_SEARCH_INTERVAL
        if slow_searches:
            self._interval = max(self._interval, _TIMES_AS_LONG * self._durations[-1])

    async def _sweep(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        """Claim by the procedure, which sweeps first."""
        rows = await self._call(procedure, *arguments)
        self._sweeps += bool(rows)
        return rows

    async def _call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        return await _call_procedure(self._pool, procedure, (*self._name, *arguments))


def _workers_and_leases(claims: Sequence[_ClaimCall]) -> list[tuple[str, float]]:
    """Return a worker and a lease for each task."""
    return [(worker, lease) for worker, lease, count in claims for _ in range(count)]


def _shared(
    claims: Sequence[_ClaimCall], claimed: Mapping[int, Row], missing: Sequence[Row]
) -> list[Sequence[Row]]:
    """Return for each claim its tasks, by their places; or ``missing`` if there are none."""
    places = iter(range(1, sum(count for *_, count in claims) + 1))
    shares = [[*islice(places, count)] for *_, count in claims]
    return [[claimed[place] for place in share if place in claimed] or missing for share in shares]


def _next_action(task: Row) -> Sequence[Row]:
    """Return what to do after a row without a task: its `attempts` say whether tasks are held."""
    return _HELD if task[4] else _AGAIN


def _last_position(rows: Sequence[Row]) -> tuple[int, int]:
    """Return priority and place of the last of the claimed tasks."""
    return max(((row[-3], row[-2]) for row in rows), key=lambda place: (-place[0], place[1]))


# -- all procedures --------------------------------------------------------------------------------

_QUEUE: Final = "SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2"
_MAX_QUEUES: Final = 1_000
_IN_QUEUES: Final[Mapping[str, Callable[..., Coroutine[Any, Any, Sequence[Row]]]]] = {
    "task_claim": QueueFastPath.task_claim,
    "tasks_claim": QueueFastPath.tasks_claim,
    "tasks_claim_within": QueueFastPath.tasks_claim_within,
    "task_complete": QueueFastPath.task_complete,
}


class FastPath:
    """Calls procedures, or a statement that does the same. Confined to the loop of the pool.

    Args:
        pool: Runs statements.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # By namespace and queue name.
        self._queues: dict[tuple[Any, ...], QueueFastPath] = {}

    def call(self, procedure: str, *arguments: Any) -> Coroutine[Any, Any, Sequence[Row]]:
        """Call a procedure; return its rows."""
        if procedure not in _IN_QUEUES:
            return self._call(procedure, *arguments)
        queue = self._queues.get(arguments[:2])
        if queue is None or queue.may_be_stale:
            return self._call_in(procedure, *arguments)
        return _IN_QUEUES[procedure](queue, *arguments[2:])

    async def _call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        short = _shortcut_for(procedure, arguments)
        if short is not None:
            rows = await self._pool.fetch(short.statement, short.arguments)
            if rows:
                return short.answer(rows)
        return await _call_procedure(self._pool, procedure, arguments)

    async def _call_in(
        self, procedure: str, namespace: str, name: str, *arguments: Any
    ) -> Sequence[Row]:
        """Call a procedure for a queue, after looking up its number."""
        try:
            rows = await self._pool.fetch(_QUEUE, (namespace, name))
        except StateUnavailableError as error:
            error.in_doubt = False  # only the look-up was sent
            raise
        if not rows:
            self._queues.pop((namespace, name), None)
            return await self._call(procedure, namespace, name, *arguments)
        if len(self._queues) >= _MAX_QUEUES:
            self._queues.clear()
        # A concurrent call may have looked it up too: share its object, which batches claims.
        queue = self._queues.get((namespace, name))
        if queue is None or queue.may_be_stale:
            queue = QueueFastPath(rows[0][0], (namespace, name), self._pool)
            self._queues[namespace, name] = queue
        return await _IN_QUEUES[procedure](queue, *arguments)
