"""Repeated calls, and cancellation-shielded calls.

Pauses between attempts follow one policy, `backoff`. `retry_on` and `retry_on_blocking` repeat a
call after one type of exception. Two kinds of failure have rules of their own: a server that does
not answer, in `retry_unavailable`; and a database that refuses a call temporarily, in
`retry_transient` (rule 6 of the contract). `run_shielded` shields a call that has taken effect on a
server from cancellation, and undoes it (rule 7).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
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

from rxlanggraph.concurrency.tasks import start_eagerly
from rxlanggraph.errors import RxLangGraphError, StateUnavailableError

__all__ = [
    "TransientError",
    "backoff",
    "compensate",
    "retry_on",
    "retry_on_blocking",
    "retry_transient",
    "retry_unavailable",
    "run_shielded",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")
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


async def retry_on(
    error: type[Exception],
    policy: Callable[[], dict[str, Any]],
    call: Callable[_P, Awaitable[_T]],
    /,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Await ``call(*args, **kwargs)`` again as long as it raises ``error``.

    Args:
        error: The type of the exception.
        policy: Returns the result of `backoff`. Called once the first attempt has failed; the time
            limits of the policy begin then.
        call: The call to repeat.
        args: Its arguments.
        kwargs: Its keyword arguments.

    Raises:
        Exception: ``error`` of the last attempt, or any other error of an attempt.
    """
    # The first attempt bypasses the library, which would take longer than most calls.
    try:
        return await call(*args, **kwargs)
    except error as failure:
        failures = [failure]

    async def attempt() -> _T:
        if failures:
            raise failures.pop()
        return await call(*args, **kwargs)

    return await AsyncRetrying(retry=retry_if_exception_type(error), **policy())(attempt)


def retry_on_blocking(
    error: type[Exception],
    policy: Callable[[], dict[str, Any]],
    call: Callable[_P, _T],
    /,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Do what `retry_on` does, blocking."""
    try:
        return call(*args, **kwargs)
    except error as failure:
        failures = [failure]

    def attempt() -> _T:
        if failures:
            raise failures.pop()
        return call(*args, **kwargs)

    return Retrying(retry=retry_if_exception_type(error), **policy())(attempt)


# -- a server that does not answer -----------------------------------------------------------------


async def retry_unavailable(
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

    async def attempt() -> _T:
        nonlocal in_doubt
        try:
            return await call()
        except StateUnavailableError as error:
            # A later attempt that had no effect does not undo an earlier one that may have had.
            in_doubt |= error.in_doubt
            error.in_doubt = in_doubt
            raise

    def may_be_repeated(error: BaseException) -> bool:
        return isinstance(error, StateUnavailableError) and (repeatable or not error.in_doubt)

    policy = backoff(first=0.05, longest=0.5, stop=lambda _: time() >= until)
    return await AsyncRetrying(retry=retry_if_exception(may_be_repeated), **policy)(attempt)


# -- a temporary refusal ---------------------------------------------------------------------------


class TransientError(Exception):
    """The database refused a call temporarily, and without effect: it can be repeated."""


async def retry_transient(
    call: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Await ``call(*args, **kwargs)``, and repeat it while it raises `TransientError`.

    Raises:
        StateUnavailableError: It was refused on every attempt; nothing was done.
    """
    try:
        return await retry_on(TransientError, _transient_policy, call, *args, **kwargs)
    except TransientError as refusal:
        raise StateUnavailableError(
            f"the database has refused every attempt of the call: {refusal.__cause__}",
            in_doubt=False,
        ) from refusal


def _transient_policy() -> dict[str, Any]:
    return backoff(first=0.002, longest=0.1, stop=stop_after_delay(_TRANSIENT_SECONDS))


# -- shielded calls --------------------------------------------------------------------------------


async def run_shielded(
    call: Coroutine[Any, Any, _T], undo: Callable[[_T], Awaitable[object]] | None = None
) -> _T:
    """Await ``call``, which runs to its end even if the caller is cancelled meanwhile.

    If cancelled, it waits for that end, undoes the call with ``undo``, and only then raises
    CancelledError: so a cancelled call has no effect. If cancelled once more, or together with all
    tasks of the loop, it cancels the call itself: what the call has claimed ends with its lease.

    Args:
        call: The call, as a coroutine.
        undo: Undoes the call, given its result; None: the effect stays.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # Started eagerly: scheduling it would add noticeably to the time of a server call.
    task = start_eagerly(_signal_end(call, ended))
    try:
        await ended
    except asyncio.CancelledError:
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
        call.close()  # if its task was cancelled before the first step, it was never awaited
        # Retrieve the exception, as asyncio logs those that are never retrieved.
        failed = task.cancelled() or task.exception() is not None
        if undo is not None and not failed:
            await compensate(undo, task.result())
        raise
    return task.result()


async def compensate(undo: Callable[[_T], Awaitable[object]], done: _T) -> None:
    """Await ``undo(done)``, repeated while the server does not answer; errors are dropped."""
    with contextlib.suppress(RxLangGraphError):
        try:
            await undo(done)
            return
        except StateUnavailableError as error:
            if error.in_doubt:
                raise
        await retry_unavailable(lambda: undo(done), repeatable=False, in_doubt=False)


async def _signal_end(call: Coroutine[Any, Any, _T], ended: asyncio.Future[None]) -> _T:
    # Wakes the waiter one iteration of the loop earlier than a done-callback of the task, as
    # `asyncio.shield` uses it, would.
    try:
        return await call
    finally:
        if not ended.done():
            ended.set_result(None)
