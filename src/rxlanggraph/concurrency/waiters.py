"""Coroutines that wait on their own loop, and are woken from any thread; alone, or in a queue.

What breaks without it: a future of asyncio belongs to the thread of its loop; resolved from another
one, it resolves, and its loop sleeps on. And a waiter that is cancelled, or whose loop is closed,
at the very moment when its turn comes takes the turn with it: all behind it wait for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Waiter", "WaiterQueue", "WakeupQueue", "current_task"]


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

    @property
    def loop_closed(self) -> bool:
        """Whether its coroutine can never go on. Any thread; never blocks."""
        return self.loop.is_closed()

    @property
    def loop_stopped(self) -> bool:
        """Whether its coroutine cannot go on for now. Any thread; never blocks."""
        return not self.loop.is_running()

    def prepare(self) -> None:
        """From now on it can be woken. On its loop."""
        self.future = self.loop.create_future()

    def wake(self) -> None:
        """Have it look again. On its loop."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def wake_threadsafe(self) -> bool:
        """Have it look again; False if its loop is closed. Any thread; never blocks."""
        try:
            self.loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            return False
        return True

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


class WaiterQueue:
    """Waiters in the order of their joining; each turn goes to the first.

    Args:
        lock: Of the owner; `join`, `leave` and `next` are called under it, `wait` takes it.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._waiters: deque[Waiter] = deque()  # guarded by the lock

    def __len__(self) -> int:
        """How many wait. Under the lock."""
        return len(self._waiters)

    def join(self, waiter: Waiter) -> None:
        """Put ``waiter`` at the end. Under the lock."""
        self._waiters.append(waiter)

    def next(self) -> Waiter | None:
        """Take out the first waiter, to be woken without the lock. Under the lock."""
        return self._waiters.popleft() if self._waiters else None

    def leave(self, waiter: Waiter) -> bool:
        """Take ``waiter`` out; False if it was taken out before. Under the lock."""
        try:
            self._waiters.remove(waiter)
        except ValueError:
            return False
        return True

    async def wait(
        self, waiter: Waiter, hand_on: Callable[[], None], seconds: float | None = None
    ) -> None:
        """Wait for the turn of ``waiter``, which has joined in this step. On its loop.

        Args:
            waiter: The caller's.
            hand_on: Gives the turn to the next one: called if the caller was cancelled, and its
                turn had come already.
            seconds: How long to wait at most; None until the turn comes.
        """
        waiter.prepare()  # wake-ups come through the loop, and so not before this coroutine waits
        try:
            await waiter.wait(seconds)
        except BaseException:
            with self._lock:
                called = not self.leave(waiter)
            if called:
                hand_on()
            raise


class WakeupQueue(Generic[_W]):
    """Which waiters are to be woken: lined up under a lock, sent without it.

    Args:
        lost: Called with a waiter whose loop is closed.
    """

    def __init__(self, lost: Callable[[_W], object]) -> None:
        self._lost = lost
        # Any thread; its single operations are atomic, on free-threaded CPython too.
        self._waiters: deque[_W] = deque()

    def add(self, waiter: _W) -> None:
        """Line ``waiter`` up. Any thread; never blocks; calls nothing."""
        if waiter.future is not None:  # else it is awake, and looks before it sleeps
            self._waiters.append(waiter)

    def send(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Wake all that are lined up. Any thread; never blocks. Not under a lock.

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
