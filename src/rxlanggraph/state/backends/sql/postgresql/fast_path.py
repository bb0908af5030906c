"""One queue of work in PostgreSQL: what most calls come to, in one statement each.

They do what the procedures of the same names do, and keep to the same locks (procedures.sql), for
the plain case: nothing to sweep, a task without a thread. Where one finds no row, the procedure is
called.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.backends.sql.backend import Row
from rxlanggraph.state.backends.sql.batcher import Batcher
from rxlanggraph.state.backends.sql.postgresql.shortcuts import call_of

__all__ = ["Fetch", "Queue"]

Fetch: TypeAlias = "Callable[[str, Sequence[Any]], Awaitable[Sequence[Row]]]"

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
"""  # noqa: S608 - here and below: no input of anybody


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
# So often in a row nobody finds something to sweep.
_SUSPICIOUS: Final = 20


class Queue:
    """A queue whose number is known, which no other one ever has.

    To look the number up takes PostgreSQL as long as to find the next task. Confined to the loop on
    which it is made.

    Args:
        number: Its number.
        name: Its namespace and its name.
        fetch: Runs a statement, and returns the rows.
        known: All whose number is known. It enters itself, and leaves when the number turns out to
            be that of tables that are no more.
    """

    def __init__(
        self, number: int, name: tuple[str, str], fetch: Fetch, known: dict[Any, Queue]
    ) -> None:
        self.number = number
        self._name = name
        self._fetch = fetch
        self._known = known
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
        known[name] = self

    async def task_claim(self, worker: str, lease: float) -> Sequence[Row]:
        """Claim a task; with others who do so, in one statement for all of them."""
        try:
            while (row := await self._claims.call((worker, lease))) is _AGAIN:
                pass  # each time somebody has claimed one, or some were swept, so this ends
        except StateUnavailableError as error:
            # Each has an error of its own, and may note on it what became of its attempts.
            raise StateUnavailableError(str(error), in_doubt=error.in_doubt) from error
        return [] if row is None else [row]

    async def task_complete(self, task_id: str, token: int, result: str) -> Sequence[Row]:
        """Complete a task; one row: whether it is complete."""
        arguments = (task_id, token, result)
        rows = await self._fetch(_COMPLETE, (self.number, *arguments))
        return rows or await self._call("task_complete", *arguments)

    async def _claim(self, claims: Sequence[tuple[str, float]]) -> Sequence[Row | None]:
        if len(claims) == 1:
            rows = await self._look(_CLAIM, *claims[0])
            rows = rows or await self._sweep("task_claim", *claims[0])
            return [_AGAIN if row[0] is None else row for row in rows] or [None]
        each = [*map(list, zip(*claims, strict=True))]
        claimed = {place: row for place, *row in await self._look(_CLAIM_MANY, *each)}
        # What has been claimed is handed out first, whatever becomes of a second look.
        missing = _AGAIN if claimed else None
        if not claimed:
            claimed = {place: row for place, *row in await self._sweep("tasks_claim", *each)}
            missing = _AGAIN if None in claimed else None
        return [claimed.get(place, missing) for place in range(1, len(claims) + 1)]

    async def _look(self, claims: _Claims, *arguments: Any) -> Sequence[Row]:
        """Claim, where nothing has fallen due as far as one looks.

        Long ago fell due the leases of all tasks that were completed since the last VACUUM, in an
        index through which PostgreSQL would step for each claim: thousands. So claims look through
        all of it now and then, and else at what has fallen due since; a bit more, for transactions
        that took their time: what escapes them is found the next time.

        In the same way it would step over all that was claimed. It does so once, and notes that
        nobody needs to look there; but not while somebody has a transaction open in which those
        tasks are still to be seen. Where that makes every full look slow, the looks between them
        begin behind the last task that was claimed here.
        """
        now = self._time()
        ago = now - self._looked
        is_full = ago >= self._period
        hindsight = _FOREVER if is_full else ago + _PERIOD
        bounds = (self.number, *arguments, hindsight)
        rows: Sequence[Row] = []
        if self._mark is not None and not is_full:
            rows = await self._fetch(claims.behind, (*bounds, *self._mark))
        if not rows:
            rows = await self._fetch(claims.any, bounds)
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
        if self._swept == _SUSPICIOUS and self._known.get(self._name) is self:
            del self._known[self._name]
        return rows

    async def _call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        every = (*self._name, *arguments)
        return await self._fetch(call_of(procedure, len(every)), every)


def _last(rows: Sequence[Row]) -> tuple[int, int]:
    """Return priority and place of the last one of the tasks that were claimed."""
    return max(((row[-3], row[-2]) for row in rows), key=lambda place: (-place[0], place[1]))
