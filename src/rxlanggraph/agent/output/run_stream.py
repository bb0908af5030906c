"""RunStream: the items of one run, for its caller alone.

What breaks without it: a caller that runs an agent and reads its output gets items of earlier runs,
and leaves its own to other consumers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Self

from rxlanggraph.agent.output.queue import OutputQueue, get_as
from rxlanggraph.concurrency.closing import AsyncClosingContext
from rxlanggraph.concurrency.run_on_loop import await_on_loop
from rxlanggraph.concurrency.tasks import retrieve_exception
from rxlanggraph.errors import LoopUnavailableError, OutputEndedError, UsageError

__all__ = ["RunStream"]


class RunStream(AsyncClosingContext, AsyncIterator[Any]):
    """The items of one run; made by `BaseAgent.stream` with a request.

    The run begins with the first step; all further steps must be on the same loop. A cancelled step
    has taken nothing, and the run continues; closing or dropping the stream, in any thread, cancels
    the run. Also an async context manager, which closes it.

    Args:
        run: Starts the run, which puts its items into the queue passed to it.
        items: That queue.
    """

    def __init__(
        self,
        run: Callable[[OutputQueue[Any]], Coroutine[Any, Any, object]],
        items: OutputQueue[Any],
    ) -> None:
        self._items = items
        # Emptied by the first step, or by closing before it, in one call: any thread may close.
        self._to_begin = [run]
        # Owned by the loop of the run; read by any thread.
        self._task: asyncio.Task[object] | None = None
        self._done = False  # any thread; only ever becomes True

    def done(self) -> bool:
        """Whether it has ended, or was closed. Any thread; never blocks."""
        return self._done

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Any:
        """Get the next item. Cancelled, it has taken nothing.

        Raises:
            StopAsyncIteration: The run has succeeded, or the stream was closed.
            UsageError: The run has begun on another loop.
            Exception: Whatever the run raised, after its last item.
        """
        self._begin()
        task = self._task
        if self._done:
            raise StopAsyncIteration
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            raise UsageError(
                "this stream has begun on another loop; iterate over it there, or make one for "
                "each loop"
            )
        try:
            return await get_as(self._items, self)
        except OutputEndedError:
            pass  # the run has ended
        if not self._done:
            self._done, self._task = True, None
            try:
                task.result()
            finally:
                del task  # its error refers to this frame: otherwise a reference cycle
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the stream, cancel its run if that is active, and wait for its end. Any loop.

        It does not wait for a loop that is stopped or closed; the run is cancelled once it goes on.
        """
        self._done = True
        self._to_begin.clear()
        task = self._task
        if task is not None and not task.done():
            _cancel_threadsafe(task)
            with contextlib.suppress(LoopUnavailableError):
                await await_on_loop(task.get_loop(), _end_of(task))

    def __del__(self) -> None:
        """Cancel the run of a stream that was dropped."""
        if self._task is not None and not self._task.done():
            _cancel_threadsafe(self._task)

    def _begin(self) -> None:
        """Begin the run, unless that was done, or the stream was closed."""
        try:
            run = self._to_begin.pop()
        except IndexError:
            return
        items = self._items
        items.begin()
        task = self._task = asyncio.create_task(run(items))
        task.add_done_callback(lambda _: items.end())
        task.add_done_callback(retrieve_exception)  # raised only where the stream is iterated over
        if self._done:  # another thread has closed the stream just now
            task.cancel()


def _cancel_threadsafe(task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(RuntimeError):  # its loop is closed
        task.get_loop().call_soon_threadsafe(task.cancel)


async def _end_of(task: asyncio.Task[Any]) -> None:
    await asyncio.wait({task})
