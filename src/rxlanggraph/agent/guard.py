"""RunGuard: one run of an agent at a time, whoever asks, from whichever thread or loop.

What breaks without it: ``if self.running: raise`` followed by an await lets two callers in, and an
``asyncio.Lock`` belongs to one loop: between threads it guards nothing.

The guard is handed on, never let go of, while somebody waits: whoever comes at that moment finds it
taken, so that nobody overtakes the line.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

from rxlanggraph.agent.line import Line, Place
from rxlanggraph.errors import AgentBusyError, InvalidArgumentError

__all__ = ["BusyPolicy", "RunGuard"]

BusyPolicy: TypeAlias = Literal["raise", "enqueue"]


_LOOK_SECONDS = 1.0


class RunGuard:
    """Lets one caller in at a time. Safe from any thread and any number of loops.

    Args:
        busy: Makes the error for a caller that does not want to wait.
    """

    def __init__(self, busy: Callable[[], AgentBusyError]) -> None:
        self._busy = busy
        # A leaf, for a few lines; an RLock, as a finalizer may leave a run on top of them.
        self._lock = threading.RLock()  # guards the rest
        self._holder: Place | None = None
        self._line = Line(self._lock)

    @asynccontextmanager
    async def entered(self, on_busy: BusyPolicy) -> AsyncIterator[None]:
        """Be the one that is in, for a block.

        Any loop. Cancelled while it waits, the caller leaves the line, and was not in.

        Args:
            on_busy: What a caller meets who finds somebody in: ``"raise"`` the error at once, or
                ``"enqueue"``: it waits, first come, first served.

        Raises:
            AgentBusyError: Somebody is in, and ``on_busy`` is ``"raise"``.
            InvalidArgumentError: ``on_busy`` is neither.
        """
        if on_busy not in ("raise", "enqueue"):
            raise InvalidArgumentError(f"on_busy must be 'raise' or 'enqueue', not {on_busy!r}")
        place = Place()
        await self._enter(place, wait=on_busy == "enqueue")
        try:
            yield
        finally:
            self._leave(place)

    async def _enter(self, place: Place, *, wait: bool) -> None:
        if self._take(place, wait=wait):
            return
        if not wait:
            raise self._busy()
        while not await self._line.wait(place, lambda: self._leave(place), _LOOK_SECONDS):
            with self._lock:
                holder = self._holder
            # A run whose loop was closed in its middle never leaves: nobody goes on with it.
            if holder is not None and holder.gone:
                self._leave(holder)

    def _take(self, place: Place, *, wait: bool) -> bool:
        """Whether ``place`` is in now; else it is in the line, if it is to wait."""
        while True:
            with self._lock:
                holder = self._holder
            gone = holder is not None and holder.gone
            with self._lock:
                if self._holder is not holder:  # the collector has just ended its run, say
                    continue
                if holder is None or gone:
                    self._holder = place
                elif wait:
                    self._line.join(place)
                return self._holder is place

    def _leave(self, place: Place) -> None:
        """Hand on to the next one that can still come."""
        while True:
            with self._lock:
                if self._holder is not place:  # another one took over
                    return
                self._holder = following = self._line.next()
            if following is None or following.call():
                return
            place = following
