"""RunStream: ``async for`` over what one run puts out, which begins and ends with it.

What breaks without it: a caller that runs an agent and reads its output reads what others have left
there, and leaves what it does not read to others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from rxlanggraph.agent.output.queue import OutputQueue
from rxlanggraph.errors import OutputEndedError

__all__ = ["RunStream"]


class RunStream(AsyncIterator[Any]):
    """The items of one run; made by `BaseAgent.stream` with a request.

    The run begins with the first step, on the loop of which all others are to be taken. A step that
    is cancelled has taken nothing, and the run goes on; closed, or let go of, the stream cancels
    it. Also an async context manager, which closes it.

    Args:
        run: Begins the run, which is to put its items into the queue that it is called with.
    """

    def __init__(self, run: Callable[[OutputQueue[Any]], Coroutine[Any, Any, object]]) -> None:
        self._run = run
        # These belong to the loop on which it is iterated over.
        self._items: OutputQueue[Any] = OutputQueue(fairness_timeout=0)
        self._task: asyncio.Task[object] | None = None
        self._done = False

    def done(self) -> bool:
        """Whether it has ended, or was closed. Any thread; never blocks."""
        return self._done

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Any:
        """Get the next item. Cancelled, it has taken nothing.

        Raises:
            StopAsyncIteration: The run has ended well, or the stream was closed.
            Exception: Whatever the run raised, once its items are taken.
        """
        if self._done:
            raise StopAsyncIteration
        if self._task is None:
            self._task = self._begin()
        task = self._task
        try:
            return await self._items._get(self, None, None)
        except OutputEndedError:
            await asyncio.wait({task})
        if not self._done:
            self._done, self._task = True, None
            try:
                task.result()
            finally:
                del task  # its error refers to this frame, which would refer to it
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the stream, and cancel its run if that is on, and wait for its end."""
        self._done = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def __aenter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.aclose()

    def __del__(self) -> None:
        """Cancel the run of a stream that was let go of."""
        if self._task is not None and not self._task.done():
            with contextlib.suppress(RuntimeError):  # its loop is closed
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def _begin(self) -> asyncio.Task[object]:
        items = self._items
        items.begin()
        task = asyncio.create_task(self._run(items))

        def end(task: asyncio.Task[object]) -> None:
            items.end()
            if not task.cancelled():
                task.exception()  # raised where somebody iterates, and nowhere else

        task.add_done_callback(end)
        return task
