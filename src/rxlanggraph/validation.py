"""What arguments must be: one check for each kind, in the same words everywhere."""

from __future__ import annotations

import math
from reprlib import repr as shortened

from rxlanggraph.errors import InvalidArgumentError

__all__ = ["check_name", "check_seconds", "check_timeout", "check_whole"]


def check_name(argument: str, value: object) -> None:
    """Insist that ``value`` is a string with something in it. Any thread; never blocks.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(
            f"{argument} must be a string with something in it, not {shortened(value)}"
        )


def check_whole(argument: str, value: object, *, least: int) -> None:
    """Insist that ``value`` is a whole number from ``least``. Any thread; never blocks.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgumentError(
            f"{argument} must be a whole number from {least}, not {shortened(value)}"
        )


def check_seconds(argument: str, value: object) -> None:
    """Insist that ``value`` is a number of seconds from 0. Any thread; never blocks.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidArgumentError(
            f"{argument} must be a number of seconds from 0, not {shortened(value)}"
        )


def check_timeout(timeout: object, argument: str = "timeout") -> float:
    """Insist that ``timeout`` is a number of seconds above 0, and return it. Any thread.

    ``math.inf`` is one: for ever.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise InvalidArgumentError(
            f"{argument} must be a number of seconds above 0, not {shortened(timeout)}"
        )
    return float(timeout)
