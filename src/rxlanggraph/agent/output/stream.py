"""OutputStream: ``async for`` over the output of an agent.

A class rather than an async generator: a generator has ended once one of its steps was cancelled or
timed out, two tasks cannot wait for it, and what it holds is released only when its loop gets to
it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Self, TypeVar

from rxlanggraph.agent.output.fairness import ConsumerKey
from rxlanggraph.errors import OutputEndedError

__all__ = ["OutputStream"]

_T = TypeVar("_T")


class OutputStream(AsyncIterator[_T]):
    """The items of an `OutputQueue` until a run ends; made by `OutputQueue.stream`.

    It is one consumer, whichever tasks iterate. A step that is cancelled or timed out has taken
    nothing, and the stream continues with the next one. A dropped stream is removed eventually;
    `aclose` does that at once.

    Args:
        get: Gets the next item for the consumer passed to it.
        close: Removes the consumer passed to it.
    """

    def __init__(
        self,
        get: Callable[[ConsumerKey], Coroutine[Any, Any, _T]],
        close: Callable[[ConsumerKey], None],
    ) -> None:
        self._get = get
        self._close = close
        self._done = False  # any thread; only ever becomes True

    def done(self) -> bool:
        """Whether it has ended, or was closed. Any thread; never blocks."""
        return self._done

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> _T:
        """Get the next item. Any loop. If cancelled, it has taken nothing.

        Raises:
            StopAsyncIteration: The run has ended, or the stream was closed.
            RunTimeoutError: There was no item in time.
        """
        if not self._done:
            try:
                return await self._get(self)
            except OutputEndedError:
                await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the stream, also for tasks waiting for its next item. Any loop; never waits."""
        self._done = True
        self._close(self)
