"""RunGuard: one run of an agent at a time, whoever asks, from whichever thread or loop.

What breaks without it: ``if self.running: raise`` followed by an await lets two callers in, and an
``asyncio.Lock`` belongs to one loop: between threads it guards nothing.

The guard is handed on, never let go of, while somebody waits: whoever comes at that moment finds it
taken, so that nobody overtakes the line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

from rxlanggraph.agent.line import Line, Place
from rxlanggraph.concurrency.forking import announce, fork_safe_rlock
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
        self._lock = fork_safe_rlock()  # guards the rest
        self._holder: Place | None = None
        self._inside = False  # whether the holder has gone in, or was only called
        self._line = Line(self._lock)
        announce(self)

    def _after_fork(self) -> None:
        """In a forked child: nobody is in; who was goes on in the parent. See `forking`."""
        self._holder, self._inside = None, False
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
        self._free()
        if self._take(place, wait=wait):
            return
        if not wait:
            raise self._busy()
        while not self._confirm(place):
            await self._line.wait(place, lambda: self._leave(place), _LOOK_SECONDS)
            self._free()

    def _take(self, place: Place, *, wait: bool) -> bool:
        """Whether ``place`` is in now; else it is in the line, if it is to wait."""
        with self._lock:
            if self._holder is None:
                self._holder, self._inside = place, True
                return True
            if wait:
                self._line.join(place)
            return False

    def _confirm(self, place: Place) -> bool:
        """Whether ``place``, of which the turn may have come, is in now."""
        with self._lock:
            if self._holder is None:  # everybody in the line was asleep
                self._line.leave(place)
                self._holder = place
            if self._holder is place:
                self._inside = True
            return self._holder is place

    def _free(self) -> None:
        """Hand on what is held by one who cannot use it.

        A run whose loop was closed in its middle never leaves: nobody goes on with it. One whose
        turn came on a loop that is stopped has not begun: it goes back to the end of the line.
        """
        with self._lock:
            holder, inside = self._holder, self._inside
        if holder is None:
            return
        if holder.gone:
            self._leave(holder)
        elif not inside and holder.asleep:
            self._leave(holder, unless_inside=True)

    def _leave(self, place: Place, *, unless_inside: bool = False) -> None:
        """Hand on to the next one that can still come; if not inside, back into the line."""
        while True:
            with self._lock:
                if self._holder is not place or (unless_inside and self._inside):
                    return  # another one took over; or its loop was started again
                self._holder = None  # at once: a collector may be ending the run of ``place``
                self._holder = following = self._line.next()
                self._inside = False
                if unless_inside:
                    self._line.join(place)
            if following is None or following.call():
                return
            place, unless_inside = following, False
