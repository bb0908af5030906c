"""The only crossing from a thread to the loop of a state."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from rxlanggraph.errors import BlockingCallError, LoopUnavailableError

__all__ = ["entered", "run_on"]

_T = TypeVar("_T")
# Seconds between two looks whether the loop still runs: one that stopped resolves nothing. A guess.
_PATIENCE = 1.0


def run_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` on ``loop``, and block until it has ended.

    Any thread but that of the loop. Interrupted (Ctrl-C), it has the coroutine cancelled and does
    not wait for that.

    Returns:
        What the coroutine returned.

    Raises:
        BlockingCallError: This is the loop's own thread.
        LoopUnavailableError: The loop does not run, or stopped meanwhile.
        BaseException: Whatever the coroutine raised.
    """
    future = _send(loop, coroutine)
    try:
        _wait(future, loop)
    except BaseException:
        if not loop.is_closed():
            future.cancel()
        created = inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
        if created and not loop.is_running():  # one that runs would begin it, and cancel it then
            coroutine.close()
        raise
    if future.cancelled():
        raise _stopped(loop)  # nobody else cancels it
    return future.result()


def _send(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
    error: Exception
    if asyncio._get_running_loop() is loop:
        error = BlockingCallError(
            "a blocking call on the event loop's own thread would wait for itself; await the "
            "method of the state there, instead of that of its .sync"
        )
    elif not loop.is_running():
        error = _stopped(loop)
    else:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # it was closed just now
            error = _stopped(loop)
    coroutine.close()
    raise error


def _wait(future: Future[Any], loop: asyncio.AbstractEventLoop) -> None:
    while not wait([future], _PATIENCE).done:
        if not loop.is_running() and not future.done():
            raise _stopped(loop)


def _stopped(loop: asyncio.AbstractEventLoop) -> LoopUnavailableError:
    return LoopUnavailableError(f"the event loop {loop!r} of this state does not run (any more)")


@contextlib.contextmanager
def entered(
    loop: asyncio.AbstractEventLoop, manager: AbstractAsyncContextManager[_T]
) -> Iterator[_T]:
    """Be inside ``manager``, which is entered and left on ``loop``. Blocks as `run_on` does."""
    value = run_on(loop, manager.__aenter__())
    try:
        yield value
    except BaseException as error:
        if not run_on(loop, manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        run_on(loop, manager.__aexit__(None, None, None))
