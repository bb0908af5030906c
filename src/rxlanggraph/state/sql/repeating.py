"""Once more, after what a database has refused for reasons of its own (rule 6 of the contract)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from rxlanggraph.errors import StateUnavailableError

__all__ = ["Refused", "repeated"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
# Seconds. What a database refuses in passing, a deadlock or a lock on the file, is over sooner; and
# who gets the error in the end, `rxlanggraph.state.core`, tries some more.
_PATIENCE: Final = 1.0


class Refused(Exception):  # noqa: N818 - never seen by a caller
    """The database did nothing of a call, for reasons of its own: it can be repeated."""


async def repeated(
    call: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Await ``call(*args, **kwargs)``, and do so again while it is refused.

    Raises:
        StateUnavailableError: It is refused all the time; nothing was done.
    """
    try:
        return await call(*args, **kwargs)
    except Refused:
        # What follows costs more than most calls: it is made for those that need it.
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Refused),
            wait=wait_random_exponential(multiplier=0.002, max=0.1),
            stop=stop_after_delay(_PATIENCE),
            reraise=True,
        )
    try:
        return await retrying(call, *args, **kwargs)
    except Refused as refusal:
        raise StateUnavailableError(
            f"the database has refused the call again and again: {refusal.__cause__}",
            in_doubt=False,
        ) from refusal
