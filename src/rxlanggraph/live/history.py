"""Minutes: how many messages ended in each second of the last minutes, and the load then."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rxlanggraph.live.schema import History

__all__ = ["SECONDS", "Minutes"]

SECONDS: Final = 300
"""How far back it goes."""


@dataclass(slots=True)
class _Second:
    at: int
    counts: dict[str, int] = field(default_factory=dict)
    load: tuple[int, int] | None = None


class Minutes:
    """The last `SECONDS` seconds in which anything happened. Guarded by its owner's lock."""

    def __init__(self) -> None:
        self._seconds: deque[_Second] = deque([_Second(0)], SECONDS)

    def count(self, status: str, now: float, number: int = 1) -> None:
        """Count messages that have ended."""
        counts = self._second(now).counts
        counts[status] = counts.get(status, 0) + number

    def note_load(self, now: float, active: int, queued: int) -> None:
        """Note how many runs are active, and how many wait."""
        self._second(now).load = active, queued

    def shown(self, now: float) -> History:
        """Return all of it up to ``now``, as data."""
        first = int(now) - SECONDS + 1
        ended = {
            status: [0] * SECONDS
            for status in ("ok", "error", "interrupted", "cancelled", "timed_out", "rejected")
        }
        active: list[int | None] = [None] * SECONDS
        queued: list[int | None] = [None] * SECONDS
        for second in self._seconds:
            at = second.at - first
            if not 0 <= at < SECONDS:
                continue
            for status, number in second.counts.items():
                ended[status][at] += number
            if second.load is not None:
                active[at], queued[at] = second.load
        return {
            "first": first,
            "ok": ended["ok"],
            "error": ended["error"],
            "interrupted": ended["interrupted"],
            "cancelled": ended["cancelled"],
            "timed_out": ended["timed_out"],
            "rejected": ended["rejected"],
            "active": active,
            "queued": queued,
        }

    def _second(self, now: float) -> _Second:
        last = self._seconds[-1]
        if last.at != int(now):
            last = _Second(int(now))
            self._seconds.append(last)
        return last
