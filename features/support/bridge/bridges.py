"""Bridges for scenarios, on a loop of their own or a lent one; and words for steps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from behave import register_type
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge, StreamMessage, TimeLimits
from rxlanggraph.testing import VirtualBridge
from support.bridge.graphs import KINDS, Work, graph_of
from support.concurrency.waiting import LIMIT, thread
from support.step_types import one_of

__all__ = [
    "LentLoop",
    "answer",
    "arguments",
    "expire",
    "failure_of",
    "listen",
    "make_bridge",
    "on_loop",
    "pass_time",
    "send",
]

T = TypeVar("T")


_HOMES = ("its own", "an adopted", "a virtual")
register_type(Kind=one_of(KINDS), Home=one_of(_HOMES))


class LentLoop:
    """A loop that runs in a thread, as ``asyncio.run`` runs it, until it is ended."""

    def __init__(
        self, factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    ) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._end: asyncio.Event | None = None
        self.main_task: asyncio.Task[Any] | None = None

        async def main() -> None:
            self._end = asyncio.Event()
            self.main_task = asyncio.current_task()
            started.set_result(asyncio.get_running_loop())
            await self._end.wait()

        def work() -> None:
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(main())

        self._ended = thread(work)
        self.loop = started.result(LIMIT)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT)

    def end(self) -> None:
        """End the main coroutine: what else is on the loop is cancelled, the loop closed."""
        assert self._end is not None
        with contextlib.suppress(RuntimeError):  # it has ended by itself, and is closed
            self.loop.call_soon_threadsafe(self._end.set)
        self._ended.exception(LIMIT)


def arguments(text: str) -> dict[str, Any]:
    """``"timeout=0.1, max_concurrency=2"`` as a dictionary."""
    options: dict[str, Any] = eval(f"dict({text})", {"nan": float("nan"), "TimeLimits": TimeLimits})
    return options


def make_bridge(context: Context, *, home: str = "its own", **options: Any) -> RxPyLangGraphBridge:
    """Make ``context.bridge``, with ``context.work``; both are ended with the scenario."""
    assert home in _HOMES, home
    context.work = work = Work()
    context.futures = []
    context.lent = None
    if home == "an adopted":
        context.lent = LentLoop()
        context.add_cleanup(context.lent.end)
        options["loop"] = context.lent.loop
    # In virtual time, a limit is over neither sooner nor later on a busy machine.
    make = VirtualBridge if home == "a virtual" else RxPyLangGraphBridge
    context.bridge = make(**options)
    kept = [context.bridge]

    def end() -> None:
        work.release()
        for bridge in kept:
            bridge.close(0)

    def forget() -> None:
        kept.clear()
        context.bridge = None

    context.add_cleanup(end)
    context.forget_bridge = forget
    return context.bridge


def expire(run: Any) -> None:
    """Have the time of the attempt of ``run`` be over now, which has begun with a timeout.

    With a timeout that is over by itself, a busy machine may not have begun what it is to end.
    """

    def let_it_ring() -> None:
        timer = run.timer
        timer._run()
        timer.cancel()

    run.get_loop().call_soon_threadsafe(let_it_ring)


def pass_time(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Have the clock of ``loop``, which runs, jump: limits of ``seconds`` are over then.

    As `expire`, for limits of any kind. Whatever else is timed on the loop is to have longer ones.
    """

    def jump() -> None:
        before = loop.time
        loop.time = lambda: before() + seconds  # type: ignore[method-assign]

    loop.call_soon_threadsafe(jump)


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def listen(context: Context, name: str) -> list[logging.LogRecord]:
    """The warnings and errors that the logger ``name`` gets from now on."""
    handler, logger = _Records(), logging.getLogger(name)
    logger.addHandler(handler)
    context.add_cleanup(logger.removeHandler, handler)
    return handler.records


def answer(context: Context, number: int = -1) -> StreamMessage:
    result: StreamMessage = context.futures[number].result(LIMIT)
    return result


def failure_of(context: Context, number: int = -1) -> BaseException:
    try:
        context.futures[number].result(LIMIT)
    except BaseException as error:
        return error
    raise AssertionError("the future has a result")


def send(context: Context, kind: str, values: Any, **options: Any) -> None:
    graph = graph_of(context.work, kind)
    for value in values:
        context.futures.append(
            context.bridge.create_future_task(graph, {"value": value}, **options)
        )


def on_loop(context: Context) -> None:
    """Return once the bridge's loop has done what was scheduled on it before."""
    loop = context.bridge._engine.host.loop
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(LIMIT)
