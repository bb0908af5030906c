"""Waiters: coroutines that wait on their own loop, and are woken from any thread.

What breaks without it: a future of asyncio belongs to the thread of its loop; resolved from another
one, it resolves, and its loop sleeps on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Waiter", "Wakes", "current_task"]


class Waiter:
    """One coroutine that waits. Made, prepared and awaited on its loop.

    `prepare`, then look whether there is anything to wait for, then `wait`: so that a wake-up which
    comes in between is not lost. A wake-up says no more than "look again".
    """

    __slots__ = ("future", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        # Written by its coroutine; others only look whether there is one.
        self.future: asyncio.Future[None] | None = None

    def prepare(self) -> None:
        """From now on it can be woken. On its loop."""
        self.future = self.loop.create_future()

    def wake(self) -> None:
        """Have it look again. On its loop."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    async def wait(self, delay: float | None = None) -> None:
        """Wait until it is woken, for ``delay`` seconds at most. Can be cancelled."""
        assert self.future is not None
        timer = None if delay is None else self.loop.call_later(max(delay, 0.0), self.wake)
        try:
            await self.future
        finally:
            if timer is not None:
                timer.cancel()


_W = TypeVar("_W", bound=Waiter)


class Wakes(Generic[_W]):
    """Who is to be woken: lined up under a lock, sent without it.

    Args:
        lost: Called with one whose loop is closed.
    """

    def __init__(self, lost: Callable[[_W], object]) -> None:
        self._lost = lost
        # Any thread; its single operations are atomic, on free-threaded CPython too.
        self._waiters: deque[_W] = deque()

    def add(self, waiter: _W) -> None:
        """Line ``waiter`` up. Any thread; never blocks; calls nobody."""
        if waiter.future is not None:  # else it is awake, and looks before it sleeps
            self._waiters.append(waiter)

    def send(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Wake whoever is lined up. Any thread; never blocks. Not under a lock.

        Args:
            here: The running loop, if a coroutine of that loop calls. Otherwise the loop may be
                asleep, and a signal handler may have come in on top of it.
        """
        while self._waiters:
            try:
                waiter = self._waiters.popleft()
            except IndexError:  # another thread was quicker
                return
            loop = waiter.loop
            try:
                (loop.call_soon if loop is here else loop.call_soon_threadsafe)(waiter.wake)
            except RuntimeError:
                self._lost(waiter)


def current_task() -> asyncio.Task[Any] | None:
    """The task that calls; None if nothing but a thread does. Any thread."""
    return None if asyncio._get_running_loop() is None else asyncio.current_task()
