"""Nodes that await streams, iterate over them, and emit into them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import linecache
import sys
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import reactivex as rx
from behave import then, when
from behave.runner import Context
from langgraph.config import get_stream_writer
from reactivex import operators as ops
from reactivex.disposable import Disposable
from reactivex.scheduler import NewThreadScheduler
from reactivex.subject import Subject

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge.operators.readers import StreamListener, _Place
from rxlanggraph.errors import DeadlockError
from rxlanggraph.operators import to_async_iterable, to_future
from rxlanggraph.rx.serialized_observer import SerializedObserver
from support.bridge.bridges import LentLoop, on_loop
from support.bridge.chunks import counting
from support.bridge.graphs import one_node
from support.bridge.streams import Subscriber
from support.concurrency.kept import uncollected
from support.concurrency.mcp_virtual import DAY, in_virtual_time
from support.concurrency.patching import patch
from support.concurrency.pauses import until
from support.concurrency.raising import error_of, raised
from support.concurrency.waiting import LIMIT, Gate, Log, thread

Stream = rx.Observable[Any]


async def double(content: int) -> int:
    await asyncio.sleep(0)
    return content * 2


# -- a node awaits a stream ------------------------------------------------------------------------


def contents(stream: Stream) -> Stream:
    return stream.pipe(ops.map(lambda result: result.content), ops.to_list())


async def by_await(stream: Stream) -> Any:
    return await contents(stream)


async def by_to_future(stream: Stream) -> Any:
    return await contents(stream).pipe(to_future())


async def by_to_async_iterable(stream: Stream) -> Any:
    return [result.content async for result in stream.pipe(to_async_iterable())]


async def by_run_on_loop(stream: Stream) -> Any:
    return contents(stream).run()


def by_run(stream: Stream) -> Any:
    return contents(stream).run()


WAYS: dict[str, Callable[[Stream], Any]] = {
    "await": by_await,
    "to_future": by_to_future,
    "to_async_iterable": by_to_async_iterable,
    "run() in a thread": by_run,
    "run() on its loop": by_run_on_loop,
}


def answers(bridge: RxPyLangGraphBridge, *values: int, **options: Any) -> Stream:
    return rx.from_iterable(values).pipe(bridge.invoke(double, **options))


def without_room(bridge: RxPyLangGraphBridge) -> Stream:
    bridge.create_future_task(double, 0)  # has the only room from now on
    elsewhere = ops.subscribe_on(NewThreadScheduler())
    return rx.of(1).pipe(elsewhere, bridge.invoke(double))


def partly_stuck(bridge: RxPyLangGraphBridge) -> Stream:
    messages = rx.of(StreamMessage(1, "another"), StreamMessage(2, "mine"))
    return rx.concat(messages, rx.never()).pipe(bridge.invoke(double), ops.take(1))


def streams_of_results(bridge: RxPyLangGraphBridge) -> Stream:
    return answers(bridge, 1, 2).pipe(
        ops.concat_map(lambda result: answers(bridge, result.content))
    )


STREAMS: dict[str, Callable[[RxPyLangGraphBridge], Stream]] = {
    "the answers to 1, 2 and 3 through its own bridge": lambda bridge: answers(bridge, 1, 2, 3),
    "a stream through its own bridge": lambda bridge: answers(bridge, 1),
    "a stream that needs its slot": lambda bridge: answers(bridge, 1, 2, 3),
    "a stream on its own thread": lambda bridge: answers(bridge, 1, 2, thread_id="mine"),
    "a stream that goes on": lambda bridge: rx.concat(rx.of(1), rx.never()).pipe(
        bridge.invoke(double)
    ),
    "a stream whose source has no room": without_room,
    "a stream of nothing": answers,
    "streams that begin as results arrive": streams_of_results,
    "the first of a stream that is partly stuck": partly_stuck,
}


@when("a node waits by {way} for {what}")
def step_a_node_waits_by_way_for_what(context: Context, way: str, what: str) -> None:
    another = RxPyLangGraphBridge()
    context.add_cleanup(another.close)
    made = {**STREAMS, "a stream that another bridge executes": lambda _: answers(another, 1)}
    wait, stream_of = WAYS[way], made[what]

    async def in_coroutine(_: Any) -> Any:
        return await wait(stream_of(context.bridge))

    def in_thread(_: Any) -> Any:
        return wait(stream_of(context.bridge))

    node = in_thread if wait is by_run else in_coroutine
    run = context.bridge.create_future_task(node, 0, thread_id="mine")
    context.error = run.exception(LIMIT)
    context.content = None if context.error is not None else run.result().content


@when("a thread waits by run() for {what}")
def step_a_thread_waits_by_run_for_what(context: Context, what: str) -> None:
    waiting = thread(by_run, STREAMS[what](context.bridge))
    context.error = waiting.exception(LIMIT)
    context.content = None if context.error is not None else waiting.result()


@when(
    "a source emits {count:d} messages on one thread, whose nodes wait by {way} for a pulled stream"
)
def step_a_source_emits_messages_whose_nodes_wait_for_a_pulled_stream(
    context: Context, count: int, way: str
) -> None:
    async def node(_: Any) -> Any:
        pulled = context.bridge.from_iterable(range(3))
        return await WAYS[way](pulled.pipe(context.bridge.invoke(double)))

    invoke = context.bridge.invoke(node, thread_id="mine", errors="emit")
    elsewhere = ops.subscribe_on(NewThreadScheduler())
    subscriber = Subscriber()
    subscriber.subscribe(rx.range(count).pipe(elsewhere, invoke))
    context.results = subscriber.wait_for_end().items


@then("each of the {count:d} has ended, with its answers or with DeadlockError")
def step_each_has_ended_with_its_answers_or_with_deadlockerror(
    context: Context, count: int
) -> None:
    ends = [result.error or result.content for result in context.results]
    assert len(ends) == count, ends
    assert all(isinstance(end, DeadlockError) or end == [0, 2, 4] for end in ends), ends


@when("a node awaits the answers to {count:d} messages through its own bridge")
def step_a_node_awaits_the_answers_to_count_messages(context: Context, count: int) -> None:
    async def node(_: Any) -> Any:
        return await answers(context.bridge, *range(count)).pipe(ops.count())

    run = context.bridge.create_future_task(node, 0)
    context.content = run.result(LIMIT).content


@when("a node iterates over {mine:d} answers on its own thread, and then {others:d} on others")
def step_a_node_iterates_over_answers_on_its_own_thread(
    context: Context, mine: int, others: int
) -> None:
    async def node(_: Any) -> Any:
        on_mine = [StreamMessage(number, "mine") for number in range(mine)]
        elsewhere = [StreamMessage(number) for number in range(others)]
        stream = rx.from_iterable(on_mine + elsewhere).pipe(context.bridge.invoke(double))
        return await by_to_async_iterable(stream)

    run = context.bridge.create_future_task(node, 0, thread_id="mine")
    context.error = run.exception(LIMIT)


@when("{who} reads the answers to {count:d} messages {how}, with max_buffered={bound:d}")
def step_who_reads_the_answers_to_count_messages(
    context: Context, who: str, count: int, how: str, bound: int
) -> None:
    stages = 2 if how == "of two stages" else 1
    source = rx.from_iterable(range(count))
    _read(context, who, source, bound, stages, ordered=how == "in their order")


def _read(
    context: Context,
    who: str,
    source: rx.Observable[int],
    bound: int,
    stages: int,
    *,
    ordered: bool = False,
    turns: int = 0,
) -> None:
    """Read the answers to what ``source`` emits, and note how many runs are ahead of the reader.

    Args:
        context: Has the bridge, and gets ``read`` and ``ahead``.
        who: A node, or a coroutine.
        source: Its items.
        bound: How many answers the reader keeps.
        stages: One, or two.
        ordered: Whether the first is.
        turns: How many turns of the loop a run of the second takes.
    """
    begun, read = [0], list[Any]()
    context.ahead, context.read = [], read

    async def answer(content: Any) -> Any:
        begun[0] += 1
        context.ahead.append(begun[0] - len(read))
        return content

    async def second(content: Any) -> Any:
        for _ in range(turns):
            await asyncio.sleep(0)
        return content

    bridge = context.bridge
    operators = [bridge.invoke(answer, ordered=ordered), bridge.invoke(second)][:stages]

    async def reader(_: Any) -> None:
        async for item in source.pipe(*operators, to_async_iterable(max_buffered=bound)):
            read.append(item.content)
            await asyncio.sleep(0)

    if who == "a node":
        bridge.create_future_task(reader, 0).result(LIMIT)
    else:
        asyncio.run(asyncio.wait_for(reader(0), LIMIT))


class _Ahead:
    """How many runs are ahead of a reader. Its fields belong to the bridge's loop."""

    def __init__(self, read: list[Any]) -> None:
        self._read = read
        self._begun = 0
        self.passed = 0  # results that go to the reader
        self._lost = 0  # runs whose results do not
        self.seen: list[int] = []

    async def answer(self, content: Any) -> Any:
        self._begun += 1
        self.seen.append(self._begun - self._lost - len(self._read))
        return content

    def lose(self) -> None:
        """Note that the results of runs that have not passed go to no reader."""
        self._lost = self._begun - self.passed


