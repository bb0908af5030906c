"""Results delivered on the loop that awaits them.

``await source.pipe(...)`` of RxPY resolves an asyncio future in the thread that delivers the
result. Done from another thread than its loop's, this wakes nothing: the loop sleeps on, forever
if nothing else happens on it. RxPY passes the asyncio scheduler of such a subscription up through
its operators, which tells where the results have to go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from reactivex import abc
from reactivex.scheduler.eventloop import AsyncIOScheduler

__all__ = ["OnLoop", "loop_behind"]

_T = TypeVar("_T")


def loop_behind(scheduler: abc.SchedulerBase | None) -> asyncio.AbstractEventLoop | None:
    """Return the running loop, if ``scheduler`` shows that it subscribes; else None."""
    return asyncio._get_running_loop() if isinstance(scheduler, AsyncIOScheduler) else None


class OnLoop(abc.ObserverBase[_T]):
    """Passes every notification on to ``observer`` in the thread of ``loop``, in order.

    Any thread; never blocks. What arrives after ``observer`` has ended is left to ``observer``:
    those of RxPY drop it.

    Raises:
        RuntimeError: From its methods: the loop is closed.
    """

    def __init__(self, observer: abc.ObserverBase[_T], loop: asyncio.AbstractEventLoop) -> None:
        self._observer = observer
        self.loop = loop
        # Two counters with one writer each: the caller of the methods, and the loop.
        self._passed = 0
        self._delivered = 0

    @property
    def backlog(self) -> int:
        """How many items are on their way to ``observer``. Any thread; never blocks."""
        return self._passed - self._delivered

    def on_next(self, value: _T) -> None:
        """Pass ``value`` on, on the loop."""
        self.loop.call_soon_threadsafe(self._deliver, value)
        self._passed += 1

    def _deliver(self, value: _T) -> None:
        self._delivered += 1
        self._observer.on_next(value)

    def call(self, function: Callable[[], object]) -> None:
        """Call ``function`` on the loop, behind the items. At once if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            function()

    def on_error(self, error: Exception) -> None:
        """Pass the end on, with an error, on the loop."""
        self.loop.call_soon_threadsafe(self._observer.on_error, error)

    def on_completed(self) -> None:
        """Pass the end on, on the loop."""
        self.loop.call_soon_threadsafe(self._observer.on_completed)
