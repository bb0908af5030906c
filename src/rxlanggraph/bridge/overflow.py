"""What happens to a message for which ``max_pending`` leaves no room, and which run gives way.

What breaks without a policy: a source that is faster than its graph fills the memory, or has to be
stopped. A source that cannot be stopped (a sensor, a socket, a web handler) has to lose something,
and to learn what.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Literal, TypeAlias

from rxlanggraph.bridge.run import Run

__all__ = ["OVERFLOW_POLICIES", "DropOrder", "Latest", "Overflow", "drop_order"]

Overflow: TypeAlias = Literal["block", "error", "drop_newest", "drop_oldest", "latest"]
OVERFLOW_POLICIES: tuple[Overflow, ...] = ("block", "error", "drop_newest", "drop_oldest", "latest")


class DropOrder:
    """The runs that may give way to a newer one, the oldest first.

    Every operation takes constant time. Not thread-safe: guarded by the lock of its owner.
    """

    def __init__(self) -> None:
        # Not a dict: from one whose first keys were removed, finding the first takes linear time.
        self._runs: OrderedDict[Run, None] = OrderedDict()

    def add(self, run: Run) -> None:
        """Add ``run``, as the newest."""
        self._runs[run] = None

    def discard(self, run: Any) -> None:
        """Remove ``run``, if it is here."""
        self._runs.pop(run, None)

    def first(self, newcomer: Run) -> Run | None:
        """The run that gives way to ``newcomer``; None if there is none."""
        return next(iter(self._runs), None)


class Latest(DropOrder):
    """Runs that a newer one of their thread has superseded give way first, then the oldest."""

    def __init__(self) -> None:
        super().__init__()
        self._by_thread: dict[str, OrderedDict[Run, None]] = {}
        self._superseded: OrderedDict[Run, None] = OrderedDict()

    def add(self, run: Run) -> None:
        """Add ``run``, which supersedes the one of its thread that was the newest."""
        super().add(run)
        if run.thread_id is None:
            return
        lane = self._by_thread.setdefault(run.thread_id, OrderedDict())
        if lane:
            self._superseded[next(reversed(lane))] = None
        lane[run] = None

    def discard(self, run: Any) -> None:
        """Remove ``run``, if it is here; the one before it may then be the latest again."""
        super().discard(run)
        self._superseded.pop(run, None)
        lane = None if run.thread_id is None else self._by_thread.get(run.thread_id)
        if lane is None or run not in lane:
            return
        del lane[run]
        if lane:
            self._superseded.pop(next(reversed(lane)), None)
        else:
            del self._by_thread[run.thread_id]

    def first(self, newcomer: Run) -> Run | None:
        """The run that was superseded first, which may be by ``newcomer``; or else the oldest."""
        if self._superseded:
            return next(iter(self._superseded))
        lane = None if newcomer.thread_id is None else self._by_thread.get(newcomer.thread_id)
        return super().first(newcomer) if lane is None else next(reversed(lane))


def drop_order(overflow: Overflow) -> DropOrder | None:
    """Make the order in which runs give way to newer ones; None if none of them does."""
    if overflow == "latest":
        return Latest()
    return DropOrder() if overflow == "drop_oldest" else None
