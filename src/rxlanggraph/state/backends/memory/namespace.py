"""What one namespace of the store in memory holds: values, locks and queues."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from rxlanggraph.concurrency.timers import DeadlineHeap
from rxlanggraph.state.backend import (
    FENCE_KEPT,
    NewTask,
    Step,
    StoredValue,
    TaskState,
    Write,
    WriteResult,
    counter_overflow,
    not_an_integer,
    stale_token,
)
from rxlanggraph.state.backends.memory.queue import MemoryQueue

__all__ = ["MemoryNamespace"]

_ABSENT: Final = StoredValue(None, 0)


class _Held(NamedTuple):
    owner: str
    token: int
    expires: float


class MemoryNamespace:
    """Values, locks and queues, as `Backend` describes them. Guarded by the lock of the store.

    Args:
        clock: Seconds; never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)  # versions, tokens and places
        self._entries: dict[str, StoredValue] = {}
        # Of the entries that will be gone.
        self._expiries: DeadlineHeap[str] = DeadlineHeap()
        # Of each key the highest token that has written it.
        self._fences: dict[str, int] = {}
        # Of those keys that are gone, when their tokens are forgotten.
        self._gone: DeadlineHeap[str] = DeadlineHeap()
        # Some of them have expired, until the next one is taken.
        self._locks: dict[str, _Held] = {}
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
            InvalidTypeError, InvalidArgumentError: It is no integer, or it or the sum is too large.
        """
        self._sweep()
        if token is not None:
            self._check_fence(key, token)
        entry = self._entries.get(key)
        total = by if entry is None else _integer(key, entry.text) + by
        if not -(2**63) <= total < 2**63:
            raise counter_overflow(key, None if entry is None else entry.text)
        if self._gone.deadlines:
            self._gone.discard(key)
        self._entries[key] = StoredValue(str(total), next(self._numbers))
        if token is not None:
            self._fences[key] = token
        return total

    def _sweep(self) -> None:
        if self._expiries.deadlines:
            for key in self._expiries.take_due(self._clock()):
                del self._entries[key]
                self._forget_later(key)
        if self._gone.deadlines:
            for key in self._gone.take_due(self._clock()):
                del self._fences[key]

    def _forget_later(self, key: str) -> None:
        if key in self._fences:
            self._gone.put(key, self._clock() + FENCE_KEPT)

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
        if self._gone.deadlines:
            self._gone.discard(key)
        if ttl is not None:
            self._expiries.put(key, self._clock() + ttl)
        version = next(self._numbers)
        self._entries[key] = StoredValue(text, version)
        return version

    # -- locks -------------------------------------------------------------------------------

    def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        """Take a lock, or take it again; None if another owner holds it."""
        held = self._holder(key)
        if held is not None and held.owner != owner:
            return None
        token = next(self._numbers) if held is None else held.token
        for expired in self._leases.take_due(self._clock()):
            self._locks.pop(expired, None)
        self._hold(key, _Held(owner, token, self._clock() + ttl))
        return token

    def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """Let a lease begin anew, if ``token`` is current."""
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

    def _holder(self, key: str) -> _Held | None:
        held = self._locks.get(key)
        return None if held is None or held.expires <= self._clock() else held

    def _hold(self, key: str, held: _Held) -> None:
        self._locks[key] = held
        self._leases.put(key, held.expires)

    # -- work --------------------------------------------------------------------------------

    def queue(self, name: str) -> MemoryQueue:
        """Return the queue ``name``; where there is none, one for this call alone."""
        queue = self._queues.get(name)
        return MemoryQueue(self._numbers, self._clock) if queue is None else queue

    def add(self, name: str, tasks: Sequence[NewTask]) -> list[str]:
        """Add tasks to the queue ``name``; return the ids."""
        queue = self._queues[name] = self.queue(name)
        return [queue.add(task) for task in tasks]

    def purge_step(self, name: str, states: Collection[TaskState], after: str | None) -> Step:
        """Forget some tasks, and the queue with the last of them."""
        queue = self.queue(name)
        step = queue.purge_step(states, after)
        if not queue:
            self._queues.pop(name, None)
        return step


def _integer(key: str, text: str | None) -> int:
    digits = text or ""
    try:
        value = int(digits)
    except ValueError:
        raise not_an_integer(key, digits) from None
    if not -(2**63) <= value < 2**63:
        raise counter_overflow(key, digits)
    return value
