"""Submitters that block the thread of an event loop, which is not that of the bridge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import reactivex as rx
from behave import then, when
from behave.runner import Context
from reactivex.subject import Subject

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.bridge.deadlocks import is_waiting
from rxlanggraph.bridge.run import Run
from rxlanggraph.errors import DeadlockError
from rxlanggraph.operators import to_async_iterable
from support.bridge.bridges import LentLoop
from support.bridge.chunks import counting
from support.bridge.graphs import State
from support.bridge.streams import Subscriber
from support.concurrency.pauses import until
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT, Gate, thread


async def answer(content: Any) -> Any:
    return content


async def two() -> AsyncIterator[int]:
    yield 0
    yield 1


async def reads(bridge: RxPyLangGraphBridge) -> tuple[BaseException | None, list[Any]]:
    """The second answer is withheld until the first is read, and has the room for the third."""
    source: Subject[int] = Subject()
    results = source.pipe(bridge.invoke(answer), to_async_iterable(max_buffered=1))
    source.on_next(0)
    assert await asyncio.to_thread(bridge.registry.wait_idle, LIMIT)
    source.on_next(1)
    source.on_next(2)
    answers = [(await anext(results)).content]
    try:
        await anext(results)
    except DeadlockError as error:
        return error, answers
    return None, answers


async def pulls(bridge: RxPyLangGraphBridge) -> tuple[BaseException | None, list[Any]]:
    """The pulled item is the next one to have the room."""
    subscriber = Subscriber()
    error, answers = await beside_others(
        bridge,
        lambda: subscriber.subscribe(bridge.from_iterable(two()).pipe(bridge.invoke(answer))),
    )
    await asyncio.to_thread(subscriber.wait_for_end)
    return error, answers + [each.content for each in subscriber.items]


async def submits(bridge: RxPyLangGraphBridge) -> tuple[BaseException | None, list[Any]]:
    """The message that is submitted is the next one to have the room."""
    tasks: list[asyncio.Task[Any]] = []
    error, answers = await beside_others(
        bridge, lambda: tasks.append(asyncio.create_task(bridge.submit(answer, 0)))
    )
    run = await tasks[0]
    return error, [*answers, (await run).content]


async def reads_chunks(bridge: RxPyLangGraphBridge) -> tuple[BaseException | None, list[Any]]:
    """The slot belongs to a run that is held up until its chunks are read."""
    return await beside_chunks(bridge, lambda: until(lambda: is_waiting(first_run(bridge))), None)


async def reads_later_chunks(
    bridge: RxPyLangGraphBridge,
) -> tuple[BaseException | None, list[Any]]:
    """That run is held up only when the thread is blocked already."""
    go_on = Gate()

    def when_blocked() -> None:
        asyncio.run(until(lambda: bool(bridge._engine.admission._gates)))
        go_on.open()

    def begun() -> Awaitable[object]:
        thread(when_blocked)
        return until(lambda: first_run(bridge).running())

    return await beside_chunks(bridge, begun, go_on)


def first_run(bridge: RxPyLangGraphBridge) -> Run:
    return bridge._engine.registry.runs()[0]


async def beside_chunks(
    bridge: RxPyLangGraphBridge, prepared: Callable[[], Awaitable[object]], go_on: Gate | None
) -> tuple[BaseException | None, list[Any]]:
    """Submit a message here when the chunks of a run are to be read, and another one has room."""

    async def plus_1(state: State) -> State:
        if go_on is not None:
            await asyncio.to_thread(go_on.wait)
        return {"value": state["value"] + 1}

    chunks = rx.of({"value": 0}).pipe(bridge.stream(counting(2, add=plus_1)))
    items = chunks.pipe(to_async_iterable(max_buffered=1))
    await prepared()
    run = bridge.create_future_task(answer, -1)
    error = error_of(lambda: bridge.create_future_task(answer, 2))
    read = [item.sequence async for item in items]
    return error, [*read, (await run).content]


async def beside_others(
    bridge: RxPyLangGraphBridge, begin: Any
) -> tuple[BaseException | None, list[Any]]:
    """Submit a message here when ``begin`` waits for the room, which another one has."""
    held = Gate()

    async def hold(content: Any) -> Any:
        return await asyncio.to_thread(held.wait)

    runs = [bridge.create_future_task(each, -1) for each in (hold, answer)]
    begin()
    await until(lambda: bool(bridge._engine.admission._gates))
    error = error_of(lambda: bridge.create_future_task(answer, 2))
    held.open()
    return error, [(await runs[1]).content]


WAYS: dict[str, tuple[Any, list[Any]]] = {
    "reads": (reads, [0]),
    "reads chunks": (reads_chunks, [0, 1, None, -1]),
    "is to read chunks later": (reads_later_chunks, [0, 1, None, -1]),
    "pulls": (pulls, [-1, 0, 1]),
    "submits itself": (submits, [-1, 0]),
}


@when(
    "the thread of another loop submits a message for which there is no room, and the loop {does}"
)
def step_the_thread_of_another_loop_submits_a_message(context: Context, does: str) -> None:
    way, context.expected = WAYS[does]
    context.error, context.answers = asyncio.run(asyncio.wait_for(way(context.bridge), LIMIT))


@then("it is told so by a DeadlockError, and all else is answered")
def step_it_is_told_so_and_all_else_is_answered(context: Context) -> None:
    assert isinstance(context.error, DeadlockError), context.error
    assert "bridge.from_iterable" in str(context.error), context.error
    assert context.answers == context.expected, context.answers
    assert context.bridge.registry.wait_idle(LIMIT)


@when(
    "the thread of a loop submits messages to a stream that was opened there, and is read on "
    "another one"
)
def step_the_thread_of_a_loop_submits_messages_to_a_stream(context: Context) -> None:
    bridge = context.bridge
    reader = LentLoop()
    context.add_cleanup(reader.end)

    async def read(results: Any, begun: Gate, go_on: Gate) -> list[Any]:
        begun.open()
        first = await anext(results)
        await asyncio.to_thread(go_on.wait)
        await until(lambda: bool(bridge._engine.admission._gates))
        return [first.content, *[each.content async for each in results]]

    async def submit() -> Any:
        source: Subject[int] = Subject()
        results = source.pipe(bridge.invoke(answer), to_async_iterable(max_buffered=1))
        begun, go_on = Gate(), Gate()
        reading = asyncio.run_coroutine_threadsafe(read(results, begun, go_on), reader.loop)
        await asyncio.to_thread(begun.wait)
        source.on_next(0)
        source.on_next(1)
        go_on.open()
        source.on_next(2)
        source.on_next(3)
        source.on_completed()
        return await asyncio.wrap_future(reading)

    context.answers = asyncio.run(asyncio.wait_for(submit(), LIMIT))


@then("all {count:d} are read")
def step_all_are_read(context: Context, count: int) -> None:
    assert context.answers == list(range(count)), context.answers
