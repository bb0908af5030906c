"""Waiting without sleeping: gates, logs of what happened, threads that set off together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

__all__ = ["LIMIT", "Gate", "Log", "in_threads", "thread"]

T = TypeVar("T")
# Seconds. No wait of a scenario that passes takes a fraction of it, on busy cores too.
LIMIT = 90.0


class Gate:
    """Opened once, by any thread; waited for in threads and on loops."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()

    @property
    def is_open(self) -> bool:
        return self._opened.done()

    def open(self) -> None:
        with contextlib.suppress(InvalidStateError):
            self._opened.set_result(None)

    def wait(self) -> None:
        self._opened.result(LIMIT)

    async def wait_async(self) -> None:
        loop, opened = asyncio.get_running_loop(), asyncio.Event()

        def wake(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the waiting loop is closed
                loop.call_soon_threadsafe(opened.set)

        self._opened.add_done_callback(wake)
        async with asyncio.timeout(LIMIT):
            await opened.wait()


class Log:
    """What happened, in order, told by any thread."""

    def __init__(self) -> None:
        self._entries: list[Any] = []
        self._changed = threading.Condition()

    def add(self, entry: Any) -> None:
        with self._changed:
            self._entries.append(entry)
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[Any]:
        """The entries, as soon as there are ``count``."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self._entries) >= count, LIMIT)
            assert enough, f"{len(self._entries)} of {count} after {LIMIT} s: {self._entries}"
            return list(self._entries)

    def __len__(self) -> int:
        with self._changed:
            return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        with self._changed:
            return iter(list(self._entries))


def thread(work: Callable[..., T], *arguments: Any) -> Future[T]:
    """Run ``work`` in a thread of its own."""
    future: Future[T] = Future()

    def target() -> None:
        try:
            result = work(*arguments)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=target, daemon=True).start()
    return future


def in_threads(count: int, work: Callable[[int], T]) -> list[T]:
    """Run ``work(0)`` to ``work(count - 1)`` in threads that set off together; their results."""
    start = threading.Barrier(count)

    def at_once(number: int) -> T:
        start.wait(LIMIT)
        return work(number)

    return [future.result(LIMIT) for future in [thread(at_once, i) for i in range(count)]]
