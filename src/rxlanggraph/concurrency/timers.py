"""Deadlines: a heap of them, and one timer of a loop for deadlines that are mostly cancelled."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Hashable, Iterator
from itertools import count
from typing import Generic, Protocol, TypeVar

__all__ = ["DeadlineHeap", "Expirable", "SharedTimer"]

_T = TypeVar("_T", bound=Hashable)


class DeadlineHeap(Generic[_T]):
    """Items with a deadline each. Guarded by the lock of its owner, or confined to its thread.

    The heap also holds deadlines that were changed or cancelled since; `deadlines` has the current
    ones. The heap is rebuilt when less than half of it is current, so stale entries stay few.

    Attributes:
        deadlines: When each item is due. Read by the owner directly, as a method would be slower.
    """

    def __init__(self) -> None:
        self.deadlines: dict[_T, float] = {}
        # The number breaks ties in the order of `put`: items need not be orderable.
        self._heap: list[tuple[float, int, _T]] = []
        self._numbers = count()

    def put(self, item: _T, deadline: float) -> None:
        """Give ``item`` its deadline, replacing any other. Amortised O(log n)."""
        self.deadlines[item] = deadline
        heapq.heappush(self._heap, (deadline, next(self._numbers), item))
        self._tidy()

    def discard(self, item: _T) -> None:
        """Remove ``item``, if it has a deadline."""
        self.deadlines.pop(item, None)
        self._tidy()

    def first(self) -> float | None:
        """Return the earliest deadline; None if there is none."""
        while self._heap:
            deadline, _, item = self._heap[0]
            if self.deadlines.get(item) == deadline:
                return deadline
            heapq.heappop(self._heap)
        return None

    def take_due(self, now: float) -> Iterator[_T]:
        """Remove and yield, earliest first, the items whose deadline is not after ``now``."""
        while self._heap and self._heap[0][0] <= now:
            deadline, _, item = heapq.heappop(self._heap)
            if self.deadlines.get(item) == deadline:
                del self.deadlines[item]
                yield item
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self.deadlines) + 16:
            self._heap = [
                (deadline, next(self._numbers), item) for item, deadline in self.deadlines.items()
            ]
            heapq.heapify(self._heap)


class Expirable(Hashable, Protocol):
    """An item with a deadline of a `SharedTimer`."""

    def on_deadline(self) -> None:
        """Called at the deadline, on the loop. Must neither block nor raise."""


class SharedTimer:
    """One timer of a loop for the deadlines of many items. Confined to its loop.

    Most claims end long before their leases have to be renewed. To set a timer of the loop for each
    claim, and cancel it, would take as long as all other work of a claim in this process.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: DeadlineHeap[Expirable] = DeadlineHeap()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def set(self, item: Expirable, when: float) -> None:
        """Give ``item`` the deadline ``when``, in the loop's time, replacing any other."""
        if self._is_stopped:
            return
        self._deadlines.put(item, when)
        if self._timer is None or when < self._timer.when():
            self._arm(when)

    def discard(self, item: Expirable) -> None:
        """Cancel the deadline of ``item``, if it has one."""
        # The timer stays: when it fires, it is armed for the remaining deadlines.
        self._deadlines.discard(item)

    def stop(self) -> None:
        """Cancel all deadlines, later ones included."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._deadlines = DeadlineHeap()

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        try:
            for item in self._deadlines.take_due(self._loop.time()):
                item.on_deadline()
        finally:
            # Also if one raises: the others, those that are due included, have their turn.
            first = self._deadlines.first()
            if first is not None:
                self._arm(first)
