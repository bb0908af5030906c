from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from itertools import chain
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph.agent.output import reservations
from rxlanggraph.errors import RunTimeoutError
from support.bridges import LentLoop
from support.output_crowds import after_turns, given_turns, left, read, waiting
from support.patching import patch
from support.tasks import run
from support.waiting import LIMIT

# -- bounded ---------------------------------------------------------------------------------------


@when("it is filled, and one more is put without waiting")
def step_impl(context: Context) -> None:
    context.error = None
    try:
        for item in range(3):
            context.queue.put_nowait(item)
    except asyncio.QueueFull as error:
        context.error = error


@then("that is an asyncio.QueueFull, and it is full and as it was")
def step_impl(context: Context) -> None:
    assert "2 items" in str(context.error), context.error
    assert context.queue.full()
    assert left(context.queue) == [0, 1]


@when("5 tasks wait to put, and one of them is cancelled, while the items are got")
def step_impl(context: Context) -> None:
    patch(context, reservations, "_STUCK_SECONDS", LIMIT)  # woken, not looking from time to time

    async def main() -> list[Any]:
        queue = context.queue
        queue.put_nowait("first")
        queue.put_nowait("second")
        tasks = [asyncio.create_task(queue.put(number)) for number in range(5)]
        await given_turns()
        got = [await queue.get()]
        tasks[0].cancel()  # there is room for it
        tasks[3].cancel()
        got += [await queue.get() for _ in range(4)]
        await asyncio.gather(*tasks, return_exceptions=True)
        return got

    context.got = run(main())


@then("the items came in order, without that of the cancelled one")
def step_impl(context: Context) -> None:
    assert context.got == ["first", "second", 1, 2, 4], context.got
    assert context.queue.empty()


@when("a task on another loop waits to put, and an item is taken")
def step_impl(context: Context) -> None:
    patch(context, reservations, "_STUCK_SECONDS", LIMIT)
    loop = LentLoop()
    context.add_cleanup(loop.end)
    context.queue.put_nowait(0)
    context.queue.put_nowait(1)

    async def ended(task: asyncio.Task[None]) -> None:
        await task

    task = loop.run(waiting(context.queue.put(2)))
    assert context.queue.get_nowait() == 0
    loop.run(ended(task))


@then("that task has put")
def step_impl(context: Context) -> None:
    assert left(context.queue)[-1] == 2


# -- streams ---------------------------------------------------------------------------------------


@when("{competing:d} streams compete for {items:d} items, and {broadcasting:d} broadcast them")
def step_impl(context: Context, competing: int, items: int, broadcasting: int) -> None:
    queue = context.queue
    streams = [queue.stream() for _ in range(competing)]
    streams += [queue.stream(broadcast=True) for _ in range(broadcasting)]
    got: list[list[Any]] = [[] for _ in streams]

    async def main() -> None:
        readers = [asyncio.create_task(read(*each)) for each in zip(streams, got, strict=True)]
        await given_turns()
        for item in range(items):
            queue.put_nowait(item)
        queue.end()
        await asyncio.gather(*readers)

    run(main())
    context.competing, context.broadcasting = got[:competing], got[competing:]


@then("each competing one has had 50, and each broadcast all 100 in order")
def step_impl(context: Context) -> None:
    assert [len(each) for each in context.competing] == [50, 50], context.competing
    assert sorted(chain.from_iterable(context.competing)) == list(range(100))
    assert context.broadcasting == [list(range(100))] * 3, context.broadcasting


@when("a broadcast is opened between the first item and the second of 3, and read after the end")
def step_impl(context: Context) -> None:
    queue = context.queue
    queue.put_nowait(1)
    stream = queue.stream(broadcast=True)
    for item in (2, 3):
        queue.get_nowait()
        queue.put_nowait(item)
    queue.end()
    context.got = []
    run(read(stream, context.got))


@then("it gives the second and the third")
def step_impl(context: Context) -> None:
    assert context.got == [2, 3], context.got


class _Item:
    """To be found by the collector."""


@when("a broadcast is {over}, and items are put")
def step_impl(context: Context, over: str) -> None:
    stream = context.queue.stream(broadcast=True)
    if over == "closed":
        run(stream.aclose())
        context.stream = stream
    del stream
    for _ in range(3):
        context.queue.put_nowait(_Item())


@then("none of them is kept for it")
def step_impl(context: Context) -> None:
    assert len(left(context.queue)) == 3
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, _Item)]
    assert kept == [], kept


@when("a stream is opened in one run, and read after the next one has begun and put")
def step_impl(context: Context) -> None:
    queue = context.queue
    stream = queue.stream()
    queue.put_nowait("first")
    queue.end()
    queue.put_nowait("between")
    queue.begin()
    queue.put_nowait("second")
    context.got = []
    run(read(stream, context.got))


@then("it gives what the first run has put, and ends")
def step_impl(context: Context) -> None:
    assert context.got == ["first", "between"], context.got
    assert left(context.queue) == ["second"]


@when("a stream is closed while a task waits for its next item")
def step_impl(context: Context) -> None:
    async def main() -> None:
        stream = context.queue.stream()
        task = await waiting(read(stream, []))
        await stream.aclose()
        context.at_the_end = await after_turns(task)

    run(main())


@then("that task has come to the end of the stream")
def step_impl(context: Context) -> None:
    assert context.at_the_end


@when("a task is cancelled that reads a stream")
def step_impl(context: Context) -> None:
    async def main() -> None:
        task = await waiting(read(context.queue.stream(), []))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())


@then("nobody waits for the queue, and the next item is there to be taken")
def step_impl(context: Context) -> None:
    context.queue.put_nowait("item")
    assert context.queue.get_nowait() == "item"


@when("a stream times out, is cancelled, and is read on")
def step_impl(context: Context) -> None:
    async def main() -> None:
        queue = context.queue
        stream = queue.stream(timeout=0)
        context.got = []
        for item in range(10):
            with suppress(RunTimeoutError):
                raise AssertionError(await anext(stream))
            step = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            queue.put_nowait(item)
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
            context.got.append(await anext(stream))
        queue.put_nowait(10)
        queue.end()
        await read(stream, context.got)

    run(main())


@then("it gives every item, and ends with the run")
def step_impl(context: Context) -> None:
    assert context.got == list(range(11)), context.got
