"""Blocking calls from a thread: a coroutine runs on a loop, and the thread waits for its end."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from rxlanggraph.concurrency.forking import wrong_process
from rxlanggraph.concurrency.loop_probe import LoopProbe
from rxlanggraph.concurrency.tasks import retrieve_exception
from rxlanggraph.errors import BlockingCallError, LoopUnavailableError

__all__ = ["await_on_loop", "check_reachable", "enter_on_loop", "leave_to_parent", "run_on_loop"]

_T = TypeVar("_T")
# Seconds between two checks that the loop still runs: a stopped one resolves nothing. A guess.
_PROBE_INTERVAL = 0.5
# In a forked child: the loops of the parent, each with the subject and the remedy for the error
# message. They claim to be running, as they were at the fork.
_loops_of_parent: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[str, str]] = (
    weakref.WeakKeyDictionary()
)


def run_on_loop(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` on ``loop``, and block until it has ended.

    Any thread but that of the loop. If interrupted (Ctrl-C), it cancels the coroutine and does not
    wait for it.

    Returns:
        What the coroutine returned.

    Raises:
        BlockingCallError: This is the loop's own thread.
        LoopUnavailableError: The loop does not run, or stopped for half a second during the call.
        WrongProcessError: The loop runs in the process that this one was forked from.
        BaseException: Whatever the coroutine raised.
    """
    call = _Call(loop, coroutine)
    try:
        call.send()
        _wait(call.future, loop)
    except BaseException:
        call.give_up()
        raise
    try:
        return call.future.result()
    finally:
        del call  # otherwise it and an error's traceback keep each other alive


async def await_on_loop(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` on ``loop``, and await its end. On any loop, also on that one.

    If cancelled, it cancels the coroutine and does not wait for it.

    Returns:
        What the coroutine returned.

    Raises:
        LoopUnavailableError: The loop does not run, or stopped for half a second during the call.
        WrongProcessError: The loop runs in the process that this one was forked from.
        BaseException: Whatever the coroutine raised.
    """
    if asyncio.get_running_loop() is loop:
        return await coroutine
    call = _Call(loop, coroutine)
    try:
        call.send()
        ended, probe = asyncio.wrap_future(call.future), LoopProbe(loop)
        ended.add_done_callback(retrieve_exception)  # if this is cancelled, nothing else does
        while not (await asyncio.wait([ended], timeout=_PROBE_INTERVAL))[0]:
            _check(probe, loop, call.future)
        return ended.result()
    except BaseException:
        call.give_up()
        raise
    finally:
        del call  # otherwise it and an error's traceback keep each other alive


def leave_to_parent(loop: asyncio.AbstractEventLoop, what: str, remedy: str) -> None:
    """In a forked child: have `run_on_loop` refuse ``loop``, which the parent runs.

    Args:
        loop: The loop of the parent.
        what: The object that uses the loop, for the error message.
        remedy: What to do instead, for the error message.
    """
    _loops_of_parent[loop] = (what, remedy)


def check_reachable(loop: asyncio.AbstractEventLoop) -> None:
    """Check that ``loop`` runs, in this process. Any thread; never blocks.

    Raises:
        LoopUnavailableError: It does not run.
        WrongProcessError: It runs in the process that this one was forked from.
    """
    if loop in _loops_of_parent:
        raise wrong_process(*_loops_of_parent[loop])
    if not loop.is_running():
        raise _not_running(loop)


class _Call(Generic[_T]):
    """A coroutine sent to a loop, which may never start it.

    A coroutine that is given up is closed, to avoid the "never awaited" warning. Sent with
    ``run_coroutine_threadsafe``, it would still be started if its loop ran again, and asyncio would
    log an error about a closed coroutine.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, _T]) -> None:
        self.future: Future[_T] = Future()
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[_T] | None = None  # confined to the loop

    def send(self) -> None:
        """Send it to the loop. Any thread; never blocks.

        Raises:
            BlockingCallError: This is the loop's own thread.
            LoopUnavailableError: The loop does not run.
            WrongProcessError: It runs in another process.
        """
        if asyncio._get_running_loop() is self._loop and self._loop not in _loops_of_parent:
            raise BlockingCallError(
                "a blocking call on the event loop's own thread would wait for itself; await the "
                "method there, instead of calling its blocking form"
            )
        check_reachable(self._loop)
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:  # the loop was closed just now
            raise _not_running(self._loop) from None

    def give_up(self) -> None:
        """Cancel it, or prevent its start. Any thread; never blocks."""
        if self.future.cancel():
            self._coroutine.close()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left to cancel
            self._loop.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return  # given up
        try:
            # Not started eagerly: tasks cancelled earlier must receive their CancelledError first.
            self._task = self._loop.create_task(self._coroutine)
        except BaseException as error:  # from the loop's own task factory, or Ctrl-C
            self.future.set_exception(error)
            self._coroutine.close()
            if not isinstance(error, Exception):
                raise
            return
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[_T]) -> None:
        if task.cancelled():
            why = f"the call was cancelled on the event loop {self._loop!r}, which may be ending"
            self.future.set_exception(LoopUnavailableError(why))
        elif (error := task.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(task.result())


def _wait(future: Future[Any], loop: asyncio.AbstractEventLoop) -> None:
    probe = LoopProbe(loop)
    while not wait([future], _PROBE_INTERVAL).done:
        _check(probe, loop, future)


def _check(probe: LoopProbe, loop: asyncio.AbstractEventLoop, future: Future[Any]) -> None:
    if not probe.has_run() and not future.done():
        raise _not_running(loop)


def _not_running(loop: asyncio.AbstractEventLoop) -> LoopUnavailableError:
    return LoopUnavailableError(
        f"the event loop {loop!r} is not running; it has to run until the blocking call returns"
    )


@contextlib.contextmanager
def enter_on_loop(
    loop: asyncio.AbstractEventLoop, manager: AbstractAsyncContextManager[_T]
) -> Iterator[_T]:
    """Enter and exit ``manager`` on ``loop``. Blocks as `run_on_loop` does, at both ends."""
    value = run_on_loop(loop, manager.__aenter__())
    try:
        yield value
    except BaseException as error:
        if not run_on_loop(loop, manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        run_on_loop(loop, manager.__aexit__(None, None, None))
