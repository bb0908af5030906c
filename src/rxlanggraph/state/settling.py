"""Calls that run to their end, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from rxlanggraph.errors import RxLangGraphError, StateUnavailableError
from rxlanggraph.state.insistence import again

__all__ = ["settled", "undone"]

_T = TypeVar("_T")


async def settled(
    call: Coroutine[Any, Any, _T], undo: Callable[[_T], Awaitable[object]] | None = None
) -> _T:
    """Await ``call``, which runs to its end also when the caller is cancelled meanwhile.

    Cancelled, it waits for that end, undoes what was done, and only then raises: so the effect of
    a call that raised did not occur. Cancelled once more, or with all tasks of the loop, it cancels
    the call itself: what was done in vain ends with its lease.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = _started(_telling(call, ended))
    try:
        await ended
    except asyncio.CancelledError:
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
        # Looked at in any case: an error that nobody looks at is logged.
        failed = task.cancelled() or task.exception() is not None
        if undo is not None and not failed:
            await undone(undo, task.result())
        raise
    return task.result()


async def undone(undo: Callable[[_T], Awaitable[object]], done: _T) -> None:
    """Have ``undo`` take back what is ``done``, as far as the state can be reached."""
    with contextlib.suppress(RxLangGraphError):
        try:
            await undo(done)
            return
        except StateUnavailableError as error:
            if error.in_doubt:
                raise
        await again(lambda: undo(done), repeatable=False, in_doubt=False)


async def _telling(call: Coroutine[Any, Any, _T], ended: asyncio.Future[None]) -> _T:
    # Who waits hears of it a turn of the loop earlier than from a callback of the task, which is
    # what `asyncio.shield` has.
    try:
        return await call
    finally:
        if not ended.done():
            ended.set_result(None)


def _started(call: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """A task for ``call``: at once where Python can, which is a fifth of the way to a server."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12) and loop.get_task_factory() is None:
        return asyncio.Task(call, loop=loop, eager_start=True)
    return loop.create_task(call)
