"""The store in this process: for one process, and for tests of what will use another store.

``memory:`` is private to whoever opened it; ``memory:NAME`` is the same store for everybody in the
process who has it open, on whatever loop, and is gone when the last one closes it.

Everything of a store is guarded by its one lock, a plain one: each section is a few steps of pure
Python, none of them awaits or runs a caller's code, so that no task and no thread is ever seen
half-way (rule 1 of the contract).
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Literal, NamedTuple

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, StaleTokenError
from rxlanggraph.state.agenda import Agenda
from rxlanggraph.state.contract import (
    Change,
    ClaimedTask,
    DeadTask,
    Entry,
    NewTask,
    QueueStats,
    TaskState,
    Written,
)
from rxlanggraph.state.memory_queue import MemoryQueue
from rxlanggraph.state.values import check_name

__all__ = ["MemoryBackend", "MemoryStore", "open_backend"]

_ABSENT = Entry(None, 0)


class _Value(NamedTuple):
    entry: Entry
    expires: float | None


class _Held(NamedTuple):
    owner: str
    token: int
    expires: float


class _Space:
    """What one namespace holds. Guarded by the lock of the store."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.numbers = itertools.count(1)
        self.fences: dict[str, int] = {}
        self.locks: dict[str, _Held] = {}
        self.queues: dict[str, MemoryQueue] = {}
        self._values: dict[str, _Value] = {}
        self._expiries: Agenda[str] = Agenda()

    def find(self, key: str) -> _Value | None:
        if self._expiries:
            for expired in self._expiries.take_due(self.clock()):
                del self._values[expired]
        return self._values.get(key)

    def entry(self, key: str) -> Entry:
        value = self.find(key)
        return _ABSENT if value is None else value.entry

    def put(self, key: str, text: str, expires: float | None) -> int:
        version = next(self.numbers)
        self._values[key] = _Value(Entry(text, version), expires)
        if expires is not None:
            self._expiries.put(key, expires)
        elif self._expiries:
            self._expiries.discard(key)
        return version

    def write(self, key: str, change: Change) -> Written:
        before = self.entry(key).version
        if change.token is not None:
            self.fences[key] = change.token
        if change.text is not None:
            expires = None if change.ttl is None else self.clock() + change.ttl
            return Written(before, self.put(key, change.text, expires))
        self._expiries.discard(key)
        self._values.pop(key, None)
        return Written(before, 0)

    def check_fence(self, key: str, token: int | None) -> None:
        if token is None:
            return
        fence = self.fences.get(key)
        if fence is not None and token < fence:
            raise StaleTokenError(
                f"the write of {key!r} with token {token} is refused: token {fence}, which is "
                "newer, has written it; the lock was lost, take it again"
            )

    def holder(self, key: str) -> _Held | None:
        held = self.locks.get(key)
        if held is not None and held.expires <= self.clock():
            del self.locks[key]
            return None
        return held

    def queue(self, name: str) -> MemoryQueue:
        if name not in self.queues:
            self.queues[name] = MemoryQueue(self.numbers, self.clock)
        return self.queues[name]


