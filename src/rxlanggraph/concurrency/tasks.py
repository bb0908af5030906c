"""Tasks of asyncio: started eagerly, shielded from cancellation, or left behind by their loop.

Why eagerly, in place of a task that has just ended: a task that is scheduled takes its first step
in the next iteration of the loop. If sixteen graphs end in one iteration and sixteen others start
in the next, they free all their objects and then allocate them all. The collector counts
allocations that are not balanced by a free, and does not count frees below zero: so it starts more
often than when one coroutine ends and the next begins in the same step (figures:
docs/benchmarks.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

__all__ = [
    "EagerTaskStarter",
    "close_left_behind",
    "retrieve_exception",
    "run_shielded",
    "run_undo",
    "silence_pending_warning",
    "start_eagerly",
]

_T = TypeVar("_T")
# Tasks put in front of the loop's queue in a row. A guess, low enough not to starve the queue.
_MAX_IN_A_ROW = 64
# Seconds that a call or its undo may still take once its caller is cancelled again. A guess: longer
# than a server takes to answer, short enough to wait for at the end of a program.
_GRACE_SECONDS = 5.0


def start_eagerly(
    coroutine: Coroutine[Any, Any, _T], *, name: str | None = None, context: Context | None = None
) -> asyncio.Task[_T]:
    """Start ``coroutine`` as a task of the running loop, its first step at once if possible.

    Python 3.12 or later can; the task factory of the loop decides, if there is one. On a loop that
    nest_asyncio has made reentrant, it is scheduled: the step may run the loop, and so wait for
    what the caller has still to do.

    Args:
        coroutine: The coroutine to run.
        name: The task's name.
        context: The context to run it in; None for a copy of the caller's.
    """
    loop = asyncio.get_running_loop()
    if (
        sys.version_info >= (3, 12)
        and loop.get_task_factory() is None
        and not hasattr(loop, "_nest_patched")
    ):
        return asyncio.Task(coroutine, loop=loop, name=name, context=context, eager_start=True)
    return loop.create_task(coroutine, name=name, context=context)


async def run_shielded(
    call: Coroutine[Any, Any, _T], undo: Callable[[_T], Awaitable[object]] | None = None
) -> _T:
    """Await ``call``, which runs to its end even if the caller is cancelled meanwhile.

    If cancelled, it waits for that end, undoes the call with ``undo``, and only then raises
    CancelledError: so a cancelled call has no effect. If cancelled once more before that end, it
    cancels the call itself five seconds later: not at once, as scopes of anyio cancel again and
    again. Together with all tasks of the loop, the call is cancelled at once. The undo goes on, as
    `run_undo` says.

    Args:
        call: The call, as a coroutine.
        undo: Undoes the call, given its result; None: the effect stays.

    Raises:
        BaseException: Whatever the call raised, or ``undo``.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # Started eagerly: scheduling it would add noticeably to the time of a server call.
    task = start_eagerly(_signal_end(call, ended))
    try:
        await ended
    except asyncio.CancelledError:
        await _outlast(task)
        call.close()  # if its task was cancelled before the first step, it was never awaited
        # Retrieve the exception, as asyncio logs those that are never retrieved.
        failed = task.cancelled() or task.exception() is not None
        if undo is not None and not failed:
            await run_undo(undo, task.result())
        raise
    try:
        return task.result()
    finally:
        # Its exception refers to this frame; together they would wait for the cyclic collector,
        # and with them what the frames of the call refer to, such as a claim.
        del task


async def run_undo(undo: Callable[[_T], Awaitable[object]], done: _T) -> None:
    """Await ``undo(done)`` to its end, for a caller that is about to raise its CancelledError.

    It goes on in a task of its own, however often the caller is cancelled meanwhile; from then on
    for five seconds at most. Those cancellations are not raised: the caller's own says it all.

    Args:
        undo: Undoes a call.
        done: The result of that call.

    Raises:
        BaseException: Whatever ``undo`` raised, unless it was cancelled.
    """

    async def undone() -> None:
        await undo(done)

    task = start_eagerly(undone())
    await _outlast(task)
    if not task.cancelled():
        task.result()


