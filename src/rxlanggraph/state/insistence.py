"""Calls that are made again while the server is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, retry_if_exception, wait_random_exponential

from rxlanggraph.errors import StateUnavailableError

__all__ = ["again"]

_T = TypeVar("_T")
# For how many seconds calls are repeated while the server is away: a restart of a small one. Of one
# that is silent this allows a second attempt, which takes its whole time-out again.
_INSISTENCE = 2.0


async def again(call: Callable[[], Awaitable[_T]], *, repeatable: bool, in_doubt: bool) -> _T:
    """Await ``call()`` once more, and again as long as it may be repeated and the server is away.

    Args:
        call: What has ended with a `StateUnavailableError` already.
        repeatable: Whether twice does the same as once. Else it is made again only where it
            certainly had no effect.
        in_doubt: Whether it may have had one.

    Raises:
        StateUnavailableError: The server stays away. In doubt if any of the attempts is.
    """
    time = asyncio.get_running_loop().time
    until = time() + _INSISTENCE

    async def attempt() -> _T:
        nonlocal in_doubt
        try:
            return await call()
        except StateUnavailableError as error:
            # What one attempt may have done, no later one that fails can undo.
            in_doubt |= error.in_doubt
            error.in_doubt = in_doubt
            raise

    def may_be_repeated(error: BaseException) -> bool:
        return isinstance(error, StateUnavailableError) and (repeatable or not error.in_doubt)

    retrying = AsyncRetrying(
        stop=lambda _: time() >= until,
        wait=wait_random_exponential(multiplier=0.05, max=0.5),
        retry=retry_if_exception(may_be_repeated),
        reraise=True,
    )
    return await retrying(attempt)
