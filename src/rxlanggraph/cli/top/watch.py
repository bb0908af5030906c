"""Watch: what ``rxlanggraph top`` shows; and a journal as a `Watch`, which is polled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from rxlanggraph.live.schema import Snapshot
from rxlanggraph.live.source import Answered, Source

__all__ = ["Ended", "Lost", "PolledSource", "Update", "Watch"]

# Between two looks at a journal.
_POLL_SECONDS = 1.0


class Lost(NamedTuple):
    """The connection is lost.

    Attributes:
        reason: Why.
        seconds: Until the next attempt.
    """

    reason: str
    seconds: float


class Ended(NamedTuple):
    """Nothing more will come, for this reason."""

    reason: str


Update = Snapshot | Lost | Ended


class Watch(Protocol):
    """What the screen shows. Its methods are for one loop, and raise `CommandError`."""

    @property
    def place(self) -> str:
        """Where it is, without secrets."""

    async def snapshot(self) -> Snapshot:
        """Return a snapshot."""

    def updates(self) -> AsyncGenerator[Update, None]:
        """Yield snapshots, what happens to the connection, and the end."""

    async def stack(self, run_id: int) -> str | None:
        """Return the current stack of a run; None if it is not in flight."""

    async def cancel(self, run_id: int) -> bool:
        """Cancel a run; False if it is not in flight."""

    async def answer(self, question_id: str, value: Any) -> Answered:
        """Answer a question, with a value that JSON can hold."""


class PolledSource:
    """A source in this process as a `Watch`: that of a journal.

    Args:
        source: The source.
        place: Where it is.
        pause: Sleeps for so many seconds.
    """

    def __init__(
        self,
        source: Source,
        place: str,
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.place = place
        self.snapshot = source.snapshot
        self.stack = source.stack
        self.cancel = source.cancel
        self.answer = source.answer
        self._source = source
        self._pause = pause

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield a snapshot each second, until nothing will change any more."""
        while True:
            yield await self._source.snapshot()
            if self._source.closed:
                yield Ended("closed")
                return
            await self._pause(_POLL_SECONDS)
