"""The backend of shared state in a Redis or Valkey server.

Each method is one Lua script (`rxlanggraph.state.backends.redis.scripts`), and so one step on the
server; if more tasks are due than one step may sweep, steps that sweep come first. The keys of a
namespace start with ``{namespace}:``, and so are in one slot of a cluster:

    schema            the version of this layout (fitness.py)
    since             when it was migrated to times of tasks, in microseconds; missing if always had
    clock             the counter of the namespace
    value:KEY         a hash: text and version of a value, and the highest token that wrote it
    fence:KEY         a string, that token: for some time after the value is gone
    lock:KEY          a string, token and owner
    sequence:CLIENT:N a string, number and answer of a connection's last write
                      (lua/deduplicate.lua)
    ready:QUEUE ...   twelve sorted sets and hashes of a queue (lua/queue.lua), and
    full:QUEUE        a string: a claim was refused for its limit; expires

On the channel ``{namespace}:arrivals``, scripts that make tasks claimable publish the name of the
queue (lua/queue.lua), as do those that end a claimed task after a claim was refused for its limit.

Nothing has to be deleted by the caller: values, fences, locks and sequences expire, and a queue
without tasks has no keys.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from rxlanggraph.concurrency.tasks import run_shielded
from rxlanggraph.state.backend import (
    FENCE_RETENTION,
    ClaimedTask,
    DeadTask,
    DoneTask,
    HeldLock,
    KeyInfo,
    NewTask,
    Page,
    QueueStats,
    SchemaVersion,
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
from rxlanggraph.state.backends.redis.address import parse_address
from rxlanggraph.state.backends.redis.arrivals import watch_channel
from rxlanggraph.state.backends.redis.connections import ConnectionPool
from rxlanggraph.state.backends.redis.fitness import check_fitness, read_version
from rxlanggraph.state.backends.redis.scripts import (
    COMMIT,
    DESCRIBE,
    INCREMENT,
    LOCK_ACQUIRE,
    LOCK_RELEASE,
    LOCK_RENEW,
    NAMES,
    READ,
    TASK_CLAIM,
    TASK_COMPLETE,
    TASK_FAIL,
    TASK_RELEASE,
    TASK_RENEW,
    TASKS_ADD,
    TASKS_CANCEL,
    TASKS_DEAD,
    TASKS_DELETE,
    TASKS_PAGE,
    TASKS_PURGE,
    TASKS_REQUEUE,
    TASKS_RESULTS,
    TASKS_STATS,
    Script,
)
from rxlanggraph.state.retry import compensate

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
    "full",
)
# The states that have a sorted set of their own, which a purge can read instead of all tasks.
_LISTED_STATES: dict[TaskState, str] = {"completed": "completed", "dead": "dead"}
_FENCE_RETENTION_MS = int(FENCE_RETENTION * 1_000)
# The characters with a meaning in a pattern of SCAN.
_SPECIAL = re.compile(r"([*?\[\]\\^])")
_ESCAPED = r"\\\1"
_UNCHANGED = ("keep", "", "", "")


class RedisBackend:
    """A `Backend` on a Redis or Valkey server. Confined to the loop that made it.

    A call that is cancelled, other than a claim, may have taken effect; its connection is closed,
    and connects again when it is needed.

    Args:
        url: The URL of the server, as redis-py accepts it.
        namespace: The namespace of the keys on the server.

    Raises:
        InvalidArgumentError: redis-py cannot use the URL.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._prefix = f"{{{namespace}}}:"
        make, count, timeout, replicas = parse_address(url)
        self._make, self._timeout = make, timeout
        self._pool = ConnectionPool(make, count, timeout, self._prefix, replicas)

    async def connect(self) -> None:
        """Connect once, and check that the server is fit for shared state.

        Raises:
            InvalidArgumentError: The server refuses the connection permanently, or is not fit.
            StateUnavailableError: The server does not answer.
        """
        connection = await self._pool.connect()
        longest = await check_fitness(connection, f"{self._prefix}schema", f"{self._prefix}since")
        self._pool.limit_arguments(longest)

    async def read_version(self) -> SchemaVersion:
        """Connect once, and return the version of the layout; changes nothing.

        Raises:
            InvalidArgumentError: The server refuses the connection permanently.
            StateUnavailableError: The server does not answer.
        """
        return await read_version(await self._pool.connect(), f"{self._prefix}schema")

    # -- keys --------------------------------------------------------------------------------

    async def read(self, keys: Sequence[str]) -> list[StoredValue]:
        """See `Backend.read`."""
        reply = await self._pool.call(READ, self._value_keys(keys))
        pairs = zip(reply[::2], reply[1::2], strict=True)
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
            arguments += _UNCHANGED if change is None else _change_arguments(change)
        answer = await self._pool.call(
            COMMIT, self._fenced_keys(keys), _FENCE_RETENTION_MS, *arguments
        )
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
            self._fenced_keys([key]),
            _FENCE_RETENTION_MS,
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
        lock = self._lock_keys(key)
        token = await self._pool.call(LOCK_ACQUIRE, lock, owner, _milliseconds(ttl))
        return None if token is None else int(token)

    async def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """See `Backend.lock_renew`."""
        lock = self._lock_keys(key)
        return bool(await self._pool.call(LOCK_RENEW, lock, token, _milliseconds(ttl)))

    async def lock_release(self, key: str, token: int) -> bool:
        """See `Backend.lock_release`."""
        return bool(await self._pool.call(LOCK_RELEASE, self._lock_keys(key), token))

    # -- work --------------------------------------------------------------------------------

    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        """See `Backend.tasks_add`."""
        ids = [task.id for task in tasks]
        if not ids:
            return ids
        reply = json.dumps([task._replace(delay=_microseconds(task.delay)) for task in tasks])
        known = await self._pool.call(TASKS_ADD, self._queue_keys(queue), reply)
        for position, task_id in zip(known[::2], known[1::2], strict=True):
            ids[position] = task_id
        return ids

    async def task_claim(
        self, queue: str, worker: str, lease: float, max_claimed: int | None = None
    ) -> ClaimedTask | None:
        """See `Backend.task_claim`."""
        claimed = await self.tasks_claim(queue, worker, lease, 1, max_claimed)
        return claimed[0] if claimed else None

    async def tasks_claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None = None
    ) -> list[ClaimedTask]:
        """See `Backend.tasks_claim`."""

        async def give_back(tasks: list[ClaimedTask]) -> None:
            for task in tasks:
                await self.task_release(queue, task.id, task.token)

        return await run_shielded(
            self._claim(queue, worker, lease, count, max_claimed),
            undo=partial(compensate, give_back),
        )

    async def _claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None
    ) -> list[ClaimedTask]:
        reply = await self._call_swept(
            TASK_CLAIM, queue, worker, _microseconds(lease), count, _limit(max_claimed)
        )
        return [
            ClaimedTask(task_id, text, key or None, thread_id or None, attempt, int(token))
            for task_id, text, key, thread_id, attempt, token in json.loads(reply)
        ]

    async def task_renew(
        self, queue: str, task_id: str, token: int, lease: float, max_claimed: int | None = None
    ) -> bool:
        """See `Backend.task_renew`."""
        return await self._call_with_token(
            TASK_RENEW, queue, task_id, token, _microseconds(lease), _limit(max_claimed)
        )

    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        """See `Backend.task_complete`."""
        (complete,) = await self.tasks_complete(queue, [DoneTask(task_id, token, result)])
        return complete

    async def tasks_complete(self, queue: str, done: Sequence[DoneTask]) -> list[bool]:
        """See `Backend.tasks_complete`."""
        if not done:
            return []
        words: list[str | int] = [word for task in done for word in task]
        complete = await self._pool.call(TASK_COMPLETE, self._queue_keys(queue), *words)
        return [each == "1" for each in complete]

    async def task_fail(
        self, queue: str, task_id: str, token: int, error: str, retry_in: float | None
    ) -> bool:
        """See `Backend.task_fail`."""
        delay = "" if retry_in is None else _microseconds(retry_in)
        return await self._call_with_token(TASK_FAIL, queue, task_id, token, error, delay)

    async def task_release(self, queue: str, task_id: str, token: int) -> bool:
        """See `Backend.task_release`."""
        return await self._call_with_token(TASK_RELEASE, queue, task_id, token)

    async def tasks_dead(self, queue: str, keys: Collection[str]) -> list[DeadTask]:
        """See `Backend.tasks_dead`."""
        return [_dead_task(row) for row in await self._call_swept(TASKS_DEAD, queue, "some", *keys)]

    async def tasks_dead_page(self, queue: str, after: str | None, limit: int) -> Page[DeadTask]:
        """See `Backend.tasks_dead_page`."""
        rows = await self._call_swept(TASKS_DEAD, queue, "page", after or "", limit)
        last = rows[-1][-1] if len(rows) == limit else None
        return Page([_dead_task(row) for row in rows], last)

    async def tasks_requeue(self, queue: str, ids: Collection[str]) -> int:
        """See `Backend.tasks_requeue`."""
        return (await self._requeue(queue, "some", *ids)).done

    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        """See `Backend.tasks_requeue_step`."""
        return await self._requeue(queue, "step", after or "")

    async def _requeue(self, queue: str, *which: str) -> Step:
        count, _, after = str(await self._call_swept(TASKS_REQUEUE, queue, *which)).partition(" ")
        return Step(int(count), after or None)

    async def tasks_results(
        self, queue: str, by: Literal["id", "key"], names: Collection[str]
    ) -> dict[str, str]:
        """See `Backend.tasks_results`."""
        reply = await self._pool.call(TASKS_RESULTS, self._queue_keys(queue), by, *names)
        return dict(zip(reply[::2], reply[1::2], strict=True))

    async def tasks_results_page(
        self, queue: str, after: str | None, limit: int
    ) -> Page[tuple[str, str]]:
        """See `Backend.tasks_results_page`."""
        reply = await self._pool.call(
            TASKS_RESULTS, self._queue_keys(queue), "page", after or "", limit
        )
        rows = list(zip(reply[::2], reply[1::2], strict=True))
        return Page(rows, rows[-1][0] if len(rows) == limit else None)

    async def tasks_stats(self, queue: str) -> QueueStats:
        """See `Backend.tasks_stats`."""
        reply = await self._call_swept(TASKS_STATS, queue)
        waiting, delayed, claimed, completed, dead, expired, *workers = reply
        by_worker = MappingProxyType(dict(zip(workers[::2], workers[1::2], strict=True)))
        return QueueStats(waiting, delayed, claimed, completed, dead, expired, by_worker)

    async def tasks_purge_step(
        self, queue: str, states: Collection[TaskState], after: str | None
    ) -> Step:
        """See `Backend.tasks_purge_step`. By sets of tasks; a state without a set needs a scan."""
        lists = sorted({_LISTED_STATES.get(state, "every") for state in states}, reverse=True)
        if "every" in lists:
            lists = ["every"]
        which, *place = json.loads(after) if after else (lists[0], "", "")
        reply = await self._call_swept(TASKS_PURGE, queue, " ".join(states), which, *place)
        count, *place = json.loads(reply)
        if not place[0]:
            lists = lists[lists.index(which) + 1 :]
            which, place = lists[0] if lists else None, ["", ""]
        return Step(count, json.dumps([which, *place]) if which else None)

    async def watch_arrivals(self, arrived: Callable[[str | None], None]) -> None:
        """See `NotifyingBackend.watch_arrivals`. Returns if the user may not subscribe."""
        channel = f"{self._prefix}arrivals"
        await watch_channel(self._make(), channel, self._timeout, arrived)

    # -- looking after it --------------------------------------------------------------------

    async def queues_page(self, after: str | None, limit: int) -> Page[str]:
        """See `Backend.queues_page`. Looks at all keys of the server."""
        return await self._names("tasks", "", after, limit)

    async def tasks_page(self, queue: str, after: str | None, limit: int) -> Page[StoredTask]:
        """See `Backend.tasks_page`."""
        keys = [*self._queue_keys(queue), f"{self._prefix}since"]
        cursor, *rows = json.loads(
            await self._pool.call(TASKS_PAGE, keys, "page", after or "0", limit)
        )
        return Page([_stored_task(row) for row in rows], None if cursor == "0" else cursor)

    async def task_read(self, queue: str, task_id: str) -> StoredTask | None:
        """See `Backend.task_read`."""
        keys = [*self._queue_keys(queue), f"{self._prefix}since"]
        reply = await self._pool.call(TASKS_PAGE, keys, "one", task_id)
        return None if reply is None else _stored_task([*json.loads(reply[0]), *reply[1:]])

    async def tasks_cancel(self, queue: str, ids: Collection[str], error: str) -> int:
        """See `Backend.tasks_cancel`."""
        return int(await self._call_swept(TASKS_CANCEL, queue, error, *ids))

    async def tasks_delete(
        self, queue: str, ids: Collection[str], states: Collection[TaskState]
    ) -> int:
        """See `Backend.tasks_delete`."""
        keys = self._queue_keys(queue)
        return int(await self._pool.call(TASKS_DELETE, keys, " ".join(states), *ids))

    async def keys_page(self, prefix: str, after: str | None, limit: int) -> Page[KeyInfo]:
        """See `Backend.keys_page`. Looks at all keys of the server."""
        names = await self._names("value", prefix, after, limit)
        described = await self._describe("value", self._value_keys(names.items))
        return Page(
            [
                KeyInfo(name, int(version), ttl / 1000 if ttl >= 0 else None)
                for name, (version, ttl) in zip(names.items, described, strict=True)
                if version is not None
            ],
            names.after,
        )

    async def locks_page(self, after: str | None, limit: int) -> Page[HeldLock]:
        """See `Backend.locks_page`. Looks at all keys of the server."""
        names = await self._names("lock", "", after, limit)
        locks = [key for name in names.items for key in self._lock_keys(name)]
        described = await self._describe("lock", locks)
        return Page(
            [
                HeldLock(name, int(token), max(0, ttl) / 1000)
                for name, (token, ttl) in zip(names.items, described, strict=True)
                if token is not None
            ],
            names.after,
        )

    async def _names(self, part: str, begin: str, after: str | None, limit: int) -> Page[str]:
        """Return names of keys of one kind; the limit is of the keys that are looked at."""
        whole = f"{self._prefix}{part}:"
        pattern = f"{whole}{_SPECIAL.sub(_ESCAPED, begin)}*"
        cursor, *found = await self._pool.call(NAMES, [], after or "0", pattern, limit)
        # SCAN may return a key twice.
        names = [key.removeprefix(whole) for key in dict.fromkeys(found)]
        return Page(names, None if cursor == "0" else cursor)

    async def _describe(self, kind: str, keys: Sequence[str]) -> list[tuple[str | None, int]]:
        if not keys:
            return []
        reply = await self._pool.call(DESCRIBE, keys, kind)
        return list(zip(reply[::2], reply[1::2], strict=True))

    # -- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """See `Backend.close`."""
        await self._pool.close()

    # -- keys on the server ------------------------------------------------------------------

    def _value_keys(self, keys: Sequence[str]) -> list[str]:
        return [f"{self._prefix}value:{key}" for key in keys]

    def _fenced_keys(self, keys: Sequence[str]) -> list[str]:
        return [f"{self._prefix}{part}:{key}" for key in keys for part in ("value", "fence")]

    def _lock_keys(self, key: str) -> list[str]:
        return [f"{self._prefix}lock:{key}"]

    def _queue_keys(self, queue: str) -> list[str]:
        return [f"{self._prefix}{part}:{queue}" for part in _PARTS]

    async def _call_swept(self, script: Script, queue: str, *arguments: str | int) -> Any:
        """Run a script that sweeps, until one step has been enough."""
        while (
            reply := await self._pool.call(script, self._queue_keys(queue), *arguments)
        ) == "again":
            pass  # other calls of the server proceed between two steps
        return reply

    async def _call_with_token(
        self, script: Script, queue: str, task_id: str, token: int, *rest: str | int
    ) -> bool:
        return bool(await self._call_swept(script, queue, task_id, token, *rest))


def _dead_task(row: Sequence[Any]) -> DeadTask:
    task_id, text, key, thread_id, attempts, worker, error, _ = row
    return DeadTask(task_id, text, key or None, thread_id or None, attempts, worker, error)


def _stored_task(row: Sequence[Any]) -> StoredTask:
    # The script has false instead of null, and no decimal point in whole numbers.
    fields: list[Any] = [None if value is False else value for value in row]
    fields[8:13] = [None if value is None else float(value) for value in fields[8:13]]
    task = StoredTask(*fields)
    return task._replace(worker=task.worker or None)


def _change_arguments(change: Write) -> tuple[str | int, ...]:
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


def _limit(max_claimed: int | None) -> str | int:
    return "" if max_claimed is None else max_claimed


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1_000))


def _microseconds(seconds: float) -> int:
    return math.ceil(seconds * 1_000_000)
