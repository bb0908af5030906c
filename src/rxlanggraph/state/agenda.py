"""What falls due when: a heap whose entries can be changed and taken back."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

__all__ = ["Agenda"]


class Agenda:
    """Names with a date each. Guarded by whatever guards its owner.

    The heap also holds dates that were changed or taken back since; `_dates` knows which are
    true. It is built anew when less than half of it is.
    """

    def __init__(self) -> None:
        self._dates: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def put(self, name: str, date: float) -> None:
        """Give ``name`` its date, instead of any other. Amortised O(log n)."""
        self._dates[name] = date
        heapq.heappush(self._heap, (date, name))
        if len(self._heap) > 2 * len(self._dates) + 16:
            self._heap = [(date, name) for name, date in self._dates.items()]
            heapq.heapify(self._heap)

    def discard(self, name: str) -> None:
        """Forget ``name``, if it is there."""
        self._dates.pop(name, None)

    def take_due(self, now: float) -> Iterator[str]:
        """Take out, earliest first, the names whose date is not after ``now``."""
        while self._heap and self._heap[0][0] <= now:
            date, name = heapq.heappop(self._heap)
            if self._dates.get(name) == date:
                del self._dates[name]
                yield name
