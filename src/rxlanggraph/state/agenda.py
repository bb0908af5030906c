"""What falls due when: a heap whose entries can be changed and taken back."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

__all__ = ["Agenda"]

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
