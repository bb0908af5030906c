"""Futures with a moment of their own, and threads that must end."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextvars import Context
from typing import Any

__all__ = [
    "PATIENCE",
    "Meddler",
    "WhenHeard",
    "end",
    "end_tasks_and_close",
    "forever",
    "in_thread",
    "pass_turns",
    "run",
    "start",
    "switching_never",
    "switching_often",
]

# Seconds that anything may take that happens at once.
PATIENCE = 60.0


def start(fn: Callable[[], Any]) -> Callable[[], Any]:
    """Call ``fn`` in a thread. What is returned waits for its end, for its result or error."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(fn())
        except BaseException as error:
            future.set_exception(error)

    # In another context: from Python 3.14 on a thread may begin in the context of its starter.
    thread = threading.Thread(target=Context().run, args=(work,), daemon=True)
    thread.start()

    def join() -> Any:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"{fn} is blocked"
        return future.result(0)

    return join


def in_thread(fn: Callable[[], Any]) -> Any:
    return start(fn)()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


@contextlib.contextmanager
def switching_often() -> Iterator[None]:
    """Threads that share an interpreter lock take turns in the middle of operations, too."""
    with _switching_every(1e-6):
        yield


@contextlib.contextmanager
def switching_never() -> Iterator[None]:
    """Threads that share an interpreter lock take turns only where one of them blocks."""
    with _switching_every(PATIENCE):
        yield


@contextlib.contextmanager
def _switching_every(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def pass_turns(count: int = 50) -> None:
    """Let what is on the loop have its turns: more than it uses, but where it waits for good."""
    for _ in range(count):
        await asyncio.sleep(0)


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def end_tasks_and_close(loop: asyncio.AbstractEventLoop) -> None:
    """End what is left on a loop that does not run, unless it is closed."""
    if loop.is_closed():
        return
    # From Python 3.14 on, asked on the loop, asyncio knows the tasks of the present thread alone.
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.close()


def end(task: Future[Any]) -> None:
    if not task.done():
        task.set_result(None)


class Meddler(Future[Any]):
    """When asked its state for the first time, it has another thread do something first."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        super().__init__()
        self._meddle: Callable[[], object] | None = meddle

    def done(self) -> bool:
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            in_thread(meddle)
        return super().done()


class WhenHeard(Future[Any]):
    """It ends before or after the callback is added that hears of its end."""

    def __init__(self, *, before: bool) -> None:
        super().__init__()
        self._before = before

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        if self._before:
            self.set_result(None)
        super().add_done_callback(fn)
        if not self._before:
            self.set_result(None)
