"""Retrying: which failures are retried, and how many retries there may be.

What breaks without the budget: when a provider fails for all callers, each message is tried as
often as it may be, which is the last thing that a provider in trouble needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, stop_after_attempt
from tenacity.wait import wait_random_exponential

from rxlanggraph.errors import RunTimeoutError, StateUnavailableError
from rxlanggraph.limits.signals import attribute, headers_of, requested_pause, status_of

__all__ = ["RetryBudget", "is_transient", "make_retrying"]

# Statuses after which another attempt may succeed. All others are the caller's own mistake.
_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Connections that failed, by the names that the clients of providers have for it.
_CONNECTION_ERRORS = frozenset(
    {
        "APIConnectionError",  # OpenAI, Anthropic
        "TransportError",  # httpx
        "ClientConnectionError",  # aiohttp
        "EndpointConnectionError",  # botocore
        "ServiceUnavailable",  # Google
    }
)
# A 429 for which no time helps.
_OUT_OF_MONEY = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
# How many retries each message allows, and how many may be saved up. The first is common, the
# second a guess: enough for a few messages that fail at the beginning.
_SHARE = 0.1
_SAVED = 10.0


def is_transient(error: BaseException) -> bool:
    """Whether another attempt may succeed where this one failed. Any thread; never blocks.

    True for the statuses 408, 409, 425, 429, 500, 502, 503, 504 and 529, for connections that
    failed and for timeouts; not for other statuses (400, 401, 403, 404, 422), for a quota that is
    exhausted, or for any other exception, such as one of validation or of the node's code.

    Args:
        error: An exception, of a provider's client or of anything else.
    """
    status = status_of(error)
    if status is not None:
        code = attribute(error, "code")
        return status in _TRANSIENT and not (isinstance(code, str) and code in _OUT_OF_MONEY)
    if isinstance(error, ConnectionError | TimeoutError | RunTimeoutError | StateUnavailableError):
        return True
    return any(cls.__name__ in _CONNECTION_ERRORS for cls in type(error).__mro__)


class RetryBudget:
    """How many retries there may still be: a tenth of the messages, and ten to begin with.

    Args:
        lock: Guards it; a leaf.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._saved = _SAVED

    def add(self) -> None:
        """Note that there was a first attempt. Any thread; never blocks."""
        with self._lock:
            self._saved = min(_SAVED, self._saved + _SHARE)

    def take(self) -> bool:
        """Return whether a retry is allowed, and count it. Any thread; never blocks."""
        with self._lock:
            if self._saved < 1:
                return False
            self._saved -= 1
            return True


def make_retrying(
    attempts: int,
    budget: RetryBudget,
    transient: Callable[[BaseException], bool],
    time: Callable[[], float],
) -> AsyncRetrying:
    """Make tenacity's policy.

    Args:
        attempts: How many there are at most, the first included.
        budget: Allows each retry.
        transient: Whether to retry after an exception.
        time: Returns the seconds since the epoch, for servers that name a date.
    """
    exponential = wait_random_exponential(multiplier=0.5, max=60)

    def may_retry(state: RetryCallState) -> bool:
        if state.attempt_number == 1:
            budget.add()
        error = None if state.outcome is None else state.outcome.exception()
        if error is None or state.attempt_number >= attempts or not transient(error):
            return False
        return budget.take()

    def wait(state: RetryCallState) -> Any:
        error = None if state.outcome is None else state.outcome.exception()
        asked = None if error is None else requested_pause(headers_of(error), time())
        return exponential(state) if asked is None else asked

    return AsyncRetrying(
        retry=may_retry, wait=wait, stop=stop_after_attempt(attempts), reraise=True
    )
