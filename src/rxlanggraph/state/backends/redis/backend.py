"""The backend of shared state in a Redis or Valkey server.

Each method is one Lua script (`rxlanggraph.state.backends.redis.scripts`), so one step on the
server; where more has fallen due than one step has room for, first some steps that sweep. All that
is kept is under ``{namespace}:``, and so in one slot of a cluster:

    schema            the version of all this (fitness.py)
    clock             the counter of the namespace
    value:KEY         a hash: text and version of a value, and the highest token that wrote it
    fence:KEY         a string, that token: for some days after the value's end
    lock:KEY          a string, token and owner
    sequence:CLIENT:N a string, number and answer of a connection's last write
                      (lua/deduplicate.lua)
    ready:QUEUE ...   twelve sorted sets and hashes of a queue (lua/queue.lua)

What has ended goes by itself: values, fences, locks and sequences expire, and a queue without tasks
has no keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from rxlanggraph.state.backend import (
    FENCE_KEPT,
    ClaimedTask,
    DeadTask,
    NewTask,
    Page,
    QueueStats,
    Step,
    StoredValue,
    TaskState,
    Write,
    WriteResult,
    counter_overflow,
    not_an_integer,
    stale_token,
)
from rxlanggraph.state.backends.redis.pool import ConnectionPool
from rxlanggraph.state.backends.redis.scripts import (
    COMMIT,
    INCREMENT,
    LOCK_ACQUIRE,
    LOCK_RELEASE,
    LOCK_RENEW,
    READ,
    TASK_CLAIM,
    TASK_COMPLETE,
    TASK_FAIL,
    TASK_RELEASE,
    TASK_RENEW,
    TASKS_ADD,
    TASKS_DEAD,
    TASKS_PURGE,
    TASKS_REQUEUE,
    TASKS_RESULTS,
    TASKS_STATS,
    Script,
)
from rxlanggraph.state.retry import run_shielded

__all__ = ["RedisBackend"]

# In the order in which lua/queue.lua expects them.
_PARTS = (
    "ready",
    "delayed",
    "claimed",
    "dead",
    "threads",
    "tasks",
    "texts",
    "results",
    "errors",
    "names",
    "done",
    "workers",
)
# What a step of a purge looks at; every one of the states that it is the list of.
_LISTS: dict[TaskState, str] = {"completed": "completed", "dead": "dead"}
_KEPT = int(FENCE_KEPT * 1_000)
_LEAVE_ALONE = ("keep", "", "", "")


class RedisBackend:
    """A `Backend` on a Redis or Valkey server. Confined to the loop that made it.

    Cancelling a call, other than a claim, leaves open whether it took effect; its connection is
    closed, and another made when it is needed.

    Args:
        url: Where the server is; as redis-py takes it.
        namespace: Which part of it is ours.

    Raises:
        InvalidArgumentError: redis-py cannot use the URL.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._prefix = f"{{{namespace}}}:"
        self._pool = ConnectionPool(url, self._prefix)

    async def connect(self) -> None:
        """See that there is a server, and that it will do.

        Raises:
            InvalidArgumentError: It refuses us, and will do so again, or will not do.
            StateUnavailableError: There is none.
        """
        await self._pool.connect()

    # -- keys --------------------------------------------------------------------------------

    async def read(self, keys: Sequence[str]) -> list[StoredValue]:
        """See `Backend.read`."""
        told = await self._pool.call(READ, self._values(keys))
        pairs = zip(told[::2], told[1::2], strict=True)
        return [StoredValue(text, int(version or 0)) for text, version in pairs]

    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        """See `Backend.commit`."""
        keys = list(dict.fromkeys([*changes, *checks]))
        arguments: list[str | int] = []
        for key in keys:
            change = changes.get(key)
            arguments += (key, checks.get(key, ""))
            arguments += _LEAVE_ALONE if change is None else _described(change)
        answer = await self._pool.call(COMMIT, self._fenced(keys), _KEPT, *arguments)
        if answer is None:
            return None
        if isinstance(answer, list):
            raise _refusal(*answer)
        versions = map(int, answer.split())
        return {key: WriteResult(next(versions), next(versions)) for key in keys if key in changes}

    async def increment(self, key: str, by: int, token: int | None) -> int:
        """See `Backend.increment`."""
        answer = await self._pool.call(
            INCREMENT,
            self._fenced([key]),
            _KEPT,
            key,
            by,
            "" if token is None else token,
        )
        if isinstance(answer, list):
            raise _refusal(*answer)
        return int(answer)

    # -- locks -------------------------------------------------------------------------------

    async def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        """See `Backend.lock_acquire`."""
        lock = self._lock(key)
        token = await self._pool.call(LOCK_ACQUIRE, lock, owner, _milliseconds(ttl))
        return None if token is None else int(token)

    async def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """See `Backend.lock_renew`."""
        lock = self._lock(key)
        return bool(await self._pool.call(LOCK_RENEW, lock, token, _milliseconds(ttl)))

    async def lock_release(self, key: str, token: int) -> bool:
        """See `Backend.lock_release`."""
        return bool(await self._pool.call(LOCK_RELEASE, self._lock(key), token))

    # -- work --------------------------------------------------------------------------------

    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        """See `Backend.tasks_add`."""
        ids = [task.id for task in tasks]
        if not ids:
            return ids
        told = json.dumps([task._replace(delay=_microseconds(task.delay)) for task in tasks])
        known = await self._pool.call(TASKS_ADD, self._queue(queue), told)
        for position, task_id in zip(known[::2], known[1::2], strict=True):
            ids[position] = task_id
        return ids

    async def task_claim(self, queue: str, worker: str, lease: float) -> ClaimedTask | None:
        """See `Backend.task_claim`."""

        async def give_back(task: ClaimedTask | None) -> None:
            if task is not None:
                await self.task_release(queue, task.id, task.token)

        return await run_shielded(self._claim(queue, worker, lease), undo=give_back)

    async def _claim(self, queue: str, worker: str, lease: float) -> ClaimedTask | None:
        told = await self._swept(TASK_CLAIM, queue, worker, _microseconds(lease))
        if told is None:
            return None
        task_id, text, key, thread_id, attempt, token = told
        return ClaimedTask(task_id, text, key or None, thread_id or None, attempt, int(token))

    async def task_renew(self, queue: str, task_id: str, token: int, lease: float) -> bool:
        """See `Backend.task_renew`."""
        return await self._act(TASK_RENEW, queue, task_id, token, _microseconds(lease))

    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        """See `Backend.task_complete`."""
        return await self._act(TASK_COMPLETE, queue, task_id, token, result)

    async def task_fail(
        self, queue: str, task_id: str, token: int, error: str, retry_in: float | None
    ) -> bool:
        """See `Backend.task_fail`."""
        delay = "" if retry_in is None else _microseconds(retry_in)
        return await self._act(TASK_FAIL, queue, task_id, token, error, delay)

    async def task_release(self, queue: str, task_id: str, token: int) -> bool:
        """See `Backend.task_release`."""
        return await self._act(TASK_RELEASE, queue, task_id, token)

    async def tasks_dead(self, queue: str, keys: Collection[str]) -> list[DeadTask]:
        """See `Backend.tasks_dead`."""
        return [_dead_task(row) for row in await self._swept(TASKS_DEAD, queue, "some", *keys)]

    async def tasks_dead_page(self, queue: str, after: str | None, most: int) -> Page[DeadTask]:
        """See `Backend.tasks_dead_page`."""
        rows = await self._swept(TASKS_DEAD, queue, "page", after or "", most)
        last = rows[-1][-1] if len(rows) == most else None
        return Page([_dead_task(row) for row in rows], last)

    async def tasks_requeue(self, queue: str, ids: Collection[str]) -> int:
        """See `Backend.tasks_requeue`."""
        return (await self._requeue(queue, "some", *ids)).done

    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        """See `Backend.tasks_requeue_step`."""
        return await self._requeue(queue, "step", after or "")

    async def _requeue(self, queue: str, *which: str) -> Step:
        count, _, after = str(await self._swept(TASKS_REQUEUE, queue, *which)).partition(" ")
        return Step(int(count), after or None)

    async def tasks_results(
        self, queue: str, by: Literal["id", "key"], names: Collection[str]
    ) -> dict[str, str]:
        """See `Backend.tasks_results`."""
        told = await self._pool.call(TASKS_RESULTS, self._queue(queue), by, *names)
        return dict(zip(told[::2], told[1::2], strict=True))

    async def tasks_results_page(
        self, queue: str, after: str | None, most: int
    ) -> Page[tuple[str, str]]:
        """See `Backend.tasks_results_page`."""
        told = await self._pool.call(TASKS_RESULTS, self._queue(queue), "page", after or "", most)
        rows = list(zip(told[::2], told[1::2], strict=True))
        return Page(rows, rows[-1][0] if len(rows) == most else None)

    async def tasks_stats(self, queue: str) -> QueueStats:
        """See `Backend.tasks_stats`."""
        told = await self._swept(TASKS_STATS, queue)
        waiting, delayed, claimed, completed, dead, expired, *workers = told
        by_worker = MappingProxyType(dict(zip(workers[::2], workers[1::2], strict=True)))
        return QueueStats(waiting, delayed, claimed, completed, dead, expired, by_worker)

    async def tasks_purge_step(
        self, queue: str, states: Collection[TaskState], after: str | None
    ) -> Step:
        """See `Backend.tasks_purge_step`. List by list, or through all tasks if one has none."""
        lists = sorted({_LISTS.get(state, "every") for state in states}, reverse=True)
        if "every" in lists:
            lists = ["every"]
        which, *place = json.loads(after) if after else (lists[0], "", "")
        told = await self._swept(TASKS_PURGE, queue, " ".join(states), which, *place)
        count, *place = json.loads(told)
        if not place[0]:
            lists = lists[lists.index(which) + 1 :]
            which, place = lists[0] if lists else None, ["", ""]
        return Step(count, json.dumps([which, *place]) if which else None)

    # -- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """See `Backend.close`."""
        await self._pool.close()

    # -- keys on the server ------------------------------------------------------------------

    def _values(self, keys: Sequence[str]) -> list[str]:
        return [f"{self._prefix}value:{key}" for key in keys]

    def _fenced(self, keys: Sequence[str]) -> list[str]:
        return [f"{self._prefix}{part}:{key}" for key in keys for part in ("value", "fence")]

    def _lock(self, key: str) -> list[str]:
        return [f"{self._prefix}lock:{key}"]

    def _queue(self, queue: str) -> list[str]:
        return [f"{self._prefix}{part}:{queue}" for part in _PARTS]

    async def _swept(self, script: Script, queue: str, *arguments: str | int) -> Any:
        """Have a script run that may find more to sweep than one step has room for."""
        while (told := await self._pool.call(script, self._queue(queue), *arguments)) == "again":
            pass  # each call has made a step; others have had their turn in between
        return told

    async def _act(
        self, script: Script, queue: str, task_id: str, token: int, *rest: str | int
    ) -> bool:
        return bool(await self._pool.call(script, self._queue(queue), task_id, token, *rest))


def _dead_task(row: Sequence[Any]) -> DeadTask:
    task_id, text, key, thread_id, attempts, worker, error, _ = row
    return DeadTask(task_id, text, key or None, thread_id or None, attempts, worker, error)


def _described(change: Write) -> tuple[str | int, ...]:
    token = "" if change.token is None else change.token
    if change.text is None:
        return ("delete", "", "", token)
    ttl = "" if change.ttl is None else _milliseconds(change.ttl)
    return ("set", change.text, ttl, token)


def _refusal(why: str, key: str, *particulars: Any) -> Exception:
    if why == "stale token":
        return stale_token(key, *particulars)
    error = not_an_integer if why == "no integer" else counter_overflow
    return error(key, *particulars)


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1_000))


def _microseconds(seconds: float) -> int:
    return math.ceil(seconds * 1_000_000)
