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
from support.agent.output_crowds import after_turns, left, read, waiting
from support.bridge.bridges import LentLoop
from support.concurrency.patching import patch
from support.concurrency.tasks import pass_turns, run
from support.concurrency.waiting import LIMIT

# -- bounded ---------------------------------------------------------------------------------------


@when("it is filled, and one more is put without waiting")
def step_it_is_filled_and_one_more_is_put_without_waiting(context: Context) -> None:
    context.error = None
    try:
        for item in range(3):
            context.queue.put_nowait(item)
    except asyncio.QueueFull as error:
        context.error = error


@then("that is an asyncio.QueueFull, and it is full and as it was")
def step_that_is_an_asyncio_queuefull_and_it_is_full_and_as_it_was(context: Context) -> None:
    assert "2 items" in str(context.error), context.error
    assert context.queue.full()
    assert left(context.queue) == [0, 1]


@when("5 tasks wait to put, and one of them is cancelled, while the items are got")
def step_5_tasks_wait_to_put_and_one_of_them_is_cancelled_while_the(context: Context) -> None:
    patch(context, reservations, "_STUCK_SECONDS", LIMIT)  # woken, not looking from time to time

    async def main() -> list[Any]:
        queue = context.queue
        queue.put_nowait("first")
        queue.put_nowait("second")
        tasks = [asyncio.create_task(queue.put(number)) for number in range(5)]
        await pass_turns()
        got = [await queue.get()]
        tasks[0].cancel()  # there is room for it
        tasks[3].cancel()
        got += [await queue.get() for _ in range(4)]
        await asyncio.gather(*tasks, return_exceptions=True)
        return got

    context.got = run(main())


@then("the items came in order, without that of the cancelled one")
def step_the_items_came_in_order_without_that_of_the_cancelled_one(context: Context) -> None:
    assert context.got == ["first", "second", 1, 2, 4], context.got
    assert context.queue.empty()


@when("a task on another loop waits to put, and an item is taken")
def step_a_task_on_another_loop_waits_to_put_and_an_item_is_taken(context: Context) -> None:
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
def step_that_task_has_put(context: Context) -> None:
    assert left(context.queue)[-1] == 2


# -- streams ---------------------------------------------------------------------------------------


@when("{competing:d} streams compete for {items:d} items, and {broadcasting:d} broadcast them")
def step_competing_streams_compete_for_items_items_and_broadcasting(
    context: Context, competing: int, items: int, broadcasting: int
) -> None:
    queue = context.queue
    streams = [queue.stream() for _ in range(competing)]
    streams += [queue.stream(broadcast=True) for _ in range(broadcasting)]
    got: list[list[Any]] = [[] for _ in streams]

    async def main() -> None:
        readers = [asyncio.create_task(read(*each)) for each in zip(streams, got, strict=True)]
        await pass_turns()
        for item in range(items):
            queue.put_nowait(item)
        queue.end()
        await asyncio.gather(*readers)

    run(main())
    context.competing, context.broadcasting = got[:competing], got[competing:]


@then("each competing one has had 50, and each broadcast all 100 in order")
def step_each_competing_one_has_had_50_and_each_broadcast_all_100(context: Context) -> None:
    assert [len(each) for each in context.competing] == [50, 50], context.competing
    assert sorted(chain.from_iterable(context.competing)) == list(range(100))
    assert context.broadcasting == [list(range(100))] * 3, context.broadcasting


@when("a broadcast is opened between the first item and the second of 3, and read after the end")
def step_a_broadcast_is_opened_between_the_first_item_and_the(context: Context) -> None:
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
def step_it_gives_the_second_and_the_third(context: Context) -> None:
    assert context.got == [2, 3], context.got


class _Item:
    """To be found by the collector."""


@when("a broadcast is {over}, and items are put")
def step_a_broadcast_is_over_and_items_are_put(context: Context, over: str) -> None:
    stream = context.queue.stream(broadcast=True)
    if over == "closed":
        run(stream.aclose())
        context.stream = stream
    del stream
    for _ in range(3):
        context.queue.put_nowait(_Item())


@then("none of them is kept for it")
def step_none_of_them_is_kept_for_it(context: Context) -> None:
    assert len(left(context.queue)) == 3
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, _Item)]
    assert kept == [], kept


@when("a stream is opened in one run, and read after the next one has begun and put")
def step_a_stream_is_opened_in_one_run_and_read_after_the_next_one(context: Context) -> None:
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
def step_it_gives_what_the_first_run_has_put_and_ends(context: Context) -> None:
    assert context.got == ["first", "between"], context.got
    assert left(context.queue) == ["second"]


@when("a stream is closed while a task waits for its next item")
def step_a_stream_is_closed_while_a_task_waits_for_its_next_item(context: Context) -> None:
    async def main() -> None:
        stream = context.queue.stream()
        task = await waiting(read(stream, []))
        await stream.aclose()
        context.at_the_end = await after_turns(task)

    run(main())


@then("that task has come to the end of the stream")
def step_that_task_has_come_to_the_end_of_the_stream(context: Context) -> None:
    assert context.at_the_end


@when("a task is cancelled that reads a stream")
def step_a_task_is_cancelled_that_reads_a_stream(context: Context) -> None:
    async def main() -> None:
        task = await waiting(read(context.queue.stream(), []))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())


@then("no getter waits for the queue, and the next item is still in it")
def step_no_getter_waits_for_the_queue_and_the_next_item_is_still_in(context: Context) -> None:
    context.queue.put_nowait("item")
    assert context.queue.get_nowait() == "item"


@when("a stream times out, is cancelled, and is read on")
def step_a_stream_times_out_is_cancelled_and_is_read_on(context: Context) -> None:
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
def step_it_gives_every_item_and_ends_with_the_run(context: Context) -> None:
    assert context.got == list(range(11)), context.got
