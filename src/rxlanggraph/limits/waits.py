"""Waits: how one model call waits, in a coroutine or in a thread, and how it is woken.

A wake-up means no more than "check again". `prepare` comes before the check, so that no wake-up
between check and wait is lost.
"""

from __future__ import annotations

import math
from typing import Protocol

from rxlanggraph.concurrency.clock import Clock, Gate
from rxlanggraph.concurrency.waiters import Waiter

__all__ = ["InThread", "OnLoop", "Wait"]


class Wait(Protocol):
    """The wait of one call."""

    def prepare(self) -> None:
        """Allow wake-ups from now on. In the waiting code, under the lock of the gate."""

    def wake(self) -> bool:
        """Make it check again; False if it cannot any more. Any thread, under that lock."""


class OnLoop:
    """The wait of a coroutine. Made on its loop."""

    def __init__(self) -> None:
        self.waiter = Waiter()

    def prepare(self) -> None:
        """See `Wait`."""
        self.waiter.prepare()

    def wake(self) -> bool:
        """See `Wait`."""
        return self.waiter.wake_threadsafe()

    async def wait(self, delay: float) -> None:
        """Wait until it is woken, at most ``delay`` seconds. Can be cancelled."""
        await self.waiter.wait(None if delay == math.inf else delay)


class InThread:
    """The wait of a thread.

    Args:
        clock: The clock of its timeouts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Both guarded by the lock of the gate.
        self._gate: Gate = clock.gate()
        self._opened = False

    def prepare(self) -> None:
        """See `Wait`."""
        self._gate = self._clock.gate()
        self._opened = False

    def wake(self) -> bool:
        """See `Wait`."""
        if not self._opened:
            self._opened = True
            self._gate.release()
        return True

    def wait(self, delay: float) -> None:
        """Block until it is woken, at most ``delay`` seconds."""
        if delay == math.inf:
            self._gate.acquire()
        else:
            self._gate.acquire(timeout=delay)
