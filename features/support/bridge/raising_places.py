"""Places where a bridge calls user code, which raises there."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import reactivex
from tenacity import AsyncRetrying

from rxlanggraph import RxPyLangGraphBridge
from support.concurrency.waiting import LIMIT, Gate, Log

__all__ = ["EXCEPTIONS", "NoException", "echo", "fail", "once_for_a_run", "raise_", "raise_at"]


class NoException(BaseException):
    """An exception of a user's own that is not an Exception."""


EXCEPTIONS: dict[str, type[BaseException]] = {
    "no Exception": NoException,
    "a CancelledError": asyncio.CancelledError,
    "a SystemExit": SystemExit,
    "a KeyboardInterrupt": KeyboardInterrupt,
    "a GeneratorExit": GeneratorExit,
    "a ValueError": ValueError,
}
Raise = Callable[..., Any]


def raise_(error: type[BaseException], *_: object) -> Any:
    raise error("raised by user code")


async def echo(content: Any) -> Any:
    return content


async def fail(content: Any) -> Any:
    raise ValueError(f"no answer to {content}")


def _gated(bridge: RxPyLangGraphBridge) -> tuple[Future[Any], Gate]:
    gate, begun = Gate(), Log()

    async def wait(content: Any) -> Any:
        begun.add(content)
        await gate.wait_async()
        return content

    run = bridge.create_future_task(wait, 0, thread_id="0")
    begun.wait_for(1)
    return run, gate


def done_callback(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    run, gate = _gated(bridge)
    run.add_done_callback(raising)
    behind = bridge.create_future_task(echo, 1, thread_id="0")
    gate.open()
    assert behind.result(LIMIT).content == 1


def done_callback_of_cancelled(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    run, gate = _gated(bridge)
    run.add_done_callback(raising)
    behind = bridge.create_future_task(echo, 1, thread_id="0")
    run.cancel()
    gate.open()
    assert behind.result(LIMIT).content == 1


def _subscribe(bridge: RxPyLangGraphBridge, graph: Any, **handlers: Any) -> None:
    source = reactivex.from_iterable(range(4))
    source.pipe(bridge.invoke(graph, thread_id=str)).subscribe(**handlers)


def on_next(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    _subscribe(bridge, echo, on_next=raising, on_error=lambda _: None)


def on_error(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    _subscribe(bridge, fail, on_error=raising)


def on_completed(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    _subscribe(bridge, echo, on_completed=raising, on_error=lambda _: None)


def thread_id_function(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    source = reactivex.from_iterable(range(4))
    source.pipe(bridge.invoke(echo, thread_id=raising)).subscribe(on_error=lambda _: None)


def retry_predicate(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    run = bridge.create_future_task(
        fail, 0, thread_id="0", retry=AsyncRetrying(retry=raising), errors="emit"
    )
    assert run.result(LIMIT).status in ("error", "cancelled"), run


def once_for_a_run(raising: Raise) -> Callable[..., Any]:
    """A task factory that raises for the next run, and then never again."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if coroutine.__name__ != "execute":
            return asyncio.Task(coroutine, loop=loop, **options)
        loop.set_task_factory(None)
        return raising()

    return make


def task_factory(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    bridge.create_future_task(echo, 0).result(LIMIT)
    loop: Any = bridge._engine.host.loop
    loop.call_soon_threadsafe(loop.set_task_factory, once_for_a_run(raising))
    run = bridge.create_future_task(echo, 0, errors="emit")
    assert run.result(LIMIT).status == "error", run


def no_handler(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    async def node(content: Any) -> Any:
        raising()

    _subscribe(bridge, node)


def name_of_graph(bridge: RxPyLangGraphBridge, raising: Raise) -> None:
    class Graph:
        name = property(raising)
        ainvoke = staticmethod(echo)

    try:
        bridge.create_future_task(Graph(), 0)
    except BaseException:
        return
    raise AssertionError("what the name raised is lost")


PLACES: dict[str, Callable[[RxPyLangGraphBridge, Raise], None]] = {
    "a done-callback": done_callback,
    "the done-callback of a cancelled run": done_callback_of_cancelled,
    "on_next": on_next,
    "on_error": on_error,
    "on_completed": on_completed,
    "a thread_id function": thread_id_function,
    "a retry predicate": retry_predicate,
    "the loop's own task factory": task_factory,
    "a stream without an on_error handler": no_handler,
    "the name of a graph": name_of_graph,
}


def raise_at(place: str, bridge: RxPyLangGraphBridge, error: type[BaseException]) -> None:
    # What an observer raises is raised in the source's thread, this one, where that emits.
    with contextlib.suppress(error):
        PLACES[place](bridge, functools.partial(raise_, error))
