"""Calls that are made again, and calls that run to their end.

Pauses between attempts are those of one policy, `backoff`. Two kinds of failure are repeated: a
server that is away, by `retry_unavailable`; and a database that refuses a call for reasons of its
own, by `retry_transient` (rule 6 of the contract). A call that has begun something on a server is
shielded from cancellation by `run_shielded`, which takes back what was done in vain (rule 7).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from rxlanggraph.concurrency.tasks import start_eagerly
from rxlanggraph.errors import RxLangGraphError, StateUnavailableError

__all__ = [
    "TransientError",
    "backoff",
    "compensate",
    "retry_transient",
    "retry_unavailable",
    "run_shielded",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")
# For how many seconds calls are repeated while the server is away: a restart of a small one. Of one
# that is silent this allows a second attempt, which takes its whole time-out again.
_INSISTENCE = 2.0
# Seconds. What a database refuses in passing, a deadlock or a lock on the file, is over sooner; and
# who gets the error in the end, `rxlanggraph.state.client`, tries some more.
_PATIENCE: Final = 1.0


def backoff(
    when: Callable[[BaseException], bool],
    *,
    first: float,
    longest: float,
    stop: Callable[[RetryCallState], bool],
) -> dict[str, Any]:
    """Return the policy of a ``tenacity.AsyncRetrying`` or ``Retrying``. Any thread; never blocks.

    Pauses grow and are random, so that many that fail together do not try again in step. What the
    last attempt has raised is raised in the end.

    Args:
        when: Whether what an attempt has raised is a reason for another one.
        first: Seconds that the first pause may last.
        longest: Seconds that any pause may last.
        stop: When to give up, as tenacity asks it.
    """
    return {
        "retry": retry_if_exception(when),
        "wait": wait_random_exponential(multiplier=first, max=longest),
        "stop": stop,
        "reraise": True,
    }


# -- a server that is away -------------------------------------------------------------------------


async def retry_unavailable(
    call: Callable[[], Awaitable[_T]], *, repeatable: bool, in_doubt: bool
) -> _T:
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

    policy = backoff(may_be_repeated, first=0.05, longest=0.5, stop=lambda _: time() >= until)
    return await AsyncRetrying(**policy)(attempt)


# -- a refusal in passing --------------------------------------------------------------------------


class TransientError(Exception):
    """The database did nothing of a call, for reasons of its own: it can be repeated."""


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, TransientError)


async def retry_transient(
    call: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Await ``call(*args, **kwargs)``, and do so again while it is refused.

    Raises:
        StateUnavailableError: It is refused all the time; nothing was done.
    """
    try:
        return await call(*args, **kwargs)
    except TransientError:
        # What follows costs more than most calls: it is made for those that need it.
        stop = stop_after_delay(_PATIENCE)
        policy = backoff(_is_transient, first=0.002, longest=0.1, stop=stop)
    try:
        return await AsyncRetrying(**policy)(call, *args, **kwargs)
    except TransientError as refusal:
        raise StateUnavailableError(
            f"the database has refused the call again and again: {refusal.__cause__}",
            in_doubt=False,
        ) from refusal


# -- to the end ------------------------------------------------------------------------------------


async def run_shielded(
    call: Coroutine[Any, Any, _T], undo: Callable[[_T], Awaitable[object]] | None = None
) -> _T:
    """Await ``call``, which runs to its end also when the caller is cancelled meanwhile.

    Cancelled, it waits for that end, undoes what was done, and only then raises: so the effect of
    a call that raised did not occur. Cancelled once more, or with all tasks of the loop, it cancels
    the call itself: what was done in vain ends with its lease.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # At once: to be scheduled first is a fifth of the way to a server.
    task = start_eagerly(_telling(call, ended))
    try:
        await ended
    except asyncio.CancelledError:
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
        # Looked at in any case: an error that is never retrieved is logged.
        failed = task.cancelled() or task.exception() is not None
        if undo is not None and not failed:
            await compensate(undo, task.result())
        raise
    return task.result()


async def compensate(undo: Callable[[_T], Awaitable[object]], done: _T) -> None:
    """Have ``undo`` take back what is ``done``, as far as the state can be reached."""
    with contextlib.suppress(RxLangGraphError):
        try:
            await undo(done)
            return
        except StateUnavailableError as error:
            if error.in_doubt:
                raise
        await retry_unavailable(lambda: undo(done), repeatable=False, in_doubt=False)


async def _telling(call: Coroutine[Any, Any, _T], ended: asyncio.Future[None]) -> _T:
    # Who waits hears of it a turn of the loop earlier than from a callback of the task, which is
    # what `asyncio.shield` has.
    try:
        return await call
    finally:
        if not ended.done():
            ended.set_result(None)
