"""Results brought to the loop that waits for them.

``await source.pipe(...)`` of RxPY resolves an asyncio future in the thread that a result comes
from. From another thread than its loop's that wakes nobody: the loop sleeps on, for ever if nothing
else happens on it. RxPY hands the asyncio scheduler of such a subscription up through its
operators; so it is known where the results are to go.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from reactivex import abc
from reactivex.scheduler.eventloop import AsyncIOScheduler

__all__ = ["OnLoop", "loop_behind"]

_T = TypeVar("_T")


def loop_behind(scheduler: abc.SchedulerBase | None) -> asyncio.AbstractEventLoop | None:
    """Return the running loop, if ``scheduler`` says that it is what subscribes; else None."""
    return asyncio._get_running_loop() if isinstance(scheduler, AsyncIOScheduler) else None


class OnLoop(abc.ObserverBase[_T]):
    """Passes every notification on to ``observer`` in the thread of ``loop``, in order.

    Any thread; never blocks. What ``observer`` does after its end is its own affair: RxPY's drop
    what still comes.

    Raises:
        RuntimeError: From its methods: the loop is closed.
    """

    def __init__(self, observer: abc.ObserverBase[_T], loop: asyncio.AbstractEventLoop) -> None:
        self._observer = observer
        self._loop = loop

    def on_next(self, value: _T) -> None:
        """Have the loop pass ``value`` on."""
        self._loop.call_soon_threadsafe(self._observer.on_next, value)

    def on_error(self, error: Exception) -> None:
        """Have the loop pass the end on, with an error."""
        self._loop.call_soon_threadsafe(self._observer.on_error, error)

    def on_completed(self) -> None:
        """Have the loop pass the end on."""
        self._loop.call_soon_threadsafe(self._observer.on_completed)
