"""Naive ways to share an agent's output: controls that show that scenarios can fail."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

from rxlanggraph.errors import OutputEndedError, RunTimeoutError
from support.controls.naive import CheckedLock

__all__ = [
    "CheckedQueue",
    "FirstComeQueue",
    "FlaggedQueue",
    "HandingQueue",
    "PlainLockQueue",
    "PlainQueue",
]


class PlainQueue:
    """An asyncio.Queue, whose end is told by an item of its own for each consumer."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def begin(self) -> None: ...

    def put_nowait(self, item: Any) -> None:
        self._queue.put_nowait(item)

    def end(self) -> None:
        self._queue.put_nowait(OutputEndedError)

    async def get(self) -> Any:
        item = await self._queue.get()
        if item is OutputEndedError:
            self._queue.put_nowait(item)
            raise OutputEndedError("the run has ended")
        return item

    def qsize(self) -> int:
        return self._queue.qsize()


class CheckedQueue(PlainQueue):
    """Consumers look whether the run is over, and then wait for an item."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = False

    def end(self) -> None:
        self._ended = True

    async def get(self) -> Any:
        if self._ended and self._queue.empty():
            raise OutputEndedError("the run has ended")
        return await self._queue.get()

    async def stream(self) -> AsyncIterator[Any]:
        while not self._ended:
            item = await self._queue.get()
            yield item


class FlaggedQueue:
    """Items and a flag under an asyncio.Condition; the next run takes the flag down."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._ended = False
        self._waiting: list[asyncio.Future[None]] = []

    def begin(self) -> None:
        self._ended = False

    def end(self) -> None:
        self._ended = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def put_nowait(self, item: Any) -> None:
        self._items.append(item)

    async def get(self) -> Any:
        while not self._items:
            if self._ended:
                raise OutputEndedError("the run has ended")
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        return self._items.popleft()


class HandingQueue:
    """An item leaves the queue when it is handed to a waiting getter."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._getters: deque[asyncio.Future[Any]] = deque()

    def begin(self) -> None: ...

    def put_nowait(self, item: Any) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(item)
                return
        self._items.append(item)

    async def get(self) -> Any:
        if self._items:
            return self._items.popleft()
        getter = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        return await getter

    def get_nowait(self) -> Any:
        if not self._items:
            raise asyncio.QueueEmpty
        return self._items.popleft()


class FirstComeQueue:
    """Items go to the first request, whatever others are about to request."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def begin(self) -> None: ...

    def put_nowait(self, item: Any) -> None:
        self._items.append(item)

    async def get(self, timeout: float) -> Any:
        end = monotonic() + timeout
        while True:
            await asyncio.sleep(0)
            try:
                return self._items.popleft()
            except IndexError:
                if monotonic() >= end:
                    raise RunTimeoutError(f"nothing in {timeout} s") from None


class PlainLockQueue:
    """Every use under a lock that its holder cannot take again."""

    def __init__(self) -> None:
        self._lock = CheckedLock()
        self._items: deque[Any] = deque()

    def put_nowait(self, item: Any) -> None:
        with self._lock:
            self._items.append(item)
