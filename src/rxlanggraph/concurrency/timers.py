"""Deadlines: a heap of them, and one timer of a loop for deadlines that are mostly cancelled."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Hashable, Iterator
from itertools import count
from typing import Generic, Protocol, TypeVar

__all__ = ["Agenda", "Alarm", "Ringable"]

_T = TypeVar("_T", bound=Hashable)


class Agenda(Generic[_T]):
    """Items with a date each. Guarded by whatever guards its owner.

    The heap also holds dates that were changed or taken back since; `dates` knows which are
    true. It is built anew when less than half of it is, so that little is kept of the others.

    Attributes:
        dates: When each item falls due; for its owner to read, which is quicker than a method.
    """

    def __init__(self) -> None:
        self.dates: dict[_T, float] = {}
        # Of two with the same date the one that was put first; items need have no order.
        self._heap: list[tuple[float, int, _T]] = []
        self._numbers = count()

    def put(self, item: _T, date: float) -> None:
        """Give ``item`` its date, instead of any other. Amortised O(log n)."""
        self.dates[item] = date
        heapq.heappush(self._heap, (date, next(self._numbers), item))
        self._tidy()

    def discard(self, item: _T) -> None:
        """Forget ``item``, if it is there."""
        self.dates.pop(item, None)
        self._tidy()

    def first(self) -> float | None:
        """Return the earliest date; None if there is none."""
        while self._heap:
            date, _, item = self._heap[0]
            if self.dates.get(item) == date:
                return date
            heapq.heappop(self._heap)
        return None

    def take_due(self, now: float) -> Iterator[_T]:
        """Take out, earliest first, the items whose date is not after ``now``."""
        while self._heap and self._heap[0][0] <= now:
            date, _, item = heapq.heappop(self._heap)
            if self.dates.get(item) == date:
                del self.dates[item]
                yield item
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self.dates) + 16:
            self._heap = [(date, next(self._numbers), item) for item, date in self.dates.items()]
            heapq.heapify(self._heap)


class Ringable(Hashable, Protocol):
    """Who wants to be rung up."""

    def ring(self) -> None:
        """The time has come. On the loop; never blocks, never raises."""


class Alarm:
    """Rings at the time that each has set. Confined to its loop.

    A lease is renewed long after most claims have ended: to set a timer of the loop for each, and
    to take it back, would take as long as all else that a claim takes in this process.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._agenda: Agenda[Ringable] = Agenda()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def set(self, whom: Ringable, when: float) -> None:
        """Ring ``whom`` at ``when``, in the loop's time, instead of at any other."""
        if self._is_stopped:
            return
        self._agenda.put(whom, when)
        if self._timer is None or when < self._timer.when():
            self._wind(when)

    def discard(self, whom: Ringable) -> None:
        """Do not ring ``whom``."""
        # The timer stays: when it comes it is wound for who is left.
        self._agenda.discard(whom)

    def stop(self) -> None:
        """Ring nobody any more, whatever is set."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._agenda = Agenda()

    def _wind(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        for whom in self._agenda.take_due(self._loop.time()):
            whom.ring()
        first = self._agenda.first()
        if first is not None:
            self._wind(first)
