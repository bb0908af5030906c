"""Naive ways, kept as controls: each shows that the scenario beside it can fail."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, Protocol

from support.controls.naive_models import Tasks

__all__ = ["BatchingBridge", "Bridge", "CheckedLock", "LockedSet", "PlainSet", "Registry"]


class Registry(Protocol):
    """What the scenarios ask of either registry."""

    def add(self, task: Future[Any], *, name: str | None = None) -> None: ...

    def snapshot(self) -> tuple[Any, ...]: ...

    def close(self) -> tuple[Any, ...]: ...

    def __len__(self) -> int: ...

    def __contains__(self, task: object) -> bool: ...


class PlainSet(Tasks):
    """A set of tasks that threads fill and done-callbacks empty."""

    def add(self, task: Future[Any], *, name: str | None = None) -> None:
        if self.closed:
            raise RuntimeError("closed")
        task.add_done_callback(self.discard)
        self.tasks.add(task)

    def discard(self, task: Future[Any]) -> None:
        self.tasks.discard(task)

    def snapshot(self) -> tuple[Any, ...]:
        return tuple((task, task.done()) for task in self.tasks)

    def clear_out(self) -> None:
        """Drop what has ended."""
        self.tasks = {task for task in list(self.tasks) if not task.done()}

    def close(self) -> tuple[Any, ...]:
        seen = list(self.tasks)
        self.closed = True
        return tuple(seen)

    def __len__(self) -> int:
        return len(self.tasks)

    def __contains__(self, task: object) -> bool:
        return task in self.tasks


class CheckedLock:
    """A plain lock that says so where its holder, coming again, would wait forever."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        assert not self._lock._is_owned(), "deadlock: this thread holds the lock"
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class LockedSet(PlainSet):
    """The bare fix: a plain lock around every use of the set."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = CheckedLock()

    def add(self, task: Future[Any], *, name: str | None = None) -> None:
        with self.lock:
            if self.closed:
                raise RuntimeError("closed")
            self.tasks.add(task)
        task.add_done_callback(self.discard)

    def discard(self, task: Future[Any]) -> None:
        with self.lock:
            self.tasks.discard(task)

    def snapshot(self) -> tuple[Any, ...]:
        with self.lock:
            return tuple(self.tasks)


class Bridge:
    """The naive mapper for ``flat_map``: run_coroutine_threadsafe, a plain set, a cleanup."""

    def __init__(self) -> None:
        self.registry = PlainSet()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="naive-loop")
        self._thread.start()

    def create_future_task(
        self, fn: Callable[[Any], Coroutine[Any, Any, Any]], message: Any
    ) -> Future[Any]:
        future = asyncio.run_coroutine_threadsafe(fn(message), self.loop)
        self.registry.add(future)
        return future

    def cleanup_tasks(self) -> None:
        self.registry.cleanup()

    def stop(self) -> None:
        """Stop the loop, as other code would: without notice."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def close(self) -> None:
        if self.loop.is_closed():
            return
        if self._thread.is_alive():
            self.stop()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(_ended(tasks))
        self.loop.close()


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


class BatchingBridge(Bridge):
    """One wake-up for many coroutines, which all run in the context of the first submitter."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: list[tuple[Future[Any], Awaitable[Any]]] = []
        self._lock = threading.Lock()

    def create_future_task(
        self, fn: Callable[[Any], Coroutine[Any, Any, Any]], message: Any
    ) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._queue.append((future, fn(message)))
            first = len(self._queue) == 1
        if first:
            self.loop.call_soon_threadsafe(self._drain)
        return future

    def _drain(self) -> None:
        with self._lock:
            queue, self._queue = self._queue, []
        for future, coroutine in queue:
            self.loop.create_task(self._run(future, coroutine))

    async def _run(self, future: Future[Any], coroutine: Awaitable[Any]) -> None:
        result = await coroutine
        with contextlib.suppress(InvalidStateError):
            future.set_result(result)
