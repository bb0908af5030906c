"""How many items a queue holds, and which putters wait for room.

Room is reserved for no putter: a loop that does not run would keep it from all others. The putters
of each loop stand in a line of their own; where there is room, the first of each line is woken, and
the quickest has it. What fills the queue may be reserved for a loop that does not run: so a waiting
putter looks after that from time to time, as those that could take it may all be asleep.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from rxlanggraph.agent.output.reservations import STUCK_SECONDS, Reservations
from rxlanggraph.concurrency.waiters import Waiter, WakeupQueue

__all__ = ["Capacity"]

_T = TypeVar("_T")


class Capacity:
    """The room for items in a queue, and the lines before it.

    Args:
        size: How many items there may be; 0 for any number.
        items: What there is.
        lock: The owner's, an RLock. It guards the lines, and is held where nothing else is said.
        wakes: Where putters are lined up that have to look again; the owner sends them.
    """

    def __init__(
        self, size: int, items: Reservations[Any], lock: threading.RLock, wakes: WakeupQueue[Any]
    ) -> None:
        self.size = size
        self._items = items
        self._lock = lock
        self._wakes = wakes
        self._lines: dict[asyncio.AbstractEventLoop, deque[Waiter]] = {}

    def full(self) -> bool:
        """Whether there is none."""
        return 0 < self.size <= len(self._items)

    def free(self) -> bool:
        """Whether there is some, and no putter waits for it."""
        return not self._lines and not self.full()

    async def enter(self, admit: Callable[[], _T]) -> _T:
        """Call ``admit`` under the lock as soon as there is room. Not under the lock; any loop.

        Cancelled, it has not called it.
        """
        putter = Waiter()
        with self._lock:
            line = self._lines.get(putter.loop, deque())
            line.append(putter)
            # Now, since a finalizer may have emptied and dropped it in between.
            self._lines[putter.loop] = line
        try:
            while True:
                putter.prepare()
                with self._lock:
                    if not self.full() and self._lines[putter.loop][0] is putter:
                        return admit()
                    self._items.serve()
                self._wakes.send(putter.loop)
                await putter.wait(STUCK_SECONDS)
        finally:
            with self._lock:
                self._leave(putter)
                self.wake_first()
            self._wakes.send()

    def wake_first(self) -> None:
        """Have the first putter of each loop look, if there is room."""
        if self._lines and not self.full():
            for line in list(self._lines.values()):
                if line:
                    self._wakes.add(line[0])

    def lose(self, loop: asyncio.AbstractEventLoop) -> None:
        """Forget the putters on ``loop``: it is closed."""
        self._lines.pop(loop, None)
        self.wake_first()

    def _leave(self, putter: Waiter) -> None:
        line = self._lines.get(putter.loop)
        if line is not None:  # else its loop is lost
            line.remove(putter)
            if not line:
                del self._lines[putter.loop]
