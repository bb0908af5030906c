"""Backoff: how long a failed task waits for its next attempt."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.validation import check_duration

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between the attempts of a task, which grow; for ``declare_queue``. Any thread.

    Attributes:
        first: Seconds after the first attempt.
        factor: How many times longer each further pause is; 1 or more.
        longest: Seconds that no pause exceeds.
        jitter: The share of each pause that is random, from 0 to 1, so that tasks which failed
            together are not claimed together.

    Raises:
        InvalidTypeError, InvalidArgumentError: One of them is not such a number.
    """

    first: float = 1.0
    factor: float = 2.0
    longest: float = 600.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("first", "factor", "longest", "jitter"):
            check_duration(name, getattr(self, name), zero=name == "jitter")
        if self.factor < 1:
            raise InvalidArgumentError(f"factor must be 1 or more, not {self.factor}")
        if self.jitter > 1:
            raise InvalidArgumentError(f"jitter must be 1 at most, not {self.jitter}")

    def pause(self, attempt: int) -> float:
        """Return the seconds after this attempt, counted from 1. Any thread; never blocks."""
        pause = self.longest
        if self.first < self.longest:
            # Not the power alone, which may exceed all floats.
            growth = math.log(self.factor) * (attempt - 1)
            if growth < math.log(self.longest / self.first):
                pause = self.first * math.exp(growth)
        return pause * (1 - self.jitter * random.random())  # noqa: S311 - it guards nothing