async def _outlast(task: asyncio.Task[Any]) -> None:
    """Wait for the end of ``task``; if cancelled meanwhile, cancel it five seconds later.

    For a caller that is about to raise its CancelledError.
    """
    loop = asyncio.get_running_loop()
    until: float | None = None
    while not task.done():
        rest = None if until is None else until - loop.time()
        if rest is not None and rest <= 0:
            task.cancel()
            until = rest = None  # it is about to end; if cancelled again, it is cancelled again
        try:
            await asyncio.wait([task], timeout=rest)
        except asyncio.CancelledError:
            if until is None:
                until = loop.time() + _GRACE_SECONDS


async def _signal_end(call: Coroutine[Any, Any, _T], ended: asyncio.Future[None]) -> _T:
    # Wakes the waiter one iteration of the loop earlier than a done-callback of the task, as
    # `asyncio.shield` uses it, would.
    try:
        return await call
    finally:
        if not ended.done():
            ended.set_result(None)


class EagerTaskStarter:
    """Starts coroutines as tasks that take their first steps in the order in which they started.

    Confined to the loop's thread.
    """

    def __init__(self) -> None:
        # Held weakly: a loop that ended may have left it behind, unfinished.
        self._latest: weakref.ref[Coroutine[Any, Any, None]] | None = None
        self._in_a_row = 0

    def start(
        self,
        coroutine: Coroutine[Any, Any, None],
        *,
        name: str,
        context: Context,
        in_place: bool,
    ) -> asyncio.Task[None]:
        """Start ``coroutine`` as a task of the running loop, its first step at once if possible.

        From Python 3.12 on the first step is taken before this returns, so the task may be done by
        then. A loop with a task factory decides for itself.

        Args:
            coroutine: The coroutine to run.
            name: The task's name.
            context: The context to run it in.
            in_place: On Python 3.11: take the first step before anything else that is due on the
                loop, unless an earlier task's first step is due.
        """
        if sys.version_info >= (3, 12):
            return start_eagerly(coroutine, name=name, context=context)
        loop = asyncio.get_running_loop()
        if loop.get_task_factory() is not None:
            return loop.create_task(coroutine, name=name, context=context)
        earlier, self._latest = self._latest, weakref.ref(coroutine)
        task = loop.create_task(coroutine, name=name, context=context)
        ready = getattr(loop, "_ready", None)
        if in_place and ready is not None and not _is_to_begin(earlier):
            # Only for asyncio's own loops on 3.11, whose code is final; other loops start it an
            # iteration later. Not every time: tasks that end in their first step and start the next
            # one would starve all other callbacks.
            self._in_a_row = (self._in_a_row + 1) % _MAX_IN_A_ROW
            if self._in_a_row:
                ready.rotate(1)
        return task


def _is_to_begin(known: weakref.ref[Coroutine[Any, Any, None]] | None) -> bool:
    coroutine = None if known is None else known()
    return coroutine is not None and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception of ``future``, which is done: asyncio logs those that never were.

    A done-callback, for a future that its waiter may leave behind. On its loop.
    """
    if not future.cancelled():
        future.exception()


def silence_pending_warning(task: asyncio.Task[Any] | None) -> None:
    """Suppress the log of "Task was destroyed but it is pending!" for ``task``.

    For the library's tasks that a loop left behind when it ended: their futures are resolved, with
    an error that says so. asyncio does the same for the tasks of its own ``gather``.
    """
    if task is not None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def close_left_behind(
    coroutine: Coroutine[Any, Any, object], loop: asyncio.AbstractEventLoop
) -> None:
    """Close ``coroutine``, which a closed ``loop`` left behind; silence its task's warning.

    Any thread; never blocks.
    """
    with contextlib.suppress(RuntimeError):  # other loops start more tasks than can be listed
        for task in asyncio.all_tasks(loop):
            if task.get_coro() is coroutine:
                silence_pending_warning(task)
    coroutine.close()
