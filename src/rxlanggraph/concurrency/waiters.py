"""Coroutines that wait on their own loops and are woken from any thread, singly or in a queue.

What breaks without it: a future of asyncio belongs to the thread of its loop; resolving it from
another thread does not wake the loop. And a waiter that is cancelled, or whose loop is closed, at
the very moment it is selected takes the wake-up with it: all waiters behind it wait forever.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Waiter", "WaiterQueue", "WakeupQueue", "current_task"]


class Waiter:
    """One waiting coroutine. Made, prepared and awaited on its loop.

    Call `prepare`, then check whether there is anything to wait for, then `wait`: so no wake-up in
    between is lost. A wake-up means no more than "check again".
    """

    __slots__ = ("future", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        # Written by its coroutine; others only check whether there is one.
        self.future: asyncio.Future[None] | None = None

    @property
    def loop_closed(self) -> bool:
        """Whether its coroutine can never continue. Any thread; never blocks."""
        return self.loop.is_closed()

    @property
    def loop_stopped(self) -> bool:
        """Whether its coroutine cannot continue for now. Any thread; never blocks."""
        return not self.loop.is_running()

    def prepare(self) -> None:
        """Allow wake-ups from now on. On its loop."""
        self.future = self.loop.create_future()

    def wake(self) -> None:
        """Make it check again. On its loop."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def wake_threadsafe(self) -> bool:
        """Make it check again; False if its loop is closed. Any thread; never blocks."""
        try:
            self.loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            return False
        return True

    async def wait(self, delay: float | None = None) -> None:
        """Wait until it is woken, at most ``delay`` seconds. Can be cancelled."""
        assert self.future is not None
        timer = None if delay is None else self.loop.call_later(max(delay, 0.0), self.wake)
        try:
            await self.future
        finally:
            if timer is not None:
                timer.cancel()


_W = TypeVar("_W", bound=Waiter)


class WaiterQueue:
    """A first-in, first-out queue of waiters.

    Args:
        lock: That of the owner; `join`, `leave` and `next` are called under it, `wait` takes it.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()  # a set; guarded by the lock

    def __len__(self) -> int:
        """How many waiters there are. Under the lock."""
        return len(self._waiters)

    def join(self, waiter: Waiter) -> None:
        """Put ``waiter`` at the end, unless it is in the queue. Under the lock."""
        self._waiters.setdefault(waiter, None)

    def next(self) -> Waiter | None:
        """Remove and return the first waiter, to be woken without the lock. Under the lock."""
        return self._waiters.popitem(last=False)[0] if self._waiters else None

    def leave(self, waiter: Waiter) -> bool:
        """Remove ``waiter``; False if it was removed before. Under the lock."""
        try:
            del self._waiters[waiter]
        except KeyError:
            return False
        return True

    async def wait(
        self, waiter: Waiter, pass_on: Callable[[], None], seconds: float | None = None
    ) -> None:
        """Wait until ``waiter``, which is in the queue, is selected. On its loop, without an await.

        Args:
            waiter: The caller's waiter.
            pass_on: Passes the selection to the next waiter. Called if the caller is cancelled
                after its waiter was selected.
            seconds: Longest wait, after which it is still in the queue; None for no limit.
        """
        waiter.prepare()  # in time: wake-ups come through the loop, after this step
        try:
            await waiter.wait(seconds)
        except BaseException:
            with self._lock:
                selected = not self.leave(waiter)
            if selected:
                pass_on()
            raise


class WakeupQueue(Generic[_W]):
    """Waiters to be woken: queued under a lock, woken without it.

    Args:
        on_lost: Called with a waiter whose loop is closed.

    Attributes:
        queued: Those that `send` has not woken yet; owners look whether there are any.
    """

    def __init__(self, on_lost: Callable[[_W], object]) -> None:
        self._on_lost = on_lost
        # Any thread; its single operations are atomic, on free-threaded CPython too.
        self.queued: deque[_W] = deque()

    def add(self, waiter: _W) -> None:
        """Queue ``waiter``. Any thread; never blocks; calls nothing."""
        if waiter.future is not None:  # otherwise it checks before it waits
            self.queued.append(waiter)

    def send(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Wake all queued waiters. Any thread; never blocks. Not under a lock.

        Args:
            here: The running loop, if called by a coroutine of that loop; it needs no wake-up call.
                None from a signal handler, which may have interrupted the loop while it selects.
        """
        while self.queued:
            try:
                waiter = self.queued.popleft()
            except IndexError:  # another thread was faster
                return
            loop = waiter.loop
            try:
                (loop.call_soon if loop is here else loop.call_soon_threadsafe)(waiter.wake)
            except RuntimeError:
                self._on_lost(waiter)


def current_task() -> asyncio.Task[Any] | None:
    """Return the calling task, or None outside of a task. Any thread; never blocks."""
    return None if asyncio._get_running_loop() is None else asyncio.current_task()
