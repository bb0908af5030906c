"""The store in this process: for one process, and for tests of what will use another store.

``memory:`` is private to the state that opened it; ``memory:NAME`` is the same store
for all states of the process that have it open, on whatever loop, and is gone when the last one
closes it.

Everything of a store is guarded by its one lock, a plain one: each section is a few steps of pure
Python, none of them awaits or runs a caller's code, so that no task and no thread is ever seen
half-way (rule 1 of the contract).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Literal

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.state.backend import (
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
)
from rxlanggraph.state.backends.memory.namespace import MemoryNamespace
from rxlanggraph.state.codec import check_name

__all__ = ["ImmediateMemoryBackend", "MemoryBackend", "MemoryStore", "open_backend"]


class MemoryStore:
    """What several `MemoryBackend` share: the spaces, the lock, and the clock.

    Args:
        clock: Seconds, from any origin; monotonic. Must be the same for all users of the store.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.lock = fork_safe_rlock()
        self._clock = clock
        # Guarded by the lock, all that is inside included.
        self._spaces: dict[str, MemoryNamespace] = {}

    def space(self, namespace: str) -> MemoryNamespace:
        """The space of ``namespace``. Takes the lock."""
        with self.lock:
            return self._spaces.setdefault(namespace, MemoryNamespace(self._clock))


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

    async def read(self, keys: Sequence[str]) -> list[StoredValue]:
        """See `Backend.read`."""
        with self._lock:
            return self._space.read(keys)

    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        """See `Backend.commit`."""
        with self._lock:
            return self._space.commit(changes, checks)

    async def increment(self, key: str, by: int, token: int | None) -> int:
        """See `Backend.increment`."""
        with self._lock:
            return self._space.increment(key, by, token)

    # -- locks -------------------------------------------------------------------------------

    async def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        """See `Backend.lock_acquire`."""
        with self._lock:
            return self._space.lock_acquire(key, owner, ttl)

    async def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """See `Backend.lock_renew`."""
        with self._lock:
            return self._space.lock_renew(key, token, ttl)

    async def lock_release(self, key: str, token: int) -> bool:
        """See `Backend.lock_release`."""
        with self._lock:
            return self._space.lock_release(key, token)

    # -- work --------------------------------------------------------------------------------

    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        """See `Backend.tasks_add`."""
        with self._lock:
            return self._space.add(queue, tasks)

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

    async def tasks_dead(self, queue: str, keys: Collection[str]) -> list[DeadTask]:
        """See `Backend.tasks_dead`."""
        with self._lock:
            return self._space.queue(queue).dead(keys)

    async def tasks_dead_page(self, queue: str, after: str | None, most: int) -> Page[DeadTask]:
        """See `Backend.tasks_dead_page`."""
        with self._lock:
            return self._space.queue(queue).dead_page(after, most)

    async def tasks_requeue(self, queue: str, ids: Collection[str]) -> int:
        """See `Backend.tasks_requeue`."""
        with self._lock:
            return self._space.queue(queue).requeue(ids)

    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        """See `Backend.tasks_requeue_step`."""
        with self._lock:
            return self._space.queue(queue).requeue_step(after)

    async def tasks_results(
        self, queue: str, by: Literal["id", "key"], names: Collection[str]
    ) -> dict[str, str]:
        """See `Backend.tasks_results`."""
        with self._lock:
            return self._space.queue(queue).results(by, names)

    async def tasks_results_page(
        self, queue: str, after: str | None, most: int
    ) -> Page[tuple[str, str]]:
        """See `Backend.tasks_results_page`."""
        with self._lock:
            return self._space.queue(queue).results_page(after, most)

    async def tasks_stats(self, queue: str) -> QueueStats:
        """See `Backend.tasks_stats`."""
        with self._lock:
            return self._space.queue(queue).stats()

    async def tasks_purge_step(
        self, queue: str, states: Collection[TaskState], after: str | None
    ) -> Step:
        """See `Backend.tasks_purge_step`."""
        with self._lock:
            return self._space.purge_step(queue, states, after)

    # -- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """See `Backend.close`."""
        self._store = None


class ImmediateMemoryBackend(MemoryBackend):
    """What `open_state` opens: an `ImmediateBackend`.

    The two methods are no part of `MemoryBackend`, so that a subclass that overrides the others is
    asked through them.
    """

    def read_now(self, key: str) -> StoredValue:
        """See `ImmediateBackend.read_now`."""
        with self._lock:
            return self._space.entry(key)

    def replace_now(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        """See `ImmediateBackend.replace_now`."""
        with self._lock:
            return self._space.replace(key, version, text, ttl, token)


# Guards _named: between finding no store of a name and making it, another thread could make one.
_naming = fork_safe_rlock()
_named: weakref.WeakValueDictionary[str, MemoryStore] = weakref.WeakValueDictionary()


async def open_backend(url: str, namespace: str) -> ImmediateMemoryBackend:
    """Open ``memory:`` or ``memory:NAME``."""
    name = url.partition(":")[2]
    if not name:
        return ImmediateMemoryBackend(namespace=namespace)
    check_name("the name of a memory store", name)
    with _naming:
        store = _named.get(name)
        if store is None:
            store = _named[name] = MemoryStore()
    return ImmediateMemoryBackend(store, namespace)
