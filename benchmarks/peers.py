"""The ways of getting work from threads into a graph on a loop, behind one interface.

A peer is a context manager with two methods. `submit(target, content)` hands one piece of work over
and returns a `concurrent.futures.Future`; `stream(target, contents)` takes all the contents through
and returns when the last result is out. A target is an async function of the content; `stream`
takes a compiled graph as well, which the bridge is given as it is, and the others as its `ainvoke`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Self

import reactivex as rx
from anyio.from_thread import start_blocking_portal
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge

from .harness import LoopThread, drain

Target = Callable[[Any], Awaitable[Any]]


def as_function(target: Any) -> Target:
    """Return what to await for one content: a graph's `ainvoke`, or the function itself."""
    function: Target = getattr(target, "ainvoke", target)
    return function


class Peer(ExitStack):
    """What every way has in common: resources that it closes, and a default `stream`."""

    def submit(self, target: Target, content: Any) -> Future[Any]:
        raise NotImplementedError

    def stream(self, target: Any, contents: Sequence[Any]) -> None:
        function = as_function(target)
        mapper = ops.flat_map(lambda content: self.submit(function, content))
        drain(rx.from_iterable(contents).pipe(mapper), len(contents))


class PlainAsyncio(Peer):
    """`flat_map` and `run_coroutine_threadsafe`: what people write; nothing is tracked."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.thread = self.enter_context(LoopThread())
        return self

    def submit(self, target: Target, content: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(target(content), self.thread.loop)  # type: ignore[arg-type]


class BareFix(PlainAsyncio):
    """Plain asyncio with the bare fix for tracking: a set, and a lock around each change of it."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = BareSet()

    def submit(self, target: Target, content: Any) -> Future[Any]:
        future = super().submit(target, content)
        self.tasks.add(future)
        return future


class BareSet:
    """The least that keeps a set of futures whole: no names, ages, counters, sealing or waiting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: set[Future[Any]] = set()

    def add(self, future: Future[Any]) -> None:
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(self._discard)

    def _discard(self, future: Future[Any]) -> None:
        with self._lock:
            self._futures.discard(future)

    def snapshot(self) -> tuple[Future[Any], ...]:
        with self._lock:
            return tuple(self._futures)


class Portal(Peer):
    """anyio's BlockingPortal."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.portal = self.enter_context(start_blocking_portal())
        return self

    def submit(self, target: Target, content: Any) -> Future[Any]:
        return self.portal.start_task_soon(target, content)


class Pool(PlainAsyncio):
    """A pool of `workers` coroutines in the loop, fed from threads through an `asyncio.Queue`."""

    def __init__(self, workers: int = 16) -> None:
        super().__init__()
        self._workers = workers

    def __enter__(self) -> Self:
        super().__enter__()
        self.thread.run(self._start())
        self.callback(lambda: self.thread.run(self._stop()))
        return self

    async def _start(self) -> None:
        self._queue: asyncio.Queue[tuple[Target, Any, Future[Any]]] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            target, content, future = await self._queue.get()
            try:
                future.set_result(await target(content))
            except Exception as error:
                future.set_exception(error)

    def submit(self, target: Target, content: Any) -> Future[Any]:
        future: Future[Any] = Future()
        item = (target, content, future)
        self.thread.loop.call_soon_threadsafe(self._queue.put_nowait, item)
        return future


class Floor(PlainAsyncio):
    """`workers` coroutines in the loop that call the target one after another: no hand-over."""

    def __init__(self, workers: int = 16) -> None:
        super().__init__()
        self._workers = workers

    def stream(self, target: Any, contents: Sequence[Any]) -> None:
        self.thread.run(self._race(as_function(target), iter(contents)))

    async def _race(self, target: Target, contents: Iterator[Any]) -> None:
        async def work() -> None:
            for content in contents:  # one iterator, shared: each takes the next
                await target(content)

        await asyncio.gather(*[work() for _ in range(self._workers)])


class Bridge(Peer):
    """Ours, with options of the bridge and of its operator."""

    def __init__(
        self, max_concurrency: int = 16, *, max_pending: int | None = None, ordered: bool = False
    ) -> None:
        super().__init__()
        self._bound = max_concurrency
        self._pending = max_pending
        self._ordered = ordered

    def __enter__(self) -> Self:
        super().__enter__()
        self.bridge = self.enter_context(
            RxPyLangGraphBridge(max_concurrency=self._bound, max_pending=self._pending)
        )
        return self

    def submit(self, target: Target, content: Any) -> Future[Any]:
        return self.bridge.create_future_task(target, content)

    def stream(self, target: Any, contents: Sequence[Any]) -> None:
        operator = self.bridge.invoke(target, max_concurrency=self._bound, ordered=self._ordered)
        drain(rx.from_iterable(contents).pipe(operator), len(contents))


class AdoptedBridge(PlainAsyncio):
    """Ours on a loop that is the program's, and fed on that loop."""

    def stream(self, target: Any, contents: Sequence[Any]) -> None:
        self.thread.run(self._stream(target, contents))

    async def _stream(self, target: Any, contents: Sequence[Any]) -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        async with RxPyLangGraphBridge(loop, max_concurrency=16) as bridge:
            rx.from_iterable(contents).pipe(bridge.invoke(target, max_concurrency=16)).subscribe(
                on_error=ended.set_exception, on_completed=lambda: ended.set_result(None)
            )
            await ended


#: What a peer is called in the results.
PEERS: dict[str, Callable[[], Peer]] = {
    "bridge": Bridge,
    "bridge, max_pending=64": lambda: Bridge(max_pending=64),
    "bridge, ordered": lambda: Bridge(ordered=True),
    "bridge, on an adopted loop": AdoptedBridge,
    "floor": Floor,
    "plain-asyncio": PlainAsyncio,
    "bare-fix": BareFix,
    "portal": Portal,
    "pool": Pool,
}