def _subscribed_again(invoke: Any, count: int, _: _Ahead) -> Stream:
    return rx.of(1, 2, 3).pipe(invoke, ops.repeat(count // 3))


def _tried_again(invoke: Any, count: int, ahead: _Ahead) -> Stream:
    tries = [0]

    def failing(result: Any) -> Any:
        tries[0] += 1
        if tries[0] % 7 == 0:
            ahead.lose()
            raise LookupError
        ahead.passed += 1
        return result

    return rx.from_iterable(range(count)).pipe(
        invoke, ops.map(failing), ops.retry(), ops.take(count)
    )


def _concatenated(invoke: Any, count: int, _: _Ahead) -> Stream:
    return rx.concat(*(rx.from_iterable(range(count // 4)).pipe(invoke) for _ in range(4)))


def _merged(invoke: Any, count: int, _: _Ahead) -> Stream:
    return rx.merge(*(rx.from_iterable(range(count // 4)).pipe(invoke) for _ in range(4)))


def _for_each_item(invoke: Any, count: int, _: _Ahead) -> Stream:
    return rx.from_iterable(range(count)).pipe(ops.flat_map(lambda item: rx.of(item).pipe(invoke)))


def _for_each_group(invoke: Any, count: int, _: _Ahead) -> Stream:
    groups = ops.group_by(lambda item: item % 5)
    return rx.from_iterable(range(count)).pipe(groups, ops.flat_map(lambda each: each.pipe(invoke)))


def _for_each_result(invoke: Any, count: int, ahead: _Ahead) -> Stream:
    def several(_: Any) -> Stream:
        ahead.lose()
        return _merged(invoke, count, ahead)

    return rx.of(0).pipe(invoke, ops.flat_map(several))


SEVERAL: dict[str, Callable[[Any, int, _Ahead], Stream]] = {
    "are subscribed to again": _subscribed_again,
    "are tried again": _tried_again,
    "follow each other": _concatenated,
    "are merged": _merged,
    "begin for each item": _for_each_item,
    "begin for each group": _for_each_group,
    "begin for each result": _for_each_result,
}


@when(
    "a coroutine slowly reads {count:d} answers of streams that {how}, by {operator}, "
    "with max_buffered={bound:d}"
)
def step_a_coroutine_slowly_reads_answers_of_streams_that(
    context: Context, count: int, how: str, operator: str, bound: int
) -> None:
    context.read = list[Any]()
    ahead = _Ahead(context.read)
    invoke = getattr(context.bridge, operator)(ahead.answer)

    async def reader() -> None:
        stream = SEVERAL[how](invoke, count, ahead)
        async for item in stream.pipe(to_async_iterable(max_buffered=bound)):
            context.read.append(item)
            # When it has an answer, what may be ahead is, whatever the loop of the bridge did.
            await context.bridge.create_future_task(double, 1)

    asyncio.run(asyncio.wait_for(reader(), LIMIT))
    context.ahead = ahead.seen


@then("it has read {count:d} answers, and no more than {most:d} runs were ever ahead of it")
def step_it_has_read_answers_and_no_more_than_most_runs(
    context: Context, count: int, most: int
) -> None:
    assert len(context.read) == count, len(context.read)
    assert max(context.ahead) <= most, max(context.ahead)


@when("a node reads the answers of {count:d} streams, one after the other")
def step_a_node_reads_the_answers_of_streams_one_after_the_other(
    context: Context, count: int
) -> None:
    items, invoke = Subject[int](), context.bridge.invoke(double)
    stream = items.pipe(ops.flat_map(lambda item: rx.of(item).pipe(invoke)))

    async def node(_: Any) -> int:
        iterator = stream.pipe(to_async_iterable())
        for item in range(count):
            with iterator._listener.subscribing():  # as a source that is pulled does
                items.on_next(item)
            assert (await anext(iterator)).content == item * 2
        context.known = len(iterator._listener._streams)
        return count

    context.bridge.create_future_task(node, 0).result(LIMIT)


@then("the iterator knows of no stream that has ended")
def step_the_iterator_knows_of_no_stream_that_has_ended(context: Context) -> None:
    assert context.known <= 1, context.known  # the last one may be ending


@when("a reader of one item leaves, while a result waits for room in a second bridge")
def step_a_reader_of_one_item_leaves_while_a_result_waits_for_room(context: Context) -> None:
    second = RxPyLangGraphBridge(max_pending=1)
    context.add_cleanup(second.close)
    each = second.invoke(double)
    stages = [context.bridge.invoke(double), ops.flat_map(lambda _: rx.of(1, 2, 3).pipe(each))]

    async def main() -> None:
        iterator = rx.of(0).pipe(*stages, to_async_iterable(max_buffered=1))
        # The answer to 1 is to be read, 2 is withheld, and 3 waits for its room.
        await until(lambda: bool(second._engine.admission._gates))
        await iterator.aclose()

    asyncio.run(main())


@when("a coroutine iterates over the answers of an async function, and {ends}")
def step_a_coroutine_iterates_over_the_answers_of_an_async_function(
    context: Context, ends: str
) -> None:
    async def answer(content: int) -> int:
        return content

    async def main(function: Any) -> None:
        iterator = rx.of(1, 2, 3).pipe(context.bridge.invoke(function), to_async_iterable())
        async for _ in iterator:
            if ends == "leaves in the middle":
                break

    known = weakref.ref(answer)
    with uncollected():
        asyncio.run(main(answer))
        assert context.bridge.registry.wait_idle(LIMIT)
        on_loop(context)  # what was scheduled when the last run ended is done then
        del answer
        context.kept = gc.get_referrers(known()) if known() is not None else None


@then("the function is freed by reference counts")
def step_the_function_is_freed_by_reference_counts(context: Context) -> None:
    assert context.kept is None, context.kept


@when("{who} reads 50 chunks of each of {runs:d} runs {how}, with max_buffered={bound:d}")
def step_who_reads_50_chunks_of_each_of_runs(
    context: Context, who: str, runs: int, how: str, bound: int
) -> None:
    chunks, bridge, emitted = 50, context.bridge, Log()
    context.read, context.expected, context.ahead = [], (chunks, runs), []
    stream = rx.from_iterable({"value": 0} for _ in range(runs)).pipe(
        bridge.stream(counting(chunks), ordered=how == "in their order"),
        ops.do_action(emitted.add),
    )

    async def reader(_: Any) -> None:
        async for item in stream.pipe(to_async_iterable(max_buffered=bound)):
            context.read.append(item)
            for _ in range(len(context.read) % 3):  # it is slow, at times
                await asyncio.sleep(0)
            context.ahead.append(len(emitted) - len(context.read))

    if who == "a node":
        bridge.create_future_task(reader, 0).result(LIMIT)
    else:
        asyncio.run(asyncio.wait_for(reader(0), LIMIT))


@then("each chunk and each result was read once, those of each run in order")
def step_each_chunk_and_each_result_was_read_once(context: Context) -> None:
    chunks, runs = context.expected
    by_run: dict[Any, list[Any]] = {}
    for item in context.read:
        by_run.setdefault(item.source.id, []).append(item.sequence)
    assert len(by_run) == runs, len(by_run)
    for sequences in by_run.values():
        assert sequences == [*range(chunks), None], sequences


@then("no more than {most:d} items were ever ahead of it")
def step_no_more_than_items_were_ever_ahead_of_it(context: Context, most: int) -> None:
    assert max(context.ahead) <= most, max(context.ahead)


@when(
    "a coroutine reads the results alone of a stream of {runs:d} runs of {chunks:d} chunks, with "
    "max_buffered={bound:d}"
)
def step_a_coroutine_reads_the_results_alone_of_a_stream(
    context: Context, runs: int, chunks: int, bound: int
) -> None:
    stream = rx.from_iterable({"value": 0} for _ in range(runs)).pipe(
        context.bridge.stream(counting(chunks)), ops.filter(lambda item: item.sequence is None)
    )

    async def reader() -> None:
        results = stream.pipe(to_async_iterable(max_buffered=bound))
        context.read = [item.status async for item in results]

    asyncio.run(asyncio.wait_for(reader(), LIMIT))


@then("it has read {count:d} results")
def step_it_has_read_results(context: Context, count: int) -> None:
    assert context.read == ["ok"] * count, context.read


@when(
    "a node reads the first of {chunks:d} chunks, and then waits for another message on the thread "
    "of their run"
)
def step_a_node_reads_the_first_of_chunks_and_then_waits(context: Context, chunks: int) -> None:
    bridge = context.bridge
    message = StreamMessage({"value": 0}, thread_id="theirs")

    async def reader(_: Any) -> None:
        stream = rx.of(message).pipe(bridge.stream(counting(chunks)))
        async with stream.pipe(to_async_iterable(max_buffered=1)) as items:
            await anext(items)
            await bridge.create_future_task(double, 0, thread_id="theirs")
            assert [each async for each in items]  # if the run was the second to wait, and is told

    context.error = bridge.create_future_task(reader, 0).exception(LIMIT)


@when(
    "a reader of at most {bound:d} answers takes the first one of {count:d} while the second one "
    "is being emitted, and waits"
)
def step_a_reader_takes_the_first_while_the_second_is_emitted(
    context: Context, bound: int, count: int
) -> None:
    emitting, go_on = Gate(), Gate()
    begun: list[int] = []
    bridge = context.bridge

    async def answer(content: int) -> int:
        begun.append(content)
        return content

    def hold(result: StreamMessage) -> None:
        if result.content == 1:
            emitting.open()
            go_on.wait()

    async def reader() -> list[Any]:
        stream = rx.from_iterable(range(count)).pipe(bridge.invoke(answer), ops.do_action(hold))
        async with stream.pipe(to_async_iterable(max_buffered=bound)) as results:
            await asyncio.to_thread(emitting.wait)
            read = [(await anext(results)).content]
            go_on.open()
            await asyncio.to_thread(bridge.registry.wait_idle, LIMIT)
            context.begun = len(begun)
            return read + [each.content async for each in results]

    context.read = asyncio.run(asyncio.wait_for(reader(), LIMIT))


@then("the reader gets all {count:d}, and no more than {most:d} runs had begun by then")
def step_the_reader_gets_all(context: Context, count: int, most: int) -> None:
    assert context.read == list(range(count)), context.read
    assert context.begun == most, context.begun


async def yielding(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@when("{who} reads the answers to {count:d} items of {what}, with max_buffered={bound:d}")
def step_who_reads_the_answers_to_count_items_of_what(
    context: Context, who: str, count: int, what: str, bound: int
) -> None:
    source, how = what.split(", ")
    items = iter(range(count)) if source == "a generator" else yielding(count)
    stages = 2 if how == "of two stages" else 1
    _read(context, who, context.bridge.from_iterable(items), bound, stages, turns=20)


@when(
    "a node {reads} the answers to items of {source}, while a message on {whose} thread has all "
    "room"
)
def step_a_node_reads_while_a_message_has_all_room(
    context: Context, reads: str, source: str, whose: str
) -> None:
    bridge, begun, full = context.bridge, Gate(), Gate()

    async def answer(content: Any) -> Any:
        return content

    async def until_the_source_waits(_: Any) -> None:
        await until(lambda: bool(bridge._engine.admission._gates))

    async def reader(_: Any) -> Any:
        begun.open()
        await asyncio.to_thread(full.wait)
        items = iter(range(3)) if source == "a generator" else yielding(3)
        stream = bridge.from_iterable(items).pipe(bridge.invoke(answer))
        if reads == "awaits":
            return [(await stream).content]
        return [each.content async for each in stream.pipe(to_async_iterable(max_buffered=4))]

    run = bridge.create_future_task(reader, 0, thread_id="its own")
    begun.wait()
    if whose == "another":
        bridge.create_future_task(until_the_source_waits, 0, thread_id="another")
    blocked = bridge.create_future_task(answer, 0, thread_id=whose)
    full.open()
    try:
        context.content = run.result(LIMIT).content
    except DeadlockError as error:
        context.error = error
    assert blocked.result(LIMIT).content == 0


@then("it has read all {count:d}, and no more than {most:d} runs were ever ahead of it")
def step_it_has_read_all_and_no_more_than_most_runs(
    context: Context, count: int, most: int
) -> None:
    assert sorted(context.read) == list(range(count)), len(context.read)
    assert max(context.ahead) <= most, max(context.ahead)


@then("the node has answered {content}")
def step_the_node_has_answered_content(context: Context, content: str) -> None:
    assert context.content == eval(content), context.content


@then("run() has returned {content}")
def step_run_has_returned_content(context: Context, content: str) -> None:
    assert context.content == eval(content), context.error


@when("a node under a plain semaphore awaits a stream that needs its slot, in virtual time")
def step_a_node_under_a_plain_semaphore_awaits_a_stream(context: Context) -> None:
    async def main() -> None:
        slots = asyncio.Semaphore(1)

        async def in_slot(call: Any) -> Any:
            async with slots:
                return await call()

        async def node() -> Any:
            start = ops.flat_map(
                lambda value: asyncio.ensure_future(in_slot(lambda: double(value)))
            )
            return await rx.of(1).pipe(start)

        await asyncio.wait_for(in_slot(node), DAY / 2)

    context.error = error_of(lambda: in_virtual_time(main()))


@then("it has ended")
def step_it_has_ended(context: Context) -> None:
    assert context.error is None, repr(context.error)


@when("{count:d} nodes hold its slots, and each awaits a stream through the same bridge")
def step_count_nodes_hold_its_slots_and_each_awaits_a_stream(context: Context, count: int) -> None:
    began, all_began = Log(), Gate()

    async def node(content: int) -> Any:
        began.add(content)
        await all_began.wait_async()
        return await by_await(answers(context.bridge, content))

    send = context.bridge.create_future_task
    runs = [send(node, number, errors="emit") for number in range(count)]
    began.wait_for(count)
    all_began.open()
    context.results = [run.result(LIMIT) for run in runs]


# -- a node emits into a stream --------------------------------------------------------------------


@when("{kind:w} nodes emit two messages each into the stream that feeds them, {depth:d} deep")
def step_kind_nodes_emit_two_messages_each_into_the_stream(
    context: Context, kind: str, depth: int
) -> None:
    messages: Subject[int] = Subject()
    context.peak, context.sent = Log(), Log()

    def send(value: int) -> None:
        context.sent.add(value)
        messages.on_next(value)
        context.peak.add(len(context.bridge.registry))

    def node(value: int) -> int:
        for _ in range(2 if value else 0):
            send(value - 1)
        return value

    async def async_node(value: int) -> int:
        return node(value)

    invoke = context.bridge.invoke(async_node if kind == "async" else node, errors="emit")
    context.subscriber = Subscriber()
    context.subscriber.subscribe(messages.pipe(invoke))
    send(depth)
    assert context.bridge.registry.wait_idle(LIMIT)


@then("every message has a result, {some} of them {status:w}")
def step_every_message_has_a_result(context: Context, some: str, status: str) -> None:
    statuses = Counter(result.status for result in context.subscriber.items)
    assert sum(statuses.values()) == len(context.sent), (statuses, len(context.sent))
    if some == "all":
        assert set(statuses) == {status} and len(context.sent) == 255, statuses
    else:
        assert statuses[status] and statuses["ok"], statuses
    context.subscriber.subscription.dispose()


@then("no more than {bound:d} messages were ever in flight")
def step_no_more_than_bound_messages_were_ever_in_flight(context: Context, bound: int) -> None:
    assert max(context.peak) <= bound, max(context.peak)


@then("the stream has ended with {error:w}")
def step_the_stream_has_ended_with_error(context: Context, error: str) -> None:
    ended = context.subscriber.wait_for_end().error
    assert type(ended).__name__ == error, repr(ended)


@when("plain tasks emit two messages each into the stream that feeds them, {depth:d} deep")
def step_plain_tasks_emit_two_messages_each_into_the_stream(context: Context, depth: int) -> None:
    context.peak = Log()

    async def main() -> None:
        messages: Subject[int] = Subject()
        slots, tasks, ended = asyncio.Semaphore(2), set[asyncio.Task[None]](), asyncio.Event()

        async def node(value: int) -> None:
            async with slots:
                for _ in range(2 if value else 0):
                    messages.on_next(value - 1)

        def leave(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            if not tasks:
                ended.set()

        def start(value: int) -> None:
            task = asyncio.ensure_future(node(value))
            tasks.add(task)
            task.add_done_callback(leave)
            context.peak.add(len(tasks))

        messages.subscribe(start)
        messages.on_next(depth)
        async with asyncio.timeout(LIMIT):
            await ended.wait()

    asyncio.run(main())


# -- iterating -------------------------------------------------------------------------------------


class QueueOnLoop:
    """What people write: nothing holds the threads back."""

    def __init__(self, source: Stream) -> None:
        loop, self._queue = asyncio.get_running_loop(), asyncio.Queue[Any]()
        put = self._queue.put_nowait
        source.subscribe(lambda item: loop.call_soon_threadsafe(put, item))

    def __aiter__(self) -> QueueOnLoop:
        return self

    async def __anext__(self) -> Any:
        return await self._queue.get()


@when(
    "{count:d} threads emit {items:d} items each, to what is read by {reader} with "
    "max_buffered={bound:d}"
)
def step_count_threads_emit_items_each(
    context: Context, count: int, items: int, reader: str, bound: int
) -> None:
    source: Subject[Any] = Subject()
    context.read, context.ahead, emitted = [], [], [0] * count

    def emit(number: int) -> None:
        for item in range(items):
            source.on_next((number, item))
            emitted[number] += 1

    async def main() -> None:
        naive = reader == "a queue on the loop"
        to_iterable: Any = QueueOnLoop if naive else to_async_iterable(max_buffered=bound)
        iterator = source.pipe(to_iterable)
        emitting = [thread(emit, number) for number in range(count)]
        if naive:  # a reader that is late; the other one would block them forever
            await asyncio.gather(*map(asyncio.wrap_future, emitting))
        async for item in iterator:
            context.ahead.append(sum(emitted) - len(context.read))
            context.read.append(item)
            if len(context.read) == count * items:
                break

    context.count, context.items = count, items
    asyncio.run(asyncio.wait_for(main(), LIMIT))


@then("all of them were read once, those of each thread in order")
def step_all_of_them_were_read_once(context: Context) -> None:
    for number in range(context.count):
        read = [item for source, item in context.read if source == number]
        assert read == list(range(context.items)), (number, read[:10])


@then("the threads were never more than {most:d} items ahead")
def step_the_threads_were_never_more_than_items_ahead(context: Context, most: int) -> None:
    assert max(context.ahead) <= most, max(context.ahead)


async def read_to_end(context: Context, iterator: Any) -> None:
    context.read = []

    async def read() -> None:
        async for item in iterator:
            context.read.append(item)

    context.error = await raised(asyncio.wait_for(read(), LIMIT))


def emit_six(source: Subject[int], entered: Log) -> None:
    for item in range(1, 7):
        entered.add(item)
        source.on_next(item)
    source.on_completed()
    entered.add("end")


def emit_on_loop(source: Subject[int], _: int) -> Future[Any]:
    emit_six(source, Log())
    return thread(int)


def emit_in_thread(source: Subject[int], until: int) -> Future[Any]:
    entered = Log()
    emitting = thread(emit_six, source, entered)
    entered.wait_for(until)
    return emitting


def emit_on_another_loop(source: Subject[int], _: int) -> Future[Any]:
    async def emit() -> None:
        emit_six(source, Log())

    emitting = thread(asyncio.run, emit())
    emitting.result(LIMIT)
    return emitting


EMITTERS: dict[str, Callable[[Subject[int], int], Future[Any]]] = {
    "the loop's thread": emit_on_loop,
    "a thread": emit_in_thread,
    "another loop": emit_on_another_loop,
    "an endless source": lambda *_: thread(int),
}


@when(
    "{emitter} emits 1 to 6 before anything is read, with max_buffered={bound:d}, "
    'overflow="{overflow:w}"'
)
def step_emitter_emits_1_to_6_before_anything_is_read(
    context: Context, emitter: str, bound: int, overflow: Any
) -> None:
    async def main() -> None:
        subject: Subject[int] = Subject()
        endless = rx.of(1, 2, 3).pipe(ops.repeat())
        source = endless if emitter == "an endless source" else subject
        iterator = source.pipe(to_async_iterable(max_buffered=bound, overflow=overflow))
        emitting = EMITTERS[emitter](subject, bound + 1 if overflow == "block" else 7)
        await read_to_end(context, iterator)
        emitting.result(LIMIT)
        context.dropped = iterator.dropped

    asyncio.run(main())


@then("{read} was read, {dropped:d} were dropped, and then came {end}")
def step_read_was_read_dropped_were_dropped_and_then_came_end(
    context: Context, read: str, dropped: int, end: str
) -> None:
    assert context.dropped == dropped, context.dropped
    step_read_was_read_and_then_end(context, read, end)


@then("{read} was read, and then {end}")
def step_read_was_read_and_then_end(context: Context, read: str, end: str) -> None:
    assert context.read == [int(item) for item in read.split()], context.read
    expected = "NoneType" if end == "the end" else end.removesuffix(" was raised")
    assert type(context.error).__name__ == expected, repr(context.error)


@when("a stream that {ends} is read by to_async_iterable")
def step_a_stream_that_ends_is_read_by_to_async_iterable(context: Context, ends: str) -> None:
    errors = {"ValueError": ValueError(), "StopIteration": StopIteration()}
    errors["StopAsyncIteration"] = StopAsyncIteration()  # type: ignore[assignment]
    error = errors.get(ends.removeprefix("fails with "))
    stream = rx.of(1, 2) if error is None else rx.concat(rx.of(1, 2), rx.throw(error))

    async def main() -> None:
        await read_to_end(context, stream.pipe(to_async_iterable()))

    asyncio.run(main())


class Endless:
    """A source that a thread of its own emits, until it is disposed of."""

    def __init__(self) -> None:
        self.disposed = Gate()
        self.emitted = Log()
        self.emitting: Future[None] | None = None
        self.stream: Stream = rx.create(self._subscribe)

    def _subscribe(self, observer: Any, _: Any = None) -> Any:
        def emit() -> None:
            while not self.disposed.is_open:
                self.emitted.add(1)
                observer.on_next(1)

        self.emitting = thread(emit)
        return Disposable(self.disposed.open)


class LeftError(Exception):
    """Leaves a loop."""


async def by_break(iterator: list[Any], full: Callable[[], object]) -> None:
    async for _ in iterator.pop():
        full()
        break


async def by_exception(iterator: list[Any], full: Callable[[], object]) -> None:
    async def read() -> None:
        async for _ in iterator.pop():
            full()
            raise LeftError

    assert isinstance(await raised(read()), LeftError)


async def by_cancellation(iterator: list[Any], full: Callable[[], object]) -> None:
    inside = asyncio.Event()

    async def read() -> None:
        async for _ in iterator.pop():
            full()
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(read())
    await inside.wait()
    task.cancel()
    await asyncio.wait([task])


async def by_aclose(iterator: list[Any], full: Callable[[], object]) -> None:
    full()
    await iterator[0].aclose()
    await iterator[0].aclose()
    assert [item async for item in iterator[0]] == []


async def by_dropping(iterator: list[Any], full: Callable[[], object]) -> None:
    full()
    iterator.clear()


async def by_closing_loop(iterator: list[Any], full: Callable[[], object]) -> None:
    full()


LEFT = {
    "break": by_break,
    "an exception": by_exception,
    "a cancellation": by_cancellation,
    "aclose()": by_aclose,
    "dropping it": by_dropping,
    "closing its loop": by_closing_loop,
}


@when("a thread emits without end to what is read by to_async_iterable, which is left by {way}")
def step_a_thread_emits_without_end_to_what_is_read(context: Context, way: str) -> None:
    context.source = source = Endless()
    iterator: list[Any] = []

    async def main() -> None:
        iterator.append(source.stream.pipe(to_async_iterable(max_buffered=2)))
        await LEFT[way](iterator, lambda: source.emitted.wait_for(3))

    asyncio.run(main())
    context.iterator = iterator  # as it is: closing the loop is what is to help


@then("the source is disposed of, and the thread has ended")
def step_the_source_is_disposed_of_and_the_thread_has_ended(context: Context) -> None:
    context.source.disposed.wait()
    context.source.emitting.result(LIMIT)


@when("a node reads what a sync node emits, and waits for that one before it has read all")
def step_a_node_reads_what_a_sync_node_emits(context: Context) -> None:
    items: Subject[int] = Subject()
    full = Log()

    def emitter(_: Any) -> None:
        for item in range(4):
            full.add(item)
            items.on_next(item)

    async def reader(_: Any) -> None:
        iterator = items.pipe(to_async_iterable(max_buffered=1))
        run = context.bridge.create_future_task(emitter, 0)
        await run
        assert [item async for item in iterator]

    context.error = context.bridge.create_future_task(reader, 0).exception(LIMIT)


# -- the last item ---------------------------------------------------------------------------------


@when("{what} of a stream that a thread emits is awaited by to_future")
def step_what_of_a_stream_that_a_thread_emits_is_awaited(context: Context, what: str) -> None:
    source: Subject[int] = Subject()
    ends = {
        "the error": ValueError(),
        "the cancellation": asyncio.CancelledError(),
        "the StopIteration": StopIteration(),
    }

    def emit() -> None:
        for item in (1, 2, 3):
            source.on_next(item)
        if what in ends:
            source.on_error(ends[what])  # type: ignore[arg-type]
        else:
            source.on_completed()

    def go(emitted: Gate, emitting: threading.Event) -> None:
        emitting.wait(LIMIT)
        emit()
        emitted.open()

    async def main() -> Any:
        chosen = {"the first item": ops.first(), "the last of none": ops.skip(3)}
        future = source.pipe(chosen.get(what, ops.skip(0)), to_future())
        asleep = threading.Event()
        # Not a timer on the loop: that would wake it.
        asyncio.get_running_loop().call_soon(asleep.set)
        thread(go, Gate(), asleep)
        try:
            return await future
        except (Exception, asyncio.CancelledError) as error:
            return type(error).__name__

    lent = LentLoop()
    context.add_cleanup(lent.end)
    context.outcome = lent.run(main())


@then("awaiting gives {outcome:w}")
def step_awaiting_gives_outcome(context: Context, outcome: str) -> None:
    assert str(context.outcome) == outcome, context.outcome


@when("what awaits a stream by to_future is cancelled")
def step_what_awaits_a_stream_by_to_future_is_cancelled(context: Context) -> None:
    context.source = source = Endless()

    async def main() -> None:
        async def read() -> None:
            await source.stream.pipe(to_future())

        task = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())


@then("the source is disposed of")
def step_the_source_is_disposed_of(context: Context) -> None:
    context.source.disposed.wait()
    context.source.emitting.result(LIMIT)


@when('the code under test calls "{call}", without a bridge')
def step_the_code_under_test_calls_call_without_a_bridge(context: Context, call: str) -> None:
    names = {
        "to_async_iterable": to_async_iterable,
        "to_future": to_future,
        "empty": rx.empty(),
    }
    context.error = error_of(lambda: eval(call, names))


@when(
    "the thread of a source of two messages ends it, and emits the first result, which is read "
    "meanwhile"
)
def step_the_thread_of_a_source_ends_it_and_emits_the_first_result(context: Context) -> None:
    put, emitted, waits_again = Gate(), Gate(), Gate()
    flush, notify = SerializedObserver.flush, SerializedObserver._notify
    source: Subject[int] = Subject()

    def late(self: SerializedObserver[Any]) -> None:
        if threading.current_thread() is not feeding and not put.is_open:
            put.open()
            emitted.wait()  # by the thread of the source
        flush(self)

    def slow(self: SerializedObserver[Any], *arguments: Any) -> None:
        notify(self, *arguments)
        if threading.current_thread() is feeding and not emitted.is_open:
            emitted.open()
            waits_again.wait()

    def feed() -> None:
        source.on_next(1)
        source.on_next(2)
        put.wait()
        source.on_completed()

    async def read() -> list[Any]:
        results = source.pipe(context.bridge.invoke(_same), to_async_iterable(max_buffered=1))
        async with results, asyncio.timeout(LIMIT):
            feeding.start()
            first = await anext(results)
            await asyncio.to_thread(on_loop, context)  # it has seen that there is no room yet
            asyncio.get_running_loop().call_soon(waits_again.open)
            return [first.content, *[each.content async for each in results]]

    feeding = threading.Thread(target=feed)
    patch(context, SerializedObserver, "flush", late)
    patch(context, SerializedObserver, "_notify", slow)
    context.read = asyncio.run(read())
    feeding.join(LIMIT)


@then("the reader has got both results")
def step_the_reader_has_got_both_results(context: Context) -> None:
    assert context.read == [1, 2], context.read


@when("a node waits for the next message after its first chunk, which is read before it is emitted")
def step_a_node_waits_for_the_next_message_after_its_first_chunk(context: Context) -> None:
    emitted, read, next_began = Gate(), Gate(), Gate()
    notify = SerializedObserver._notify
    messages: Subject[Any] = Subject()

    def slow(self: SerializedObserver[Any], *arguments: Any) -> None:
        notify(self, *arguments)
        if not emitted.is_open:
            emitted.open()
            read.wait()  # the next message is looked at as it is read: there is no room yet

    async def say(state: Any) -> Any:
        if state["value"] == 0:
            get_stream_writer()("a chunk")
            await next_began.wait_async()
        next_began.open()
        return state

    async def main() -> list[Any]:
        chunks = context.bridge.stream(one_node(say), stream_mode="custom")
        source = messages.pipe(chunks, to_async_iterable(max_buffered=2))
        async with source, asyncio.timeout(LIMIT):
            messages.on_next({"value": 0})
            await emitted.wait_async()
            messages.on_next({"value": 1})
            first = await anext(source)
            read.open()
            messages.on_completed()
            return [first, *[each async for each in source]]

    patch(context, SerializedObserver, "_notify", slow)
    context.read = asyncio.run(main())


@then("the chunk was read, and both runs have ended")
def step_the_chunk_was_read_and_both_runs_have_ended(context: Context) -> None:
    chunk, *results = context.read
    assert chunk.content == "a chunk", chunk
    assert [each.status for each in results if each.sequence is None] == ["ok", "ok"], results


async def _same(content: int) -> int:
    return content


@contextlib.contextmanager
def _stopping_at(line: str, stop: Callable[[], object]) -> Iterator[None]:
    """A block in which ``stop`` is called before this thread executes ``line`` of weakref.py."""

    def trace(frame: Any, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.endswith("weakref.py"):
            return None
        if event == "line" and line in linecache.getline(file, frame.f_lineno):
            stop()
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


@when("a room of a reader is freed in one thread, while another one goes through all of them")
def step_a_room_of_a_reader_is_freed_in_one_thread_while(context: Context) -> None:
    listener = StreamListener(throughout=False, bound=1)
    context.listener = listener
    context.kept = [listener.room_at(_Place(0, number)) for number in range(2)]
    freeing, looking, freed = Gate(), Gate(), Gate()

    def free() -> None:
        room = listener.room_at(_Place(0, 2))
        with _stopping_at("_atomic_removal(", lambda: (freeing.open(), looking.wait())):
            del room
        freeing.open()
        freed.open()

    def look() -> None:
        freeing.wait()
        with _stopping_at("yield", lambda: (looking.open(), freed.wait())):
            listener.has_read()

    done = thread(free)
    context.looked = thread(look)
    context.looked.add_done_callback(lambda _: looking.open())
    done.result(LIMIT)


@then("it went through them without an error, and the room is gone")
def step_it_went_through_them_without_an_error_and_the_room(context: Context) -> None:
    context.looked.result(LIMIT)
    assert len(context.listener._rooms) == len(context.kept), context.listener._rooms
