"""Argument checks: one for each kind of argument, with the same wording everywhere."""

from __future__ import annotations

import math
from reprlib import repr as shortened

from rxlanggraph.errors import InvalidArgumentError

__all__ = ["check_name", "check_seconds", "check_timeout", "check_whole"]


def check_name(argument: str, value: object) -> None:
    """Check that ``value`` is a non-empty string. Any thread; never blocks.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(
            f"{argument} must be a string with something in it, not {shortened(value)}"
        )


def check_whole(argument: str, value: object, *, least: int) -> None:
    """Check that ``value`` is a whole number, at least ``least``. Any thread; never blocks.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgumentError(
            f"{argument} must be a whole number from {least}, not {shortened(value)}"
        )


def check_seconds(argument: str, value: object) -> None:
    """Check that ``value`` is a number of seconds, at least 0. Any thread; never blocks.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidArgumentError(
            f"{argument} must be a number of seconds from 0, not {shortened(value)}"
        )


def check_timeout(timeout: object, argument: str = "timeout") -> float:
    """Check that ``timeout`` is a number of seconds above 0, and return it. Any thread.

    ``math.inf`` is allowed: no limit.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise InvalidArgumentError(
            f"{argument} must be a number of seconds above 0, not {shortened(timeout)}"
        )
    return float(timeout)