class MemoryStore:
    """What several `MemoryBackend` share: the spaces, the lock, and the clock.

    Args:
        clock: Seconds, from anywhere; never goes back. Must be the same for all who use the store.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.lock = threading.Lock()
        self._clock = clock
        # Guarded by the lock, all that is inside included.
        self._spaces: dict[str, _Space] = {}

    def space(self, namespace: str) -> _Space:
        """The space of ``namespace``. Takes the lock."""
        with self.lock:
            return self._spaces.setdefault(namespace, _Space(self._clock))


class MemoryBackend:
    """A `Backend` in the memory of this process. No call waits, so none can be cancelled within.

    Args:
        store: Where the data is; None for a store of its own.
        namespace: Which part of it.
        clock: The clock of a store of its own.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        namespace: str = "rxlanggraph",
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        # Kept until `close`, as this keeps a named store alive.
        self._store: MemoryStore | None = MemoryStore(clock) if store is None else store
        self._lock = self._store.lock
        self._space = self._store.space(namespace)

    # -- keys --------------------------------------------------------------------------------

    async def read(self, keys: Sequence[str]) -> list[Entry]:
        """See `Backend.read`."""
        with self._lock:
            return [self._space.entry(key) for key in keys]

    async def commit(
        self, changes: Mapping[str, Change], checks: Mapping[str, int]
    ) -> dict[str, Written] | None:
        """See `Backend.commit`."""
        space = self._space
        with self._lock:
            for key, change in changes.items():
                space.check_fence(key, change.token)
            for key, version in checks.items():
                if space.entry(key).version != version:
                    return None
            return {key: space.write(key, change) for key, change in changes.items()}

    async def increment(self, key: str, by: int, token: int | None) -> int:
        """See `Backend.increment`."""
        space = self._space
        with self._lock:
            space.check_fence(key, token)
            value = space.find(key)
            total = _integer(key, None if value is None else value.entry.text) + by
            if not -(2**63) <= total < 2**63:
                raise InvalidArgumentError(f"the counter {key!r} would leave 64 bits: {total}")
            space.put(key, str(total), None if value is None else value.expires)
            if token is not None:
                space.fences[key] = token
            return total

    # -- locks -------------------------------------------------------------------------------

    async def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        """See `Backend.lock_acquire`."""
        space = self._space
        with self._lock:
            held = space.holder(key)
            if held is not None and held.owner != owner:
                return None
            token = next(space.numbers) if held is None else held.token
            space.locks[key] = _Held(owner, token, space.clock() + ttl)
            return token

    async def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """See `Backend.lock_renew`."""
        space = self._space
        with self._lock:
            held = space.holder(key)
            if held is None or held.token != token:
                return False
            space.locks[key] = held._replace(expires=space.clock() + ttl)
            return True

    async def lock_release(self, key: str, token: int) -> bool:
        """See `Backend.lock_release`."""
        with self._lock:
            held = self._space.holder(key)
            if held is None or held.token != token:
                return False
            del self._space.locks[key]
            return True

    # -- work --------------------------------------------------------------------------------

    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        """See `Backend.tasks_add`."""
        with self._lock:
            return [self._space.queue(queue).add(task) for task in tasks]

    async def task_claim(self, queue: str, worker: str, lease: float) -> ClaimedTask | None:
        """See `Backend.task_claim`."""
        with self._lock:
            return self._space.queue(queue).claim(worker, lease)

    async def task_renew(self, queue: str, task_id: str, token: int, lease: float) -> bool:
        """See `Backend.task_renew`."""
        with self._lock:
            return self._space.queue(queue).renew(task_id, token, lease)

    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        """See `Backend.task_complete`."""
        with self._lock:
            return self._space.queue(queue).complete(task_id, token, result)

    async def task_fail(
        self, queue: str, task_id: str, token: int, error: str, retry_in: float | None
    ) -> bool:
        """See `Backend.task_fail`."""
        with self._lock:
            return self._space.queue(queue).fail(task_id, token, error, retry_in)

    async def task_release(self, queue: str, task_id: str, token: int) -> bool:
        """See `Backend.task_release`."""
        with self._lock:
            return self._space.queue(queue).release(task_id, token)

    async def tasks_dead(self, queue: str, keys: Collection[str] | None) -> list[DeadTask]:
        """See `Backend.tasks_dead`."""
        with self._lock:
            return self._space.queue(queue).dead(keys)

    async def tasks_requeue(self, queue: str, ids: Collection[str] | None) -> int:
        """See `Backend.tasks_requeue`."""
        with self._lock:
            return self._space.queue(queue).requeue(ids)

    async def tasks_results(
        self, queue: str, by: Literal["id", "key"], names: Collection[str] | None
    ) -> dict[str, str]:
        """See `Backend.tasks_results`."""
        with self._lock:
            return self._space.queue(queue).results(by, names)

    async def tasks_stats(self, queue: str) -> QueueStats:
        """See `Backend.tasks_stats`."""
        with self._lock:
            return self._space.queue(queue).stats()

    async def tasks_purge(self, queue: str, states: Collection[TaskState]) -> int:
        """See `Backend.tasks_purge`."""
        with self._lock:
            return self._space.queue(queue).purge(states)

    # -- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """See `Backend.close`."""
        self._store = None


def _integer(key: str, text: str | None) -> int:
    digits = "0" if text is None else text
    try:
        value = int(digits)
    except ValueError:
        raise InvalidTypeError(f"{key!r} holds {digits[:100]}, which is no integer") from None
    if not -(2**63) <= value < 2**63:
        raise InvalidArgumentError(f"{key!r} holds {digits[:100]}, which exceeds 64 bits")
    return value


# Guards _named: between finding no store of a name and making it, another thread could make one.
_naming = threading.Lock()
_named: weakref.WeakValueDictionary[str, MemoryStore] = weakref.WeakValueDictionary()


async def open_backend(url: str, namespace: str) -> MemoryBackend:
    """Open ``memory:`` or ``memory:NAME``."""
    name = url.partition(":")[2]
    if not name:
        return MemoryBackend(namespace=namespace)
    check_name("the name of a memory store", name)
    with _naming:
        store = _named.get(name)
        if store is None:
            store = _named[name] = MemoryStore()
    return MemoryBackend(store, namespace)
