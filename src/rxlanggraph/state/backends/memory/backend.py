"""The store in memory: for programs of one process, and for tests.

``memory:`` is private to the state that opened it; ``memory:NAME`` is one store for all states of
the process that have it open, on whatever loop, and is gone when the last one closes it.

The one lock of a store guards all its data. A critical section neither awaits nor calls code of the
caller, so each operation is atomic (rule 1 of the contract).
"""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice, starmap
from time import monotonic, time
from typing import Final, Literal, NamedTuple

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.timers import DeadlineHeap
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
from rxlanggraph.state.backends.memory.queue import MemoryQueue
from rxlanggraph.validation import check_identifier

__all__ = ["ImmediateMemoryBackend", "MemoryBackend", "MemoryStore", "open_backend"]

_ABSENT: Final = StoredValue(None, 0)


class _HeldLock(NamedTuple):
    owner: str
    token: int
    expires: float


class _Namespace:
    """Values, locks and queues, as `Backend` describes them. Guarded by the lock of the store.

    Args:
        clock: Returns seconds; monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._epoch = time() - clock()
        self._numbers = itertools.count(1)  # versions, tokens and places
        self._entries: dict[str, StoredValue] = {}
        # When entries with a time to live expire.
        self._expiries: DeadlineHeap[str] = DeadlineHeap()
        # By key, the highest token that has written it.
        self._fences: dict[str, int] = {}
        # When the fences of keys that are gone are forgotten.
        self._fence_expiries: DeadlineHeap[str] = DeadlineHeap()
        # Includes expired ones, until the next lock is acquired.
        self._locks: dict[str, _HeldLock] = {}
        self._leases: DeadlineHeap[str] = DeadlineHeap()
        self._queues: dict[str, MemoryQueue] = {}

    # -- values ------------------------------------------------------------------------------

    def read(self, keys: Sequence[str]) -> list[StoredValue]:
        """Return the entries of ``keys``, as of one moment."""
        self._sweep()
        return [self._entries.get(key, _ABSENT) for key in keys]

    def entry(self, key: str) -> StoredValue:
        """Return the entry of ``key``."""
        self._sweep()
        return self._entries.get(key, _ABSENT)

    def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        """Make all ``changes`` if all ``checks`` hold; None if not.

        Raises:
            StaleTokenError: A token is too old; nothing was changed.
        """
        self._sweep()
        entries = self._entries
        for key, change in changes.items():
            if change.token is not None:
                self._check_fence(key, change.token)
        for key, version in checks.items():
            if entries.get(key, _ABSENT).version != version:
                return None
        return {
            key: WriteResult(entries.get(key, _ABSENT).version, self._write(key, *change))
            for key, change in changes.items()
        }

    def replace(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        """Write ``text`` if ``key`` has ``version``; return the new one, or None.

        Raises:
            StaleTokenError: ``token`` is too old; nothing was changed.
        """
        self._sweep()
        if token is not None:
            self._check_fence(key, token)
        if self._entries.get(key, _ABSENT).version != version:
            return None
        return self._write(key, text, ttl, token)

    def increment(self, key: str, by: int, token: int | None) -> int:
        """Add ``by`` to the integer under ``key``; return the sum.

        Raises:
            StaleTokenError: ``token`` is too old.
            InvalidTypeError, InvalidArgumentError: Not an integer, or it or the sum is too large.
        """
        self._sweep()
        if token is not None:
            self._check_fence(key, token)
        entry = self._entries.get(key)
        total = by if entry is None else _integer(key, entry.text) + by
        if not -(2**63) <= total < 2**63:
            raise counter_overflow(key, None if entry is None else entry.text)
        if self._fence_expiries.deadlines:
            self._fence_expiries.discard(key)
        self._entries[key] = StoredValue(str(total), next(self._numbers))
        if token is not None:
            self._fences[key] = token
        return total

    def _sweep(self) -> None:
        if self._expiries.deadlines:
            for key in self._expiries.take_due(self._clock()):
                del self._entries[key]
                self._forget_later(key)
        if self._fence_expiries.deadlines:
            for key in self._fence_expiries.take_due(self._clock()):
                del self._fences[key]

    def _forget_later(self, key: str) -> None:
        if key in self._fences:
            self._fence_expiries.put(key, self._clock() + FENCE_RETENTION)

    def _check_fence(self, key: str, token: int) -> None:
        fence = self._fences.get(key)
        if fence is not None and token < fence:
            raise stale_token(key, token, fence)

    def _write(self, key: str, text: str | None, ttl: float | None, token: int | None) -> int:
        if token is not None:
            self._fences[key] = token
        if self._expiries.deadlines:
            self._expiries.discard(key)
        if text is None:
            self._entries.pop(key, None)
            self._forget_later(key)
            return 0
        if self._fence_expiries.deadlines:
            self._fence_expiries.discard(key)
        if ttl is not None:
            self._expiries.put(key, self._clock() + ttl)
        version = next(self._numbers)
        self._entries[key] = StoredValue(text, version)
        return version

    # -- locks -------------------------------------------------------------------------------

    def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        """Acquire a lock, or renew it for the same owner; None if another owner holds it."""
        held = self._holder(key)
        if held is not None and held.owner != owner:
            return None
        token = next(self._numbers) if held is None else held.token
        for expired in self._leases.take_due(self._clock()):
            self._locks.pop(expired, None)
        self._hold(key, _HeldLock(owner, token, self._clock() + ttl))
        return token

    def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """Renew a lease, if ``token`` is current."""
        held = self._holder(key)
        if held is None or held.token != token:
            return False
        self._hold(key, held._replace(expires=self._clock() + ttl))
        return True

    def lock_release(self, key: str, token: int) -> bool:
        """Release a lock, if ``token`` is current."""
        held = self._holder(key)
        if held is None or held.token != token:
            return False
        del self._locks[key]
        self._leases.discard(key)
        return True

    def _holder(self, key: str) -> _HeldLock | None:
        held = self._locks.get(key)
        return None if held is None or held.expires <= self._clock() else held

    def _hold(self, key: str, held: _HeldLock) -> None:
        self._locks[key] = held
        self._leases.put(key, held.expires)

    # -- work --------------------------------------------------------------------------------

    def queue(self, name: str) -> MemoryQueue:
        """Return the queue ``name``; if there is none, an empty one that is not stored."""
        queue = self._queues.get(name)
        return MemoryQueue(self._numbers, self._clock, self._epoch) if queue is None else queue

    def add(self, name: str, tasks: Sequence[NewTask]) -> list[str]:
        """Add tasks to the queue ``name``; return the ids."""
        queue = self._queues[name] = self.queue(name)
        return [queue.add(task) for task in tasks]

    def queues_page(self, after: str | None, limit: int) -> Page[str]:
        """Return the names of the next queues."""
        return _names_after(self._queues, "", after, limit)

    def keys_page(self, prefix: str, after: str | None, limit: int) -> Page[KeyInfo]:
        """Return the next keys that begin with ``prefix``."""
        self._sweep()
        names = _names_after(self._entries, prefix, after, limit)
        now, expiries = self._clock(), self._expiries.deadlines
        found = [
            KeyInfo(
                key, self._entries[key].version, expiries[key] - now if key in expiries else None
            )
            for key in names.items
        ]
        return Page(found, names.after)

    def locks_page(self, after: str | None, limit: int) -> Page[HeldLock]:
        """Return the next locks that are held."""
        names = _names_after(self._locks, "", after, limit)
        held = {key: lock for key in names.items if (lock := self._holder(key)) is not None}
        now = self._clock()
        return Page(
            [HeldLock(key, lock.token, lock.expires - now) for key, lock in held.items()],
            names.after,
        )

    def delete(self, name: str, ids: Collection[str], states: Collection[TaskState]) -> int:
        """Delete tasks, and the queue if it is empty then."""
        queue = self.queue(name)
        count = queue.delete(ids, states)
        if not queue:
            self._queues.pop(name, None)
        return count

    def purge_step(self, name: str, states: Collection[TaskState], after: str | None) -> Step:
        """Delete some tasks, and the queue if it is empty then."""
        queue = self.queue(name)
        step = queue.purge_step(states, after)
        if not queue:
            self._queues.pop(name, None)
        return step


def _names_after(names: Collection[str], prefix: str, after: str | None, limit: int) -> Page[str]:
    """Return the next names that begin with ``prefix``, in order."""
    following = (n for n in names if n.startswith(prefix) and (after is None or n > after))
    found = heapq.nsmallest(limit, following)
    return Page(found, found[-1] if len(found) == limit else None)


def _integer(key: str, text: str | None) -> int:
    digits = text or ""
    try:
        value = int(digits)
    except ValueError:
        raise not_an_integer(key, digits) from None
    if not -(2**63) <= value < 2**63:
        raise counter_overflow(key, digits)
    return value


class MemoryStore:
    """The data that several `MemoryBackend` share: namespaces, lock and clock.

    Args:
        clock: Seconds, from any origin; monotonic. Must be the same for all users of the store.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.lock = fork_safe_rlock()
        self._clock = clock
        # Guarded by the lock, their contents included.
        self._namespaces: dict[str, _Namespace] = {}

    def namespace(self, namespace: str) -> _Namespace:
        """Return the data of ``namespace``. Takes the lock."""
        with self.lock:
            return self._namespaces.setdefault(namespace, _Namespace(self._clock))


