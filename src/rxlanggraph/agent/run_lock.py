"""RunLock: one run of an agent at a time, from any number of threads and loops.

What breaks without it: ``if self.running: raise`` followed by an await admits two callers, and an
``asyncio.Lock`` belongs to one loop: between threads it guards nothing.

While callers wait, the lock is handed over and never released: a caller that arrives at that moment
finds it held, and so cannot overtake the queue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

from rxlanggraph.bridge.graphs.interrupts import answers_unnamed
from rxlanggraph.concurrency.forking import fork_safe_rlock, register_after_fork
from rxlanggraph.concurrency.waiters import Waiter, WaiterQueue
from rxlanggraph.errors import AgentBusyError, InvalidArgumentError, StaleResumeError

__all__ = ["BusyPolicy", "RunLock", "refuse_overtaken"]

BusyPolicy: TypeAlias = Literal["raise", "enqueue"]

_LOOK_SECONDS = 1.0
"""Seconds between two checks of a waiter whether the holder's loop still runs. A guess."""


class RunLock:
    """Admits one caller at a time. Safe to use from any thread and any number of loops.

    Args:
        busy: Makes the error for a caller that is not to wait.
    """

    def __init__(self, busy: Callable[[], AgentBusyError]) -> None:
        self._busy = busy
        # A leaf, held for a few lines; an RLock, as a finalizer may end a run while it is held.
        self._lock = fork_safe_rlock()  # guards the rest
        self._holder: Waiter | None = None
        self._inside = False  # whether the holder has entered, or was only selected
        self._queue = WaiterQueue(self._lock)
        register_after_fork(self)

    def _after_fork(self) -> None:
        """In a forked child: an active run is the parent's, so the lock is free. See `forking`."""
        self._holder, self._inside = None, False
        self._queue = WaiterQueue(self._lock)

    @property
    def held(self) -> bool:
        """Whether a run is active, or about to be. Any thread; never blocks."""
        with self._lock:  # while it is handed over, there is no holder for a moment
            return self._holder is not None

    @asynccontextmanager
    async def entered(self, on_busy: BusyPolicy) -> AsyncIterator[None]:
        """Hold the lock for the duration of a block.

        Any loop. If cancelled while it waits, the caller leaves the queue without having entered.

        Args:
            on_busy: What happens to a caller while a run is active: ``"raise"`` raises the error at
                once; with ``"enqueue"`` it waits, first come, first served.

        Raises:
            AgentBusyError: A run is active, and ``on_busy`` is ``"raise"``.
            InvalidArgumentError: ``on_busy`` is neither.
        """
        if on_busy not in ("raise", "enqueue"):
            raise InvalidArgumentError(f"on_busy must be 'raise' or 'enqueue', not {on_busy!r}")
        waiter = Waiter()
        await self._enter(waiter, wait=on_busy == "enqueue")
        try:
            yield
        finally:
            self._leave(waiter)

    async def _enter(self, waiter: Waiter, *, wait: bool) -> None:
        self._free()
        if self._take(waiter, wait=wait):
            return
        if not wait:
            raise self._busy()
        while not self._confirm(waiter):
            await self._queue.wait(waiter, lambda: self._leave(waiter), _LOOK_SECONDS)
            self._free()

    def _take(self, waiter: Waiter, *, wait: bool) -> bool:
        """Try to take the lock; if that fails and ``wait`` is set, join the queue."""
        with self._lock:
            if self._holder is None:
                self._holder, self._inside = waiter, True
                return True
            if wait:
                self._queue.join(waiter)
            return False

    def _confirm(self, waiter: Waiter) -> bool:
        """Enter if ``waiter`` has been selected; return whether it holds the lock."""
        with self._lock:
            if self._holder is None:  # it was released while no waiter's loop was running
                self._queue.leave(waiter)
                self._holder = waiter
            if self._holder is waiter:
                self._inside = True
            return self._holder is waiter

    def _free(self) -> None:
        """Hand over the lock if its holder cannot use it.

        A run whose loop was closed never leaves. A waiter that was selected, but whose loop is
        stopped, has not begun its run: it goes to the end of the queue.
        """
        with self._lock:
            holder, inside = self._holder, self._inside
        if holder is None:
            return
        if holder.loop_closed:
            self._leave(holder)
        elif not inside and holder.loop_stopped:
            self._leave(holder, unless_inside=True)

    def _leave(self, waiter: Waiter, *, unless_inside: bool = False) -> None:
        """Hand over to the next waiter whose loop runs.

        With ``unless_inside``, only if ``waiter`` has not entered; it then joins the queue again.
        """
        while True:
            with self._lock:
                if self._holder is not waiter or (unless_inside and self._inside):
                    return  # another run took over; or its loop was resumed
                self._holder = None  # at once: the collector may be ending the run of ``waiter``
                self._holder = following = self._queue.next()
                self._inside = False
                if unless_inside:
                    self._queue.join(waiter)
            if following is None or following.wake_threadsafe():
                return
            waiter, unless_inside = following, False


def refuse_overtaken(request: Any, lock: RunLock) -> None:
    """Refuse an answer that names no question, if ``lock`` is held when it is given. Any thread.

    The active run may ask something else by then; and of two answers at once, it has the first.

    Raises:
        StaleResumeError: It is refused.
    """
    if lock.held and answers_unnamed(request):
        raise StaleResumeError(
            "this answer names no question, and another run is active, which may ask something "
            "else. Name the question, by the ids of the AgentInterruptedError: "
            "Command(resume={id: value})"
        )
