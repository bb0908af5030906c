"""``--rate`` and ``--halt``: limits on how fast messages are read, and on failures."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rxlanggraph.errors import InvalidArgumentError

__all__ = ["MINIMUM_FOR_PERCENT", "FailureLimit", "RateLimiter"]

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_RATE = re.compile(r"(?P<count>\d+(\.\d+)?)/(?P<unit>[smh])")
_HALT = re.compile(r"(?P<count>\d+(\.\d+)?)(?P<percent>%?)")
# Finished messages from which on a percentage is meaningful. A guess.
MINIMUM_FOR_PERCENT = 20
# Seconds of delay that later slots make up for. Otherwise the overshoots of the timer would add up,
# and a fast rate would never be reached.
_SLACK = 0.05


class RateLimiter:
    """A limit of messages per second, minute or hour, evenly spaced.

    Confined to the thread that reads messages, or to one loop.

    Args:
        interval: Seconds from one message to the next.
        clock: Returns the time in seconds; must be monotonic.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self._clock = clock
        self._next = clock()

    @classmethod
    def parse(cls, text: str) -> RateLimiter:
        """Return the rate for a text such as ``5/s``, ``90/m`` or ``1000/h``.

        Raises:
            InvalidArgumentError: ``text`` is not a rate.
        """
        match = _RATE.fullmatch(text.strip())
        count = float(match["count"]) if match else 0.0
        interval = _SECONDS[match["unit"]] / count if match and count else 0.0
        # Above 0, and no more than a thread can wait.
        if not 0 < interval <= threading.TIMEOUT_MAX:
            raise InvalidArgumentError(f"{text!r} is not a rate: write 5/s, 90/m or 1000/h")
        return cls(interval)

    def reserve(self) -> float:
        """Take the next slot; return the seconds until then."""
        now = self._clock()
        slot = max(self._next, now - _SLACK)
        self._next = slot + self.interval
        return max(0.0, slot - now)

    def wait(self, ended: threading.Event) -> bool:
        """Block until the next slot, or until ``ended`` is set.

        Returns:
            Whether the message may be sent; False if ``ended`` is set.
        """
        seconds = self.reserve()
        return not (ended.wait(seconds) if seconds else ended.is_set())


@dataclass(frozen=True, slots=True)
class FailureLimit:
    """A limit on failures, invalid lines included: as a number, or as a percentage.

    Args:
        failures: The number of failures that stops the command; None for no such limit.
        percent: The percentage of the finished messages that does, once `MINIMUM_FOR_PERCENT` are
            finished; None for no such limit.
    """

    failures: int | None = None
    percent: float | None = None

    @classmethod
    def parse(cls, text: str) -> FailureLimit:
        """Return the limit for a text such as ``3`` or ``10%``.

        Raises:
            InvalidArgumentError: ``text`` is not a limit.
        """
        match = _HALT.fullmatch(text.strip())
        count = float(match["count"]) if match else 0.0
        if match and match["percent"] and 0 < count <= 100:
            return cls(percent=count)
        if match and not match["percent"] and count >= 1 and count.is_integer():
            return cls(failures=int(count))
        raise InvalidArgumentError(
            f"{text!r} is not a limit: write a number of failures, at least 1, such as 3, or a "
            "percentage, at most 100, such as 10%"
        )

    def reached(self, failures: int, finished: int) -> bool:
        """Whether ``failures`` among ``finished`` messages are too many. Any thread."""
        if self.failures is not None and failures >= self.failures:
            return True
        if self.percent is None or finished < MINIMUM_FOR_PERCENT:
            return False
        return failures * 100 >= self.percent * finished
