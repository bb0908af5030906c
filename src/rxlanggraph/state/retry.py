"""Repeated calls, after a first attempt that has failed.

Pauses between attempts follow one policy, `backoff`. `repeat` and `repeat_blocking` repeat a call
after one type of exception. Two kinds of failure have rules of their own: a server that does not
answer, in `repeat_unavailable`; and a database that refuses a call temporarily, in
`repeat_transient` (rule 6 of the contract). `compensate` undoes a call whose caller was cancelled
(rule 7).

The first attempt is the caller's: the library that repeats takes longer than most calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, ParamSpec, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from rxlanggraph.errors import RxLangGraphError, StateUnavailableError

__all__ = [
    "TransientError",
    "backoff",
    "compensate",
    "drop_frames",
    "repeat",
    "repeat_blocking",
    "repeat_transient",
    "repeat_unavailable",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_E = TypeVar("_E", bound=Exception)
# For how long calls are repeated while the server is away: long enough to restart a small server.
# A silent server gets a second attempt, which takes its whole timeout again.
_UNAVAILABLE_SECONDS = 2.0
# For how long a refused call is repeated: temporary refusals (a deadlock, a locked file) are over
# sooner. If not, `rxlanggraph.state.client` repeats the call, as for a server that is away.
_TRANSIENT_SECONDS: Final = 1.0


def backoff(
    *, first: float, longest: float, stop: Callable[[RetryCallState], bool]
) -> dict[str, Any]:
    """Return the pauses of a ``tenacity.AsyncRetrying`` or ``Retrying``. Any thread; never blocks.

    Pauses grow and are random, so that many failing calls do not retry in step. The exception of
    the last attempt is raised in the end.

    Args:
        first: The longest first pause, in seconds.
        longest: The longest pause, in seconds.
        stop: When to give up, as a tenacity stop condition.
    """
    return {
        "wait": wait_random_exponential(multiplier=first, max=longest),
        "stop": stop,
        "reraise": True,
    }


# -- one type of exception -------------------------------------------------------------------------


async def repeat(
    error: type[_E],
    failure: _E,
    policy: dict[str, Any],
    call: Callable[_P, Awaitable[_T]],
    /,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Await ``call(*args, **kwargs)`` again as long as it raises ``error``.

    Args:
        error: The type of the exception.
        failure: The exception of the first attempt.
        policy: The result of `backoff`; its time limits begin now.
        call: The call to repeat.
        args: Its arguments.
        kwargs: Its keyword arguments.

    Raises:
        Exception: ``error`` of the last attempt, or any other error of an attempt.
    """
    failures = [failure]

    async def attempt() -> _T:
        if failures:
            raise failures.pop()
        return await call(*args, **kwargs)

    return await AsyncRetrying(retry=retry_if_exception_type(error), **policy)(attempt)


def repeat_blocking(
    error: type[_E],
    failure: _E,
    policy: dict[str, Any],
    call: Callable[_P, _T],
    /,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Do what `repeat` does, blocking."""
    failures = [failure]

    def attempt() -> _T:
        if failures:
            raise failures.pop()
        return call(*args, **kwargs)

    return Retrying(retry=retry_if_exception_type(error), **policy)(attempt)


# -- a server that does not answer -----------------------------------------------------------------


async def repeat_unavailable(
    call: Callable[[], Awaitable[_T]], *, repeatable: bool, in_doubt: bool
) -> _T:
    """Await ``call()`` again, while the server does not answer and the call may be repeated.

    Args:
        call: A call whose first attempt has ended with a `StateUnavailableError`.
        repeatable: Whether it is idempotent. Otherwise it is repeated only if it certainly had no
            effect.
        in_doubt: Whether the first attempt may have had an effect.

    Raises:
        StateUnavailableError: The server still does not answer. In doubt if any attempt was.
    """
    time = asyncio.get_running_loop().time
    until = time() + _UNAVAILABLE_SECONDS
    handled = sys.exception()

    async def attempt() -> _T:
        nonlocal in_doubt
        try:
            return await call()
        except StateUnavailableError as error:
            drop_frames(error, handled)
            # A later attempt that had no effect does not undo an earlier one that may have had.
            in_doubt |= error.in_doubt
            error.in_doubt = in_doubt
            raise

    def may_be_repeated(error: BaseException) -> bool:
        return isinstance(error, StateUnavailableError) and (repeatable or not error.in_doubt)

    policy = backoff(first=0.05, longest=0.5, stop=lambda _: time() >= until)
    retrying = AsyncRetrying(retry=retry_if_exception(may_be_repeated), **policy)
    try:
        return await retrying(attempt)
    except StateUnavailableError as error:
        drop_frames(error, handled)  # of tenacity, too
        raise


def drop_frames(error: BaseException, handled: BaseException | None) -> None:
    """Drop the tracebacks of ``error`` and its causes. Any thread; never blocks.

    What breaks without it: frames of drivers, and of tenacity, refer to the exceptions that refer
    to them. Such a cycle lasts until the cyclic collector runs, and with it the frames of the
    callers and all that they refer to: a claim that was dropped after the error would be renewed.

    Args:
        error: The exception.
        handled: The exception that the caller was handling when the call began, which keeps its
            traceback; None if there was none.
    """
    seen = {id(handled)}
    causes: list[BaseException | None] = [error]
    while causes:
        cause = causes.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            cause.__traceback__ = None
            causes += [cause.__cause__, cause.__context__]


# -- a temporary refusal ---------------------------------------------------------------------------


class TransientError(Exception):
    """The database refused a call temporarily, and without effect: it can be repeated."""


async def repeat_transient(
    refusal: TransientError,
    call: Callable[_P, Awaitable[_T]],
    /,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Await ``call(*args, **kwargs)`` again, while it raises `TransientError`.

    Args:
        refusal: The exception of the first attempt.
        call: The call to repeat.
        args: Its arguments.
        kwargs: Its keyword arguments.

    Raises:
        StateUnavailableError: It was refused on every attempt; nothing was done.
    """
    policy = backoff(first=0.002, longest=0.1, stop=stop_after_delay(_TRANSIENT_SECONDS))
    try:
        return await repeat(TransientError, refusal, policy, call, *args, **kwargs)
    except TransientError as last:
        raise StateUnavailableError(
            f"the database has refused every attempt of the call: {last.__cause__}",
            in_doubt=False,
        ) from last


# -- undoing ---------------------------------------------------------------------------------------


async def compensate(undo: Callable[[_T], Awaitable[object]], done: _T) -> None:
    """Await ``undo(done)``, repeated while the server does not answer; errors are dropped."""
    with contextlib.suppress(RxLangGraphError):
        try:
            await undo(done)
            return
        except StateUnavailableError as error:
            if error.in_doubt:
                raise
        await repeat_unavailable(lambda: undo(done), repeatable=False, in_doubt=False)
