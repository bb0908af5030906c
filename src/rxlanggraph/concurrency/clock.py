"""Clock: the time, and the gates at which threads wait. Replaced where time is virtual.

Standard library only. Ages, durations, deadlines and the timeouts of blocking waits
follow it; timers are those of the event loop, whose own clock has to agree.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "Gate", "closed_gate"]


class Gate(Protocol):
    """One thread waits at it until another thread opens it, once. As ``threading.Lock``."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Wait until it is open; False after ``timeout`` seconds, of which -1 means no limit."""

    def release(self) -> object:
        """Open it. Any thread; never blocks."""


class Clock(Protocol):
    """The time of one bridge."""

    def now(self) -> float:
        """The time in seconds, since an arbitrary moment. Any thread; never blocks."""

    def gate(self) -> Gate:
        """Make a closed gate, whose timeouts are by this clock. Any thread; never blocks."""


def closed_gate() -> threading.Lock:
    """Make a gate that is closed. Any thread; never blocks."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class _SystemClock:
    """Real time."""

    now = staticmethod(monotonic)
    gate = staticmethod(closed_gate)


SYSTEM_CLOCK: Clock = _SystemClock()
