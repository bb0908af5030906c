"""Shared state in a SQL database: the operations of the contract, as statements and procedures.

Each operation is one round trip and one transaction: a statement that all databases share
(`rxlanggraph.state.backends.sql.statements`), or a procedure in the language of the database
(PL/pgSQL in PostgreSQL; Python in the thread that owns the SQLite file).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import starmap
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

from rxlanggraph.state.backend import (
    ClaimedTask,
    DeadTask,
    DoneTask,
    HeldLock,
    KeyInfo,
    NewTask,
    Page,
    QueueStats,
    Step,
    StoredTask,
    StoredValue,
    TaskState,
    Write,
    WriteResult,
    counter_overflow,
    not_an_integer,
    stale_token,
)
from rxlanggraph.state.backends.sql.statements import (
    DEAD,
    DEAD_PAGE,
    KEYS_PAGE,
    LOCK_RELEASE,
    LOCK_RENEW,
    LOCKS_PAGE,
    QUEUES_PAGE,
    READ,
    READ_ONE,
    RESULTS,
    RESULTS_PAGE,
    TASK_READ,
    TASK_RENEW,
    TASKS_COUNT,
    TASKS_PAGE,
)

__all__ = ["Database", "Row", "SqlBackend"]

Row = Sequence[Any]
_ABSENT: Final = StoredValue(None, 0)


class Database(Protocol):
    """Connections to one database, which has the tables and the procedures.

    Every call is a transaction of its own: if it raises, it was rolled back (or is in doubt, see
    `StateUnavailableError`). Confined to the loop that opened it.
    """

    def run(self, statement: str, **values: Any) -> Awaitable[Sequence[Row]]:
        """Run one of the shared statements; return its rows."""

    def call(self, procedure: str, *arguments: Any) -> Awaitable[Sequence[Row]]:
        """Call a procedure; return its rows."""

    def call_with_compensation(
        self, undo: Callable[[Sequence[Row]], Awaitable[object]], procedure: str, *arguments: Any
    ) -> Awaitable[Sequence[Row]]:
        """Call a procedure; if cancelled, undo it before CancelledError is raised.

        ``undo`` takes the rows of the call. If cancelled again meanwhile, it may be omitted.
        """

    def names(self, names: Collection[str]) -> Any:
        """Return names as one parameter, for ``column IN :names``."""

    async def close(self) -> None:
        """Release all connections. Idempotent."""


class SqlBackend:
    """A `Backend` in a SQL database.

    Args:
        database: The database; closed with the backend.
        namespace: The namespace in its tables.
    """

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def close(self) -> None:
        """See `Backend.close`."""
        await self._database.close()

    # -- keys --------------------------------------------------------------------------------

    async def read(self, keys: Sequence[str]) -> list[StoredValue]:
        """See `Backend.read`."""
        database, namespace = self._database, self._namespace
        if len(keys) == 1:
            rows = await database.run(READ_ONE, namespace=namespace, name=keys[0])
        else:
            rows = await database.run(READ, namespace=namespace, names=database.names(keys))
        found = {key: StoredValue(item, version) for key, item, version in rows}
        return [found.get(key, _ABSENT) for key in keys]

    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        """See `Backend.commit`."""
        items, ttls, tokens = (
            map(list, zip(*changes.values(), strict=True)) if changes else _NO_CHANGES
        )
        outcome, key, befores, afters = await self._call_for_row(
            "commit", list(changes), items, ttls, tokens, list(checks), list(checks.values())
        )
        if outcome == "stale":
            raise stale_token(key, changes[key].token)
        if outcome == "changed":
            return None
        return dict(zip(changes, map(WriteResult, befores, afters), strict=True))

    async def increment(self, key: str, by: int, token: int | None) -> int:
        """See `Backend.increment`."""
        outcome, total = await self._call_for_row("increment", key, by, token)
        if outcome == "stale":
            raise stale_token(key, token)
        if outcome == "type":
            raise not_an_integer(key)
        if outcome == "range":
            raise counter_overflow(key)
        return int(total)

    # -- locks -------------------------------------------------------------------------------

    async def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        """See `Backend.lock_acquire`."""
        (token,) = await self._call_for_row("lock_acquire", key, owner, ttl)
        return token  # type: ignore[no-any-return]  # an integer or NULL

    async def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """See `Backend.lock_renew`."""
        rows = await self._database.run(
            LOCK_RENEW, namespace=self._namespace, name=key, token=token, ttl=ttl
        )
        return bool(rows)

    async def lock_release(self, key: str, token: int) -> bool:
        """See `Backend.lock_release`."""
        rows = await self._database.run(
            LOCK_RELEASE, namespace=self._namespace, name=key, token=token
        )
        return any(held for (held,) in rows)

    # -- work --------------------------------------------------------------------------------

    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        """See `Backend.tasks_add`."""
        if not tasks:
            return []
        (ids,) = await self._call_for_row("tasks_add", queue, *map(list, zip(*tasks, strict=True)))
        return list(ids)

    async def task_claim(
        self, queue: str, worker: str, lease: float, max_claimed: int | None = None
    ) -> ClaimedTask | None:
        """See `Backend.task_claim`."""
        if max_claimed is None:
            claimed = await self._claim("task_claim", queue, worker, lease)
        else:
            claimed = await self._claim("tasks_claim_within", queue, worker, lease, 1, max_claimed)
        return claimed[0] if claimed else None

    async def tasks_claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None = None
    ) -> list[ClaimedTask]:
        """See `Backend.tasks_claim`."""
        if max_claimed is None:
            return await self._claim("tasks_claim", queue, worker, lease, count)
        return await self._claim("tasks_claim_within", queue, worker, lease, count, max_claimed)

    async def _claim(self, procedure: str, queue: str, *arguments: Any) -> list[ClaimedTask]:
        async def give_back(rows: Sequence[Row]) -> None:
            for task in starmap(ClaimedTask, rows):
                if task.id is not None:
                    await self.task_release(queue, task.id, task.token)

        while True:
            rows = await self._database.call_with_compensation(
                give_back, procedure, self._namespace, queue, *arguments
            )
            # A task without an id: nothing was found yet, but more has to be swept.
            if not rows or rows[0][0] is not None:
                return [*starmap(ClaimedTask, rows)]

    async def task_renew(
        self, queue: str, task_id: str, token: int, lease: float, max_claimed: int | None = None
    ) -> bool:
        """See `Backend.task_renew`."""
        if max_claimed is not None:
            (held,) = await self._call_for_row(
                "task_renew_within", queue, task_id, token, lease, max_claimed
            )
            return bool(held)
        rows = await self._database.run(
            TASK_RENEW,
            namespace=self._namespace,
            queue_name=queue,
            task_id=task_id,
            token=token,
            ttl=lease,
        )
        return bool(rows)

    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        """See `Backend.task_complete`."""
        (done,) = await self._call_for_row("task_complete", queue, task_id, token, result)
        return bool(done)

    async def tasks_complete(self, queue: str, done: Sequence[DoneTask]) -> list[bool]:
        """See `Backend.tasks_complete`."""
        if not done:
            return []
        (complete,) = await self._call_for_row(
            "tasks_complete", queue, *map(list, zip(*done, strict=True))
        )
        return list(complete)

    async def task_fail(
        self, queue: str, task_id: str, token: int, error: str, retry_in: float | None
    ) -> bool:
        """See `Backend.task_fail`."""
        (done,) = await self._call_for_row("task_fail", queue, task_id, token, error, retry_in)
        return bool(done)

    async def task_release(self, queue: str, task_id: str, token: int) -> bool:
        """See `Backend.task_release`."""
        (done,) = await self._call_for_row("task_release", queue, task_id, token)
        return bool(done)

    async def tasks_dead(self, queue: str, keys: Collection[str]) -> list[DeadTask]:
        """See `Backend.tasks_dead`."""
        rows = await self._query(DEAD, queue, names=self._database.names(keys))
        return [DeadTask(*row) for row in rows]

    async def tasks_dead_page(self, queue: str, after: str | None, limit: int) -> Page[DeadTask]:
        """See `Backend.tasks_dead_page`."""
        rows = await self._query(DEAD_PAGE, queue, after=int(after or 0), limit=limit)
        is_last = len(rows) < limit
        return Page([DeadTask(*row[:-1]) for row in rows], None if is_last else str(rows[-1][-1]))

    async def tasks_requeue(self, queue: str, ids: Collection[str]) -> int:
        """See `Backend.tasks_requeue`."""
        await self._sweep(queue)
        (count,) = await self._call_for_row("tasks_requeue", queue, list(ids))
        return int(count)

    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        """See `Backend.tasks_requeue_step`."""
        if after is None:
            await self._sweep(queue)
        last, until = _NO_PLACES if after is None else map(int, after.split())
        count, last, until = await self._call_for_row("tasks_requeue_step", queue, last, until)
        return Step(int(count), None if last is None else f"{last} {until}")

    async def tasks_results(
        self, queue: str, by: Literal["id", "key"], names: Collection[str]
    ) -> dict[str, str]:
        """See `Backend.tasks_results`."""
        rows = await self._query(RESULTS[by], queue, names=self._database.names(names))
        return dict(rows)  # type: ignore[arg-type]  # rows of a name and a result

    async def tasks_results_page(
        self, queue: str, after: str | None, limit: int
    ) -> Page[tuple[str, str]]:
        """See `Backend.tasks_results_page`."""
        rows = await self._query(RESULTS_PAGE, queue, after=after or "", limit=limit)
        done = [(name, result) for name, result in rows if result is not None]
        return Page(done, None if len(rows) < limit else rows[-1][0])

    async def tasks_stats(self, queue: str) -> QueueStats:
        """See `Backend.tasks_stats`."""
        counts: Counter[str] = Counter()
        workers: dict[str, int] = {}
        for kind, worker, count in await self._query(TASKS_COUNT, queue):
            counts[kind] += count
            if kind == "claimed":
                workers[worker] = count
        unfinished = sum(counts[kind] for kind in ("waiting", "delayed", "claimed"))
        return QueueStats(
            waiting=counts["waiting"],
            delayed=counts["delayed"],
            claimed=counts["claimed"],
            completed=counts["all"] - unfinished - counts["dead"],
            dead=counts["dead"],
            expired=counts["expired"],
            by_worker=MappingProxyType(workers),
        )

    async def tasks_purge_step(
        self, queue: str, states: Collection[TaskState], after: str | None
    ) -> Step:
        """See `Backend.tasks_purge_step`."""
        if after is None:
            await self._sweep(queue)
        last, until = _NO_IDS if after is None else json.loads(after)
        count, last, until = await self._call_for_row(
            "tasks_purge_step", queue, _inner(states), last, until
        )
        return Step(int(count), None if last is None else json.dumps([last, until]))

    # -- looking after it --------------------------------------------------------------------

    async def queues_page(self, after: str | None, limit: int) -> Page[str]:
        """See `Backend.queues_page`."""
        rows = await self._database.run(
            QUEUES_PAGE, namespace=self._namespace, after=after or "", limit=limit
        )
        names = [name for (name,) in rows]
        return Page(names, names[-1] if len(names) == limit else None)

    async def tasks_page(self, queue: str, after: str | None, limit: int) -> Page[StoredTask]:
        """See `Backend.tasks_page`."""
        rows = await self._query(TASKS_PAGE, queue, after=after or "", limit=limit)
        return Page(
            [_stored_task(row) for row in rows], rows[-1][0] if len(rows) == limit else None
        )

    async def task_read(self, queue: str, task_id: str) -> StoredTask | None:
        """See `Backend.task_read`."""
        rows = await self._query(TASK_READ, queue, task_id=task_id)
        return _stored_task(rows[0]) if rows else None

    async def tasks_cancel(self, queue: str, ids: Collection[str], error: str) -> int:
        """See `Backend.tasks_cancel`."""
        await self._sweep(queue)
        (count,) = await self._call_for_row("tasks_cancel", queue, list(ids), error)
        return int(count)

    async def tasks_delete(
        self, queue: str, ids: Collection[str], states: Collection[TaskState]
    ) -> int:
        """See `Backend.tasks_delete`."""
        await self._sweep(queue)
        (count,) = await self._call_for_row("tasks_delete", queue, list(ids), _inner(states))
        return int(count)

    async def keys_page(self, prefix: str, after: str | None, limit: int) -> Page[KeyInfo]:
        """See `Backend.keys_page`."""
        rows = await self._database.run(
            KEYS_PAGE, namespace=self._namespace, prefix=prefix, after=after or "", limit=limit
        )
        found = [KeyInfo(*row) for row in rows if row[0].startswith(prefix)]
        return Page(found, found[-1].key if len(found) == limit else None)

    async def locks_page(self, after: str | None, limit: int) -> Page[HeldLock]:
        """See `Backend.locks_page`."""
        rows = await self._database.run(
            LOCKS_PAGE, namespace=self._namespace, after=after or "", limit=limit
        )
        held = [HeldLock(*row) for row in rows]
        return Page(held, held[-1].key if len(held) == limit else None)

    async def _sweep(self, queue: str) -> None:
        is_more = True
        while is_more:
            (is_more,) = await self._call_for_row("sweep_step", queue)

    async def _query(self, statement: str, queue: str, **values: Any) -> Sequence[Row]:
        return await self._database.run(
            statement, namespace=self._namespace, queue_name=queue, **values
        )

    async def _call_for_row(self, procedure: str, *arguments: Any) -> Row:
        (row,) = await self._database.call(procedure, self._namespace, *arguments)
        return row


def _inner(states: Collection[TaskState]) -> list[str]:
    """Return the states in the tables."""
    return [name for state in states for name in _STATES.get(state, (state,))]


def _stored_task(row: Row) -> StoredTask:
    task = StoredTask(*row)
    # A task that is due has been so for some time.
    return task if task.due_in is None else task._replace(due_in=max(0.0, task.due_in))


_NO_CHANGES: Final[tuple[list[Any], ...]] = ([], [], [])
# Cursors before the first step.
_NO_PLACES: Final[tuple[int, int | None]] = (0, None)
_NO_IDS: Final[tuple[str, str | None]] = ("", None)
_STATES: Final[Mapping[str, tuple[str, ...]]] = {"waiting": ("ready", "delayed", "blocked")}
