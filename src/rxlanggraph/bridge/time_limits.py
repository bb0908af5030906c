"""TimeLimits: how long a run may take, and each part of it.

What breaks with one number: a long wait for a slot uses up the time of the graph, and a model that
has stopped sending looks like one that has much to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.validation import check_timeout

__all__ = ["TimeLimit", "TimeLimits", "Timeout", "check_deadline", "check_limits", "overrun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Limits of one run and of its parts, each in seconds, for ``timeout=``. None: no limit.

    A run that exceeds one ends with status ``"timed_out"``, and a `RunTimeoutError` whose ``limit``
    says which it was. Like all timeouts they cancel, so code that blocks the loop, or a thread,
    continues; its run keeps its slot until that code ends.

    Attributes:
        start: From the submission until the run begins, room and lane included.
        attempt: For each attempt; with ``retry``, the next one follows. A plain number for
            ``timeout=`` is this limit.
        run: From the beginning of the run to its end, over all attempts and the pauses in between.
        first_chunk: For streams: from the beginning of an attempt until its first chunk.
        idle: For streams: from one chunk to the next, without the time that the run waits for its
            consumer. Like ``first_chunk``, it ends the attempt.

    Raises:
        InvalidArgumentError: A limit is not a number above 0.
    """

    start: float | None = None
    attempt: float | None = None
    run: float | None = None
    first_chunk: float | None = None
    idle: float | None = None

    def __post_init__(self) -> None:
        """Check each one."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                seconds = check_timeout(each.name, value, no_limit="None")
                object.__setattr__(self, each.name, seconds)


Timeout: TypeAlias = "float | TimeLimits"
TimeLimit: TypeAlias = Literal["start", "attempt", "run", "first_chunk", "idle", "deadline"]
"""What has a limit: one of the `TimeLimits`, or the wait of the caller."""


def check_limits(argument: str, value: object, *, chunks: bool) -> TimeLimits:
    """Return ``value``, seconds for each attempt or `TimeLimits`, as the latter. Any thread.

    Args:
        argument: Its name in messages.
        value: What was passed.
        chunks: Whether there will be chunks.

    Raises:
        InvalidArgumentError: It is out of range, or limits chunks where there are none.
    """
    if not isinstance(value, TimeLimits):
        return TimeLimits(attempt=check_timeout(argument, value, no_limit="None"))
    for name in ("first_chunk", "idle"):
        if not chunks and getattr(value, name) is not None:
            raise InvalidArgumentError(
                f"{argument} has a limit for {name}, and only streams have chunks; leave it out, "
                "or use stream or astream"
            )
    return value


def check_deadline(value: object) -> float | None:
    """Return ``value`` if it is a number of seconds above 0, or None. Any thread.

    Raises:
        InvalidArgumentError: It is something else.
    """
    return None if value is None else check_timeout("deadline", value, no_limit="None")


_WORDS: dict[TimeLimit, str] = {
    "start": "did not begin within {:g} s",
    "attempt": "did not end within {:g} s",
    "run": "did not end within {:g} s of its beginning",
    "first_chunk": "had no chunk within {:g} s of its beginning",
    "idle": "had no further chunk within {:g} s",
    "deadline": "was not answered within its deadline of {:g} s",
}


def overrun(limit: TimeLimit, seconds: float | None) -> str:
    """Say which limit was exceeded. Any thread; never blocks."""
    return _WORDS[limit].format(math.inf if seconds is None else seconds)
