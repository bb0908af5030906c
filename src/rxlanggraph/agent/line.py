"""Line: who waits for something that one can have at a time, first come, first served.

Those in the line wait on loops of their own, in threads of their own; who has finished hands on to
the next one. What breaks without it: one who is cancelled, or whose loop is closed, at the very
moment when it is its turn takes the turn with it, and everybody behind waits for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Line", "Place"]


class Place:
    """One caller's place in a `Line`. Made on the loop on which it waits."""

    __slots__ = ("_called", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called: asyncio.Future[None] = self._loop.create_future()

    @property
    def gone(self) -> bool:
        """Whether nobody can be here any more: the loop is closed. Any thread; never blocks."""
        return self._loop.is_closed()

    @property
    def asleep(self) -> bool:
        """Whether nobody comes from here for now: the loop is stopped. Any thread; never blocks."""
        return not self._loop.is_running()

    async def wait(self, seconds: float | None) -> None:
        """Wait to be called, or for so long. On its loop; can be cancelled."""
        if self._called.done():  # by a call that came to nothing
            self._called = self._loop.create_future()
        await asyncio.wait({self._called}, timeout=seconds)

    def call(self) -> bool:
        """Call whoever waits here; False if they are `gone`. Any thread; never blocks."""
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:
            return False
        return True

    def _resolve(self) -> None:
        if not self._called.done():  # cancelled meanwhile: it hands on itself
            self._called.set_result(None)


class Line:
    """Places, in the order of their joining.

    Args:
        lock: Of the owner; `join` and `next` are called under it, `wait` takes it.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._places: deque[Place] = deque()  # guarded by the lock

    def join(self, place: Place) -> None:
        """Put ``place`` at the end. Under the lock."""
        self._places.append(place)

    def next(self) -> Place | None:
        """Take out the first place, to be called without the lock. Under the lock."""
        return self._places.popleft() if self._places else None

    def leave(self, place: Place) -> bool:
        """Take ``place`` out; False if it was taken out before. Under the lock."""
        try:
            self._places.remove(place)
        except ValueError:
            return False
        return True

    async def wait(
        self, place: Place, hand_on: Callable[[], None], seconds: float | None = None
    ) -> None:
        """Wait for one's turn at ``place``, which has joined. On its loop.

        Args:
            place: The caller's.
            hand_on: Gives the turn to the next one: called if the caller was cancelled, and its
                turn had come already.
            seconds: How long to wait at most; None until the turn comes.
        """
        try:
            await place.wait(seconds)
        except BaseException:
            with self._lock:
                called = not self.leave(place)
            if called:
                hand_on()
            raise
