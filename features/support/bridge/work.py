"""Runs that tell where they are, and loops that are held up."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any
from unittest import mock

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from support.concurrency.tasks import PATIENCE
from support.controls import naive

__all__ = ["SUBMITTER", "Ending", "HeldLoop", "answer", "answer_of", "count_calls", "loop_of"]

SUBMITTER: ContextVar[object] = ContextVar("submitter", default=None)


async def answer(content: Any) -> Any:
    """The content, and the submitter as this run sees it."""
    return content, SUBMITTER.get()


def answer_of(future: Future[Any]) -> Any:
    result = future.result(PATIENCE)
    return result.content if isinstance(result, StreamMessage) else result


def loop_of(bridge: RxPyLangGraphBridge | naive.Bridge) -> asyncio.AbstractEventLoop:
    if isinstance(bridge, naive.Bridge):
        return bridge.loop
    future = bridge.create_future_task(answer, "first")
    future.result(PATIENCE)
    loop = future.get_loop()
    assert loop is not None
    return loop


class HeldLoop:
    """A loop that is busy until `release`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._released = threading.Event()
        held = threading.Event()

        def hold() -> None:
            held.set()
            self._released.wait(PATIENCE)

        loop.call_soon_threadsafe(hold)
        assert held.wait(PATIENCE)

    def release(self) -> None:
        self._released.set()


class Ending:
    """Runs of which the one called "first" takes its time to end when it is cancelled."""

    def __init__(self) -> None:
        self.started = {name: threading.Event() for name in ("first", "second")}
        self.ending = threading.Event()
        self.ended = threading.Event()
        # Confined to the loop's thread while that runs.
        self.running: set[str] = set()
        self._let_go: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, name: str) -> None:
        self.running.add(name)
        self._loop = asyncio.get_running_loop()
        let_go = asyncio.Event()
        if name == "first":
            self._let_go = let_go
        self.started[name].set()
        try:
            await let_go.wait()
        finally:
            if name == "first":
                self.ending.set()
                await let_go.wait()
            self.running.discard(name)
            self.ended.set()

    def let_go(self) -> None:
        if self._loop is None or self._let_go is None or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._let_go.set)


@contextlib.contextmanager
def count_calls(name: str = "run_coroutine_threadsafe") -> Iterator[mock.Mock]:
    """Count the calls of a function of asyncio, which go through."""
    with mock.patch.object(asyncio, name, wraps=getattr(asyncio, name)) as counter:
        yield counter


def held_up(until: threading.Event) -> Callable[..., Any]:
    """A run_coroutine_threadsafe whose caller gets on only after ``until``."""
    original = asyncio.run_coroutine_threadsafe

    def call(*args: Any) -> Any:
        future = original(*args)
        until.wait(PATIENCE)
        return future

    return call