class MemoryBackend:
    """A `Backend` in the memory of this process. Its methods never suspend.

    Args:
        store: The store to use; None for a store of its own.
        namespace: The namespace in that store.
        clock: The clock for a store of its own.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        namespace: str = "rxlanggraph",
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        # Kept until `close`: the reference keeps a named store alive.
        self._store: MemoryStore | None = MemoryStore(clock) if store is None else store
        self._lock = self._store.lock
        self._namespace = self._store.namespace(namespace)

    # -- keys --------------------------------------------------------------------------------

    async def read(self, keys: Sequence[str]) -> list[StoredValue]:
        """See `Backend.read`."""
        with self._lock:
            return self._namespace.read(keys)

    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        """See `Backend.commit`."""
        with self._lock:
            return self._namespace.commit(changes, checks)

    async def increment(self, key: str, by: int, token: int | None) -> int:
        """See `Backend.increment`."""
        with self._lock:
            return self._namespace.increment(key, by, token)

    # -- locks -------------------------------------------------------------------------------

    async def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        """See `Backend.lock_acquire`."""
        with self._lock:
            return self._namespace.lock_acquire(key, owner, ttl)

    async def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """See `Backend.lock_renew`."""
        with self._lock:
            return self._namespace.lock_renew(key, token, ttl)

    async def lock_release(self, key: str, token: int) -> bool:
        """See `Backend.lock_release`."""
        with self._lock:
            return self._namespace.lock_release(key, token)

    # -- work --------------------------------------------------------------------------------

    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        """See `Backend.tasks_add`."""
        with self._lock:
            return self._namespace.add(queue, tasks)

    async def task_claim(
        self, queue: str, worker: str, lease: float, max_claimed: int | None = None
    ) -> ClaimedTask | None:
        """See `Backend.task_claim`."""
        with self._lock:
            return self._namespace.queue(queue).claim(worker, lease, max_claimed)

    async def tasks_claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None = None
    ) -> list[ClaimedTask]:
        """See `Backend.tasks_claim`."""
        with self._lock:
            claim = partial(self._namespace.queue(queue).claim, worker, lease, max_claimed)
            return [*islice(iter(claim, None), count)]

    async def task_renew(
        self, queue: str, task_id: str, token: int, lease: float, max_claimed: int | None = None
    ) -> bool:
        """See `Backend.task_renew`."""
        with self._lock:
            return self._namespace.queue(queue).renew(task_id, token, lease, max_claimed)

    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        """See `Backend.task_complete`."""
        with self._lock:
            return self._namespace.queue(queue).complete(task_id, token, result)

    async def tasks_complete(self, queue: str, done: Sequence[DoneTask]) -> list[bool]:
        """See `Backend.tasks_complete`."""
        with self._lock:
            return [*starmap(self._namespace.queue(queue).complete, done)]

    async def task_fail(
        self, queue: str, task_id: str, token: int, error: str, retry_in: float | None
    ) -> bool:
        """See `Backend.task_fail`."""
        with self._lock:
            return self._namespace.queue(queue).fail(task_id, token, error, retry_in)

    async def task_release(self, queue: str, task_id: str, token: int) -> bool:
        """See `Backend.task_release`."""
        with self._lock:
            return self._namespace.queue(queue).release(task_id, token)

    async def tasks_dead(self, queue: str, keys: Collection[str]) -> list[DeadTask]:
        """See `Backend.tasks_dead`."""
        with self._lock:
            return self._namespace.queue(queue).dead(keys)

    async def tasks_dead_page(self, queue: str, after: str | None, limit: int) -> Page[DeadTask]:
        """See `Backend.tasks_dead_page`."""
        with self._lock:
            return self._namespace.queue(queue).dead_page(after, limit)

    async def tasks_requeue(self, queue: str, ids: Collection[str]) -> int:
        """See `Backend.tasks_requeue`."""
        with self._lock:
            return self._namespace.queue(queue).requeue(ids)

    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        """See `Backend.tasks_requeue_step`."""
        with self._lock:
            return self._namespace.queue(queue).requeue_step(after)

    async def tasks_results(
        self, queue: str, by: Literal["id", "key"], names: Collection[str]
    ) -> dict[str, str]:
        """See `Backend.tasks_results`."""
        with self._lock:
            return self._namespace.queue(queue).results(by, names)

    async def tasks_results_page(
        self, queue: str, after: str | None, limit: int
    ) -> Page[tuple[str, str]]:
        """See `Backend.tasks_results_page`."""
        with self._lock:
            return self._namespace.queue(queue).results_page(after, limit)

    async def tasks_stats(self, queue: str) -> QueueStats:
        """See `Backend.tasks_stats`."""
        with self._lock:
            return self._namespace.queue(queue).stats()

    # -- looking after it --------------------------------------------------------------------

    async def queues_page(self, after: str | None, limit: int) -> Page[str]:
        """See `Backend.queues_page`."""
        with self._lock:
            return self._namespace.queues_page(after, limit)

    async def tasks_page(self, queue: str, after: str | None, limit: int) -> Page[StoredTask]:
        """See `Backend.tasks_page`."""
        with self._lock:
            return self._namespace.queue(queue).page(after, limit)

    async def task_read(self, queue: str, task_id: str) -> StoredTask | None:
        """See `Backend.task_read`."""
        with self._lock:
            return self._namespace.queue(queue).read(task_id)

    async def tasks_cancel(self, queue: str, ids: Collection[str], error: str) -> int:
        """See `Backend.tasks_cancel`."""
        with self._lock:
            return self._namespace.queue(queue).cancel(ids, error)

    async def tasks_delete(
        self, queue: str, ids: Collection[str], states: Collection[TaskState]
    ) -> int:
        """See `Backend.tasks_delete`."""
        with self._lock:
            return self._namespace.delete(queue, ids, states)

    async def keys_page(self, prefix: str, after: str | None, limit: int) -> Page[KeyInfo]:
        """See `Backend.keys_page`."""
        with self._lock:
            return self._namespace.keys_page(prefix, after, limit)

    async def locks_page(self, after: str | None, limit: int) -> Page[HeldLock]:
        """See `Backend.locks_page`."""
        with self._lock:
            return self._namespace.locks_page(after, limit)

    async def tasks_purge_step(
        self, queue: str, states: Collection[TaskState], after: str | None
    ) -> Step:
        """See `Backend.tasks_purge_step`."""
        with self._lock:
            return self._namespace.purge_step(queue, states, after)

    # -- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """See `Backend.close`."""
        self._store = None


class ImmediateMemoryBackend(MemoryBackend):
    """The `ImmediateBackend` that `open_state` opens.

    `MemoryBackend` lacks the two methods, so that a state calls the methods that a subclass of it
    overrides.
    """

    def read_now(self, key: str) -> StoredValue:
        """See `ImmediateBackend.read_now`."""
        with self._lock:
            return self._namespace.entry(key)

    def replace_now(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        """See `ImmediateBackend.replace_now`."""
        with self._lock:
            return self._namespace.replace(key, version, text, ttl, token)


# Guards _named: another thread could make the store between the look-up and the insertion.
_named_lock = fork_safe_rlock()
_named: weakref.WeakValueDictionary[str, MemoryStore] = weakref.WeakValueDictionary()


async def open_backend(url: str, namespace: str) -> ImmediateMemoryBackend:
    """Open ``memory:`` or ``memory:NAME``."""
    name = url.partition(":")[2]
    if not name:
        return ImmediateMemoryBackend(namespace=namespace)
    check_identifier("the name of a memory store", name)
    with _named_lock:
        store = _named.get(name)
        if store is None:
            store = _named[name] = MemoryStore()
    return ImmediateMemoryBackend(store, namespace)
