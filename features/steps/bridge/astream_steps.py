"""Chunks in ``async for``, and those who join late."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from concurrent.futures import wait
from typing import Any
from unittest import mock

import reactivex as rx
from behave import given, then, when
from behave.runner import Context

from rxlanggraph.bridge.chunk_window import ChunkWindow
from rxlanggraph.concurrency.waiters import Waiter
from rxlanggraph.errors import ChunksLostError
from rxlanggraph.messages import StreamMessage
from support.bridge.bridges import expire, on_loop
from support.bridge.chunks import UNLIMITED, counting, endless, numbered
from support.bridge.graphs import State, one_node
from support.bridge.streams import Subscriber
from support.concurrency.patching import patch
from support.concurrency.raising import error_of
from support.concurrency.tasks import in_thread, pass_turns, run
from support.concurrency.waiting import LIMIT, Log

START: Any = {"value": 0}


async def read(stream: Any) -> list[StreamMessage]:
    return [item async for item in stream]


@when('a graph of {count:d} steps is streamed by "async for" on {where}')
def step_a_graph_is_streamed_by_async_for(context: Context, count: int, where: str) -> None:
    async def stream() -> list[StreamMessage]:
        return await read(context.bridge.astream(counting(count), START))

    there = context.lent.run if where == "the bridge's loop" else run
    context.items = there(stream())


@then("it has got {count:d} chunks in order, and the result")
def step_it_has_got_count_chunks_in_order(context: Context, count: int) -> None:
    assert numbered(context.items) == [*range(count), count], context.items


@when(
    "a loop has a stream that holds up its run, and the room is taken, and {call} is called there"
)
def step_a_loop_has_a_stream_that_holds_up_its_run(context: Context, call: str) -> None:
    async def main() -> list[StreamMessage]:
        stream = context.bridge.astream(counting(40), START, config=UNLIMITED)
        first = await anext(stream)
        waiting = context.bridge.create_future_task(counting(1), START)
        again = getattr(context.bridge, call)
        context.error = error_of(lambda: again(counting(1), START))
        items = [first, *await read(stream)]
        await waiting
        return items

    context.items = run(main())


@then("the stream is read to its end")
def step_the_stream_is_read_to_its_end(context: Context) -> None:
    assert numbered(context.items) == [*range(40), 40], context.items


@when('two graphs of {count:d} steps are streamed by "async for" at once')
def step_two_graphs_are_streamed_at_once(context: Context, count: int) -> None:
    async def stream() -> list[list[StreamMessage]]:
        streams = [
            context.bridge.astream(counting(count), StreamMessage(START, id=name), config=UNLIMITED)
            for name in "ab"
        ]
        return await asyncio.gather(*map(read, streams))

    context.both = run(stream())


@then("each has got its own {count:d} chunks in order, and its result")
def step_each_has_got_its_own_chunks(context: Context, count: int) -> None:
    for name, items in zip("ab", context.both, strict=True):
        assert numbered(items) == [*range(count), count]
        assert {item.source.id for item in items} == {name}


async def take_3(stream: Any, and_then: Any = None) -> None:
    async for chunk in stream:
        if chunk.sequence == 2:
            if and_then is not None:
                raise and_then
            return


async def leave_by_exception(stream: Any) -> None:
    with contextlib.suppress(LookupError):
        await take_3(stream, LookupError())


async def leave_by_cancellation(stream: Any) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(read(stream), 0.02)


async def leave_by_aclose(stream: Any) -> None:
    await take_3(stream)
    await stream.aclose()
    assert [item async for item in stream] == []


async def leave_by_async_with(stream: Any) -> None:
    async with stream:
        await take_3(stream)


WAYS = {
    "break": take_3,
    "an exception": leave_by_exception,
    "cancellation": leave_by_cancellation,
    "aclose": leave_by_aclose,
    "async with": leave_by_async_with,
}


@when("a stream that would go on forever is left by {way} at the 3rd chunk")
def step_a_stream_that_would_go_on_forever_is_left(context: Context, way: str) -> None:
    async def leave() -> None:
        stream = context.bridge.astream(
            endless(context.seen), START, subgraphs=True, config=UNLIMITED
        )
        context.future = stream.run
        await WAYS[way](stream)

    context.seen = Log()
    run(leave())


@when("a stream that would go on forever is made, and dropped")
def step_a_stream_is_made_and_dropped(context: Context) -> None:
    context.seen = Log()
    stream = context.bridge.astream(endless(context.seen), START, config=UNLIMITED)
    context.future = stream.run
    context.seen.wait_for(5)
    del stream


@then("the run ends, and the registry is idle")
def step_the_run_ends_and_the_registry_is_idle(context: Context) -> None:
    gc.collect()  # without the GIL, or with a debugger, it may not be dropped at once
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.future.cancelled()
    steps = len(context.seen)
    for _ in range(20):
        on_loop(context)
    assert len(context.seen) == steps


@when("a step of a stream times out before its chunk, and the stream goes on")
def step_a_step_of_a_stream_times_out(context: Context) -> None:
    async def stream() -> list[StreamMessage]:
        chunks = context.bridge.astream(one_node(context.work.wait), START)
        step = asyncio.ensure_future(anext(chunks))
        await asyncio.wait([step], timeout=0.01)
        step.cancel()
        await asyncio.wait([step])
        assert step.cancelled()
        context.work.gate.open()
        return await read(chunks)

    context.items = run(stream())


@then("it has got every chunk once, and the result")
def step_it_has_got_every_chunk_once(context: Context) -> None:
    assert numbered(context.items) == [0, 0], context.items


@when("{count:d} steps of a stream are cancelled before their chunk")
def step_steps_of_a_stream_are_cancelled_before_their_chunk(context: Context, count: int) -> None:
    async def stream() -> None:
        async with context.bridge.astream(one_node(context.work.wait), START) as chunks:
            for _ in range(count):
                step = asyncio.ensure_future(anext(chunks))
                await asyncio.sleep(0)  # now it waits
                step.cancel()
                await asyncio.wait([step])
            context.kept = sum(isinstance(each, Waiter) for each in gc.get_objects())

    run(stream())


@then("none of them is kept")
def step_none_of_them_is_kept(context: Context) -> None:
    # The last one may still be in the frame of its step.
    assert context.kept <= 1, context.kept


@when('a stream of a run that {ends} is read to its end, with errors="{errors}"')
def step_a_stream_is_read_to_its_end(context: Context, ends: str, errors: str) -> None:
    async def second(state: State) -> State:
        if ends == "fails":
            raise ValueError("second")
        await context.work.gate.wait_async()
        return state

    graph = one_node(lambda state: state).builder
    graph.add_node("second", second).add_edge("node", "second")
    options = {"timeout": LIMIT} if ends == "times out" else {}

    async def stream() -> None:
        chunks = context.bridge.astream(graph.compile(), START, errors=errors, **options)
        context.items = [await anext(chunks)]
        if ends == "is cancelled":
            chunks.run.cancel()
        elif ends == "times out":
            expire(chunks.run)
        try:
            context.items.append(await anext(chunks))
        except Exception as error:
            context.error = error
        assert await read(chunks) == []

    run(stream())


@then("it has got chunk 0, and then {what}")
def step_it_has_got_chunk_0_and_then(context: Context, what: str) -> None:
    first, *rest = context.items
    assert first.sequence == 0
    if what.startswith("a result"):
        assert [f"a result with status {each.status}" for each in rest] == [what]
    else:
        assert rest == []
        assert type(context.error).__name__ == what, repr(context.error)


@when("a node streams another graph on the same bridge")
def step_a_node_streams_another_graph(context: Context) -> None:
    async def node(state: State) -> State:
        return {"value": await read(context.bridge.astream(counting(1), START))}

    run_ = context.bridge.create_future_task(one_node(node), START)
    context.error = run_.exception(LIMIT)


# -- runs that are left to themselves --------------------------------------------------------------


def stream_of(context: Context, steps: int, **options: Any) -> Any:
    stream = context.bridge.astream(counting(steps), START, config=UNLIMITED, **options)
    context.run, context.steps = stream.run, steps
    return stream


async def ended(context: Context) -> None:
    await asyncio.wait([asyncio.wrap_future(context.run)], timeout=LIMIT)


@when("a stream of {steps:d} steps is detached at the 3rd chunk, and closed")
def step_a_stream_is_detached_and_closed(context: Context, steps: int) -> None:
    async def leave() -> None:
        async with stream_of(context, steps) as stream:
            await take_3(stream)
            stream.detach()
        assert await read(stream) == []

    run(leave())


@when("a stream of {steps:d} steps is detached once its run waits for the reader, and dropped")
def step_a_stream_is_detached_once_its_run_waits(context: Context, steps: int) -> None:
    stream = stream_of(context, steps)
    window = context.run.sink
    while window._run is None:  # the run's own waiter
        on_loop(context)
    stream.detach()
    del stream, window


@then("its run ends with its result")
def step_its_run_ends_with_its_result(context: Context) -> None:
    assert context.run.result(LIMIT).content["value"] == context.steps


@when(
    "a stream of {steps:d} steps is detached at the 3rd chunk, and read on after the run has ended"
)
def step_a_stream_is_detached_and_read_on(context: Context, steps: int) -> None:
    async def read_on() -> None:
        stream = stream_of(context, steps)
        await take_3(stream)
        stream.detach()
        await ended(context)
        try:
            await anext(stream)
        except ChunksLostError as error:
            context.error = error

    run(read_on())


@when(
    "a resumable stream of {steps:d} steps is detached at the 3rd chunk and closed, and a reader "
    "joins"
)
def step_a_resumable_stream_is_detached_and_a_reader_joins(context: Context, steps: int) -> None:
    async def leave_and_join() -> None:
        stream = context.bridge.astream(held(context, steps), START, resumable=64, config=UNLIMITED)
        async with stream:
            await take_3(stream)
            stream.detach()
        reader = context.bridge.join_stream(stream.run.message, last_sequence=2)
        context.work.gate.open()
        context.read = [numbered(await read(reader))]

    run(leave_and_join())


@when("a resumable stream of {steps:d} steps is joined, and the joined one is detached")
def step_a_resumable_stream_is_joined_and_detached(context: Context, steps: int) -> None:
    stream = stream_of(context, steps, resumable=8)
    joined = context.bridge.join_stream(context.run.message)
    joined.detach()
    while context.run.sink is not None and context.run.sink._run is None:  # neither ended nor held
        on_loop(context)
    context.items = run(read(stream))


@when("a stream of {steps:d} steps is detached {when}")
def step_a_stream_is_detached_when(context: Context, steps: int, when: str) -> None:
    async def detach() -> None:
        stream = stream_of(context, steps)
        if when == "after its end":
            await read(stream)
        elif when == "after it was closed":
            await stream.aclose()
        elif when == "twice":
            stream.detach()
        stream.detach()
        await stream.aclose()

    if when == "on no loop at all":
        stream_of(context, steps).detach()
    else:
        run(detach())


@then("the run of that stream ends as {how}")
def step_the_run_of_that_stream_ends_as(context: Context, how: str) -> None:
    if how == "cancelled":
        assert context.run.cancelled()
    else:
        assert context.run.result(LIMIT).status == how


@when("a loop has a detached stream, and waits in create_future_task for the room that it takes")
def step_a_loop_has_a_detached_stream(context: Context) -> None:
    async def main() -> list[StreamMessage]:
        stream = context.bridge.astream(counting(40), START, config=UNLIMITED, resumable=64)
        first = await anext(stream)
        stream.detach()
        waiting = [context.bridge.create_future_task(counting(1), START) for _ in range(2)]
        items = [first, *await read(stream)]
        for each in waiting:
            await each
        return items

    context.items = run(main())


@given("windows that note what is taken without looking whether the reader is detached")
def step_windows_that_note_what_is_taken(context: Context) -> None:
    take = ChunkWindow.taken

    def taken(window: ChunkWindow, sequence: int) -> None:
        with window._lock:
            if window._taken is None:
                window._taken = sequence
        take(window, sequence)

    patch(context, ChunkWindow, "taken", taken)


@when(
    "streams are detached by another thread while their reader takes a chunk, each at another one"
)
def step_streams_are_detached_while_their_reader_takes_a_chunk(context: Context) -> None:
    take = ChunkWindow.taken
    context.run_of = []

    async def read_until(last: int) -> None:
        def taken(window: ChunkWindow, sequence: int) -> None:
            if sequence == last:
                in_thread(stream.detach)
            take(window, sequence)

        stream = context.bridge.astream(counting(60), START, config=UNLIMITED)
        context.run_of.append(stream.run)
        with mock.patch.object(ChunkWindow, "taken", taken):
            async with stream:
                for _ in range(last + 1):
                    await anext(stream)

    async def all_of_them() -> None:
        for last in range(20):
            await read_until(last)

    run(all_of_them())


@then("every run ends with its result")
def step_every_run_ends_with_its_result(context: Context) -> None:
    limit = 2.0 if "tdd_expected_fail" in context.tags else LIMIT
    going_on = wait(context.run_of, limit).not_done
    assert not going_on, going_on
    values = [each.result(0).content["value"] for each in context.run_of]
    assert values == [60] * len(values), values


# -- late readers ----------------------------------------------------------------------------------


def held(context: Context, total: int, *, at: int = 10) -> Any:
    """A graph of so many steps, which waits for the gate after the step ``at``."""

    async def add(state: State) -> State:
        if state["value"] == at:
            await context.work.gate.wait_async()
        return {"value": state["value"] + 1}

    return counting(total, add=add)


def begin(context: Context, total: int, resumable: int | None, **options: Any) -> None:
    """Subscribe to a stream that has had 10 chunks, and then waits for the gate."""
    context.message, context.total = StreamMessage(START), total
    operator = context.bridge.stream(
        held(context, total), resumable=resumable, config=UNLIMITED, **options
    )
    context.subscriber = Subscriber()
    context.subscriber.subscribe(rx.of(context.message).pipe(operator))
    context.chunks = context.subscriber.log.wait_for(10)


@when("a resumable stream has had 10 chunks, and a reader joins behind number {last:d}")
def step_a_reader_joins_behind_number(context: Context, last: int) -> None:
    begin(context, 20, 64)
    context.readers = [context.bridge.join_stream(context.message, last_sequence=last)]


@when(
    "a resumable stream has had 10 chunks, and readers join by the chunk 7, by the message, and by "
    "its id"
)
def step_readers_join_by_the_chunk(context: Context) -> None:
    begin(context, 20, 64)
    ways = (context.chunks[7], context.message, context.message.id)
    context.readers = [context.bridge.join_stream(way) for way in ways]


@when("the rest comes")
def step_the_rest_comes(context: Context) -> None:
    async def read_all() -> list[list[StreamMessage]]:
        tasks = [asyncio.create_task(read(reader)) for reader in context.readers]
        await asyncio.sleep(0)
        context.work.gate.open()
        return await asyncio.gather(*tasks)

    context.read = [numbered(items) for items in run(read_all())]
    context.subscriber.wait_for_end()


@then("the reader has got the numbers from {first:d} to the last, and the result")
def step_the_reader_has_got_the_numbers(context: Context, first: int) -> None:
    assert context.read == [[*range(first, 20), 20]], context.read


@then("they have got the chunks from 8 on, from 0 on, and from 0 on, and the result")
def step_they_have_got_the_chunks(context: Context) -> None:
    assert context.read == [[*range(first, 20), 20] for first in (8, 0, 0)], context.read


@when("a stream of resumable=4 has had 10 chunks, and a reader joins behind number {last:d}")
def step_a_stream_of_resumable_4_has_had_10_chunks(context: Context, last: int) -> None:
    begin(context, 20, 4)
    context.error = error_of(
        lambda: context.bridge.join_stream(context.message, last_sequence=last)
    )


@when("a reader of resumable=4 pauses while 100 more chunks come")
def step_a_reader_of_resumable_4_pauses(context: Context) -> None:
    begin(context, 110, 4)

    async def pause() -> None:
        reader = context.bridge.join_stream(context.chunks[8])
        assert (await anext(reader)).sequence == 9
        context.work.gate.open()
        context.subscriber.wait_for_end()
        try:
            await anext(reader)
        except ChunksLostError as error:
            context.error = error

    run(pause())


@when("a resumable astream is joined by a second reader, which leaves early")
def step_a_resumable_astream_is_joined(context: Context) -> None:
    async def both() -> list[StreamMessage]:
        stream = context.bridge.astream(counting(100), START, resumable=8, config=UNLIMITED)
        first = [await anext(stream) for _ in range(3)]
        async with context.bridge.join_stream(first[0]) as second:
            assert [(await anext(second)).sequence for _ in range(5)] == [1, 2, 3, 4, 5]
        return [*first, *await read(stream)]

    context.items = run(both())


@then("the first reader has got everything")
def step_the_first_reader_has_got_everything(context: Context) -> None:
    assert numbered(context.items) == [*range(100), 100]


@when("two readers wait for the 11th chunk of a resumable stream, and one of them is closed")
def step_two_readers_wait_for_the_11th_chunk(context: Context) -> None:
    begin(context, 20, 64)

    async def close_one() -> None:
        readers = [context.bridge.join_stream(context.chunks[9]) for _ in range(2)]
        closed, other = [asyncio.ensure_future(read(reader)) for reader in readers]
        await pass_turns()
        await readers[0].aclose()
        context.items = await asyncio.wait_for(closed, LIMIT)
        context.work.gate.open()
        context.rest = await other

    run(close_one())
    context.subscriber.wait_for_end()


@then("that one has ended, and the other gets the rest")
def step_that_one_has_ended(context: Context) -> None:
    assert context.items == []
    assert numbered(context.rest) == [*range(10, 20), 20], context.rest


@when("a reader joins {what}")
def step_a_reader_joins(context: Context, what: str) -> None:
    message = StreamMessage(START)
    if what == "a run that has ended":
        begin(context, 11, 64)
        context.work.gate.open()
        context.subscriber.wait_for_end()
        message = context.message
    elif what == "a run that keeps no chunk":
        begin(context, 11, None)
        message = context.message
    else:
        context.bridge.create_future_task(context.work.wait, message)
    context.error = error_of(lambda: context.bridge.join_stream(message))
