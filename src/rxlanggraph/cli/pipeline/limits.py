"""``--rate`` and ``--halt``: how fast to take messages in, and when to stop taking them."""

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
# Below this many finished messages a percentage says little; a guess.
MINIMUM_FOR_PERCENT = 20
# How late a slot may be made up for. Timers overshoot by a fraction of a millisecond, and without
# this every overshoot would make a fast rate slower for good.
_SLACK = 0.05


class RateLimiter:
    """A limit of messages per second, minute or hour, evenly spaced.

    Confined to one thread, the one that takes messages in.

    Args:
        interval: Seconds from one message to the next.
        clock: For tests; a monotonic clock in seconds.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self._clock = clock
        self._next = clock()

    @classmethod
    def parse(cls, text: str) -> RateLimiter:
        """Return the rate that ``5/s``, ``90/m`` or ``1000/h`` says.

        Raises:
            InvalidArgumentError: It says none.
        """
        match = _RATE.fullmatch(text.strip())
        count = float(match["count"]) if match else 0.0
        interval = _SECONDS[match["unit"]] / count if match and count else 0.0
        # Neither none at all nor more than a thread can wait.
        if not 0 < interval <= threading.TIMEOUT_MAX:
            raise InvalidArgumentError(f"{text!r} is not a rate: write 5/s, 90/m or 1000/h")
        return cls(interval)

    def reserve(self) -> float:
        """Take the next slot; return how many seconds from now that is."""
        now = self._clock()
        slot = max(self._next, now - _SLACK)
        self._next = slot + self.interval
        return max(0.0, slot - now)

    def wait(self, ended: threading.Event) -> bool:
        """Block until the next message may go, or until ``ended`` is set.

        Returns:
            Whether it may go: False once ``ended`` is set.
        """
        seconds = self.reserve()
        return not (ended.wait(seconds) if seconds else ended.is_set())


@dataclass(frozen=True, slots=True)
class FailureLimit:
    """Stop after so many failures, invalid lines included, or once they are such a share.

    Args:
        failures: How many failures stop the command; None for no such limit.
        percent: Which percentage of the finished messages; counted from the twentieth on
            (`MINIMUM_FOR_PERCENT`). None for no such bound.
    """

    failures: int | None = None
    percent: float | None = None

    @classmethod
    def parse(cls, text: str) -> FailureLimit:
        """Return the bound that ``3`` or ``10%`` says.

        Raises:
            InvalidArgumentError: It says none.
        """
        match = _HALT.fullmatch(text.strip())
        count = float(match["count"]) if match else 0.0
        if match and match["percent"] and 0 < count <= 100:
            return cls(percent=count)
        if match and not match["percent"] and count >= 1 and count.is_integer():
            return cls(failures=int(count))
        raise InvalidArgumentError(
            f"{text!r} is not a bound: write a number of failures from 1 on, such as 3, or a "
            "percentage up to 100, such as 10%"
        )

    def reached(self, failures: int, finished: int) -> bool:
        """Whether ``failures`` among ``finished`` messages are too many. Any thread."""
        if self.failures is not None and failures >= self.failures:
            return True
        if self.percent is None or finished < MINIMUM_FOR_PERCENT:
            return False
        return failures * 100 >= self.percent * finished
