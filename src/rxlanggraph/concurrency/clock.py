"""Clock: the time, and the gates at which threads wait. Replaced where time is virtual.

Standard library and errors only. Ages, durations, deadlines and the timeouts of blocking waits
follow it; timers are those of the event loop, whose own clock has to agree.
"""

from __future__ import annotations

import reprlib
import threading
from time import monotonic
from typing import Protocol

from rxlanggraph.errors import InvalidArgumentError

__all__ = ["SYSTEM_CLOCK", "Clock", "Gate", "closed_gate", "wait_limit"]


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


def wait_limit(argument: str, seconds: object) -> float | None:
    """Return how long a wait may take at most, as gates and event loops accept it.

    What breaks without it: infinity overflows in the middle of the wait, and NaN is before and
    after every other deadline. Any thread; never blocks.

    Args:
        argument: The name under which it was passed.
        seconds: A number, of which a negative one is 0; None or infinity for no limit.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if seconds is None:
        return None
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        if seconds >= threading.TIMEOUT_MAX:
            return None
        if seconds < threading.TIMEOUT_MAX:  # unlike NaN
            return max(0.0, seconds)
    raise InvalidArgumentError(
        f"{argument} must be a number of seconds, or None for no limit, not {reprlib.repr(seconds)}"
    )


class _SystemClock:
    """Real time."""

    now = staticmethod(monotonic)
    gate = staticmethod(closed_gate)


SYSTEM_CLOCK: Clock = _SystemClock()
