"""Repeated calls, and cancellation-shielded calls.

Pauses between attempts follow one policy, `backoff`. A call is repeated after one kind of error by
`retry_on`, and by `retry_on_blocking`. Two kinds of failure have rules of their own: a server that
is away, in `retry_unavailable`; and a database that refuses a call temporarily, in
`retry_transient` (rule 6 of the contract). A call that has begun something on a server is shielded
from cancellation by `run_shielded`, which undoes what was done (rule 7).
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
# For how many seconds calls are repeated while the server is away: enough to restart a small one.
# For a server that is silent this allows a second attempt, which takes its whole timeout again.
_INSISTENCE = 2.0
# Seconds. A temporary refusal of a database, a deadlock or a lock on the file, is over sooner; and
# the caller that gets the error in the end, `rxlanggraph.state.client`, repeats the call too.
_PATIENCE: Final = 1.0


def backoff(
    *, first: float, longest: float, stop: Callable[[RetryCallState], bool]
) -> dict[str, Any]:
    """Return the pauses of a ``tenacity.AsyncRetrying`` or ``Retrying``. Any thread; never blocks.

    Pauses grow and are random, so that many failing calls do not retry in step. The exception of
    the last attempt is raised in the end.

    Args:
        first: Seconds that the first pause may last.
        longest: Seconds that any pause may last.
        stop: When to give up, as a tenacity stop condition.
    """
    return {
        "wait": wait_random_exponential(multiplier=first, max=longest),
        "stop": stop,
        "reraise": True,
    }


# -- one kind of error -----------------------------------------------------------------------------


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
        policy: Returns what `backoff` does. Called when the first attempt has failed, which is also
            when the time of the policy begins.
        call: What to await.
        args: Its arguments.
        kwargs: Its keyword arguments.

    Raises:
        Exception: ``error`` of the last attempt, or any other error of an attempt.
    """
    # The first attempt is made here: calling the library takes longer than most attempts.
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


# -- a server that is away -------------------------------------------------------------------------


async def retry_unavailable(
    call: Callable[[], Awaitable[_T]], *, repeatable: bool, in_doubt: bool
) -> _T:
    """Await ``call()`` again, as often as it may be repeated while the server is away.

    Args:
        call: The call that has already ended with a `StateUnavailableError`.
        repeatable: Whether it is idempotent. Otherwise it is repeated only if it certainly had no
            effect.
        in_doubt: Whether it may have had an effect.

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
            # What one attempt may have done, a later one that fails cannot undo.
            in_doubt |= error.in_doubt
            error.in_doubt = in_doubt
            raise

    def may_be_repeated(error: BaseException) -> bool:
        return isinstance(error, StateUnavailableError) and (repeatable or not error.in_doubt)

    policy = backoff(first=0.05, longest=0.5, stop=lambda _: time() >= until)
    return await AsyncRetrying(retry=retry_if_exception(may_be_repeated), **policy)(attempt)


# -- a temporary refusal ---------------------------------------------------------------------------


class TransientError(Exception):
    """The database did nothing, for reasons of its own: the call can be repeated."""


async def retry_transient(
    call: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Await ``call(*args, **kwargs)``, and do so again while it is refused.

    Raises:
        StateUnavailableError: It was refused on every attempt; nothing was done.
    """
    try:
        return await retry_on(TransientError, _transient_policy, call, *args, **kwargs)
    except TransientError as refusal:
        raise StateUnavailableError(
            f"the database has refused the call again and again: {refusal.__cause__}",
            in_doubt=False,
        ) from refusal


def _transient_policy() -> dict[str, Any]:
    return backoff(first=0.002, longest=0.1, stop=stop_after_delay(_PATIENCE))


# -- shielded calls --------------------------------------------------------------------------------


async def run_shielded(
    call: Coroutine[Any, Any, _T], undo: Callable[[_T], Awaitable[object]] | None = None
) -> _T:
    """Await ``call``, which runs to its end even if the caller is cancelled meanwhile.

    If cancelled, it waits for that end, undoes what was done, and only then raises: so the effect
    of a call that raised did not occur. If cancelled once more, or with all tasks of the loop, it
    cancels the call itself: what was done ends with its lease.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # Started eagerly: scheduling takes a fifth of the time of a server call.
    task = start_eagerly(_telling(call, ended))
    try:
        await ended
    except asyncio.CancelledError:
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
        # Retrieved in any case: an exception that is never retrieved is logged.
        failed = task.cancelled() or task.exception() is not None
        if undo is not None and not failed:
            await compensate(undo, task.result())
        raise
    return task.result()


async def compensate(undo: Callable[[_T], Awaitable[object]], done: _T) -> None:
    """Undo ``done`` with ``undo``, as far as the state can be reached."""
    with contextlib.suppress(RxLangGraphError):
        try:
            await undo(done)
            return
        except StateUnavailableError as error:
            if error.in_doubt:
                raise
        await retry_unavailable(lambda: undo(done), repeatable=False, in_doubt=False)


async def _telling(call: Coroutine[Any, Any, _T], ended: asyncio.Future[None]) -> _T:
    # The waiter is notified one iteration of the loop earlier than by a callback of the task, which
    # is what `asyncio.shield` uses.
    try:
        return await call
    finally:
        if not ended.done():
            ended.set_result(None)
