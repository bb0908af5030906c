"""from_iterable: sources that are pulled."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import reactivex
from behave import then, when
from behave.runner import Context
from reactivex import operators as ops
from reactivex.subject import Subject

from support.bridge.bridges import LentLoop, on_loop
from support.bridge.pulled import Source, raising, source_of
from support.bridge.streams import Subscriber
from support.concurrency.tasks import start
from support.concurrency.waiting import LIMIT, Gate, Log

_pause = threading.Event()


def until(what: Callable[[], object]) -> None:
    """Wait until ``what`` is true, of which there is no notice."""
    for _ in range(int(LIMIT / 0.001)):
        if what():
            return
        _pause.wait(0.001)
    raise AssertionError("it does not come true")


def waiting(context: Context) -> int:
    return len(context.bridge._engine.admission._gates)


async def echo(content: Any) -> Any:
    await asyncio.sleep(0)
    return content


class Holding:
    """A graph whose runs end when they are let go."""

    def __init__(self, context: Context) -> None:
        self.gate, self.began = Gate(), Log()
        self._one = asyncio.Event()
        context.add_cleanup(self.gate.open)

    async def node(self, content: Any) -> Any:
        self.began.add(content)
        if content != 0:
            await self.gate.wait_async()
            return content
        self._loop = asyncio.get_running_loop()
        await self._one.wait()
        return content

    def end_one(self) -> None:
        self._loop.call_soon_threadsafe(self._one.set)


def other_loop(context: Context) -> LentLoop:
    loop = LentLoop()
    context.add_cleanup(loop.end)
    return loop


def subscribe(context: Context, stream: Any, where: str = "in a thread") -> Subscriber:
    context.subscriber = subscriber = Subscriber()

    async def on_a_loop() -> None:
        subscriber.subscribe(stream)

    if where == "in a thread":
        subscriber.subscribe(stream)
    elif where == "on its loop":
        context.lent.run(on_a_loop())
    else:
        context.other = other_loop(context)
        context.other.run(on_a_loop())

    def dispose() -> None:
        if subscriber.subscription is not None:
            subscriber.subscription.dispose()

    context.add_cleanup(dispose)
    return subscriber


@when("an endless {kind} is subscribed to {where}, with a graph that holds")
def step_an_endless_kind_is_subscribed_to(context: Context, kind: Any, where: str) -> None:
    context.source, context.holding = Source(), Holding(context)
    pulled = context.bridge.from_iterable(context.source.of(kind))
    subscribe(context, pulled.pipe(context.bridge.invoke(context.holding.node)), where)


@when("an endless async generator is pushed through a graph that holds, for 1,000 turns")
def step_an_endless_async_generator_is_pushed(context: Context) -> None:
    context.source, context.holding = Source(), Holding(context)
    pushed: Subject[Any] = Subject()
    subscribe(context, pushed.pipe(context.bridge.invoke(context.holding.node)))

    async def push() -> None:
        numbers = context.source.async_generator()
        async for number in numbers:
            pushed.on_next(number)
            await asyncio.sleep(0)
            if number == 1000:
                break
        await numbers.aclose()

    other_loop(context).run(push())


@then("{count:d} items were taken, and no more until a run ends")
def step_items_were_taken_and_no_more_until_a_run_ends(context: Context, count: int) -> None:
    context.holding.began.wait_for(2)
    context.source.taken.wait_for(count)
    if waiting(context) == 0 and context.bridge._engine.admission.bounded:
        until(lambda: waiting(context) == 1)
    on_loop(context)
    assert len(context.source.taken) == count, len(context.source.taken)
    context.holding.end_one()
    context.source.taken.wait_for(count + 1)
    until(lambda: waiting(context) == 1)
    on_loop(context)
    # One more ended; the room is filled up again, half of it at a time.
    assert len(context.source.taken) == count + 1, len(context.source.taken)


@when("{words} goes through an ordered stage")
def step_words_goes_through_an_ordered_stage(context: Context, words: str) -> None:
    context.count = int(words.split()[-2])
    pulled = context.bridge.from_iterable(source_of(words))
    subscribe(context, pulled.pipe(context.bridge.invoke(echo, ordered=True)))


@then("the results are those of all items, in order, and the end is completed")
def step_the_results_are_those_of_all_items_in_order(context: Context) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert subscriber.ends == ["completed"], subscriber.ends
    assert [result.content for result in subscriber.items] == list(range(context.count))
    assert context.bridge.statistics().dropped == 0


@then("awaiting a stage behind {words} gives the results of all of them")
def step_awaiting_a_stage_behind_words_gives_the_results(context: Context, words: str) -> None:
    async def main() -> Any:
        pulled = context.bridge.from_iterable(source_of(words))
        return await pulled.pipe(context.bridge.invoke(echo, ordered=True), ops.to_list())

    results = asyncio.run(asyncio.wait_for(main(), LIMIT))
    assert [result.content for result in results] == list(range(50))


@when("an endless {kind} is disposed of while it {at}")
def step_an_endless_kind_is_disposed_of_while_it_at(context: Context, kind: Any, at: str) -> None:
    idle_at = 0 if at == "waits for its next item" else None
    # RxPY can dispose of a subscription only when subscribe() has returned it.
    context.source = source = Source(idle_at=idle_at, may_begin=at == "begins")
    context.add_cleanup(source.may_begin.open)
    context.holding = Holding(context)
    stage = context.bridge.invoke(echo if at == "emits an item" else context.holding.node)
    pulled = context.bridge.from_iterable(source.of(kind))
    if at == "emits an item":
        # The third item disposes of all of it, inside of its own on_next.
        pulled = pulled.pipe(ops.take(3))
    subscriber = subscribe(context, pulled.pipe(stage))
    source.may_begin.open()
    if at == "waits for its next item":
        source.idle.wait()
    elif at == "waits for room":
        until(lambda: waiting(context) == 1)
    context.begun = at != "begins" or len(source.taken) > 0
    if at == "emits an item":
        subscriber.wait_for_end()
    else:
        assert subscriber.subscription is not None
        subscriber.subscription.dispose()


@when("an endless async generator that waits for room is disposed of, slowly")
def step_an_endless_async_generator_is_disposed_of_slowly(context: Context) -> None:
    context.source, context.holding, context.begun = Source(), Holding(context), True
    pulled = context.bridge.from_iterable(context.source.async_generator())
    subscriber = subscribe(context, pulled.pipe(context.bridge.invoke(context.holding.node)))
    until(lambda: waiting(context) == 1)
    # Called as each run is cancelled, in the thread that disposes: the loop goes on meanwhile.
    for run in context.bridge._engine.registry.tasks():
        run.add_done_callback(lambda _: [on_loop(context) for _ in range(20)])
    assert subscriber.subscription is not None
    subscriber.subscription.dispose()


@then("it is closed, and nothing iterates any more")
def step_it_is_closed_and_nothing_iterates_any_more(context: Context) -> None:
    if context.begun or len(context.source.taken):
        context.source.closed.wait()
    until(lambda: not pulling(context))
    taken = len(context.source.taken)
    on_loop(context)
    assert len(context.source.taken) == taken <= 4, taken
    admission = context.bridge._engine.admission
    assert waiting(context) == 0
    assert not admission._closing
    context.holding.gate.open()
    if len(context.holding.began):
        context.holding.end_one()
    assert context.bridge.registry.wait_idle(LIMIT)
    assert not admission._holders, admission._holders


def pulling(context: Context) -> list[str]:
    threads = [each.name for each in threading.enumerate() if each.name == "rxlanggraph-pull"]

    async def tasks() -> list[str]:
        return [repr(each) for each in asyncio.all_tasks() if "_pull" in repr(each.get_coro())]

    loop = context.bridge._engine.host.loop
    return threads + asyncio.run_coroutine_threadsafe(tasks(), loop).result(LIMIT)


@when("{kind} raises behind 0 items")
def step_kind_raises_behind_0_items(context: Context, kind: str) -> None:
    error = LookupError("from the source")
    pulled = context.bridge.from_iterable(raising(kind, error))
    subscribe(context, pulled.pipe(context.bridge.invoke(echo)))


@then("the stream ends with its LookupError")
def step_the_stream_ends_with_its_lookuperror(context: Context) -> None:
    assert context.subscriber.wait_for_end().ends == ["error from the source"]


@when("the bridge is closed while an endless {kind} {at}")
def step_the_bridge_is_closed_while_an_endless_kind_at(
    context: Context, kind: Any, at: str
) -> None:
    context.source = source = Source(idle_at=2 if at == "waits for its next item" else None)
    gate = Gate()
    context.add_cleanup(gate.open)

    async def node(content: Any) -> Any:
        await gate.wait_async()
        return content

    pulled = context.bridge.from_iterable(source.of(kind))
    subscribe(context, pulled.pipe(context.bridge.invoke(node)))
    if at == "waits for its next item":
        source.idle.wait()
    else:
        source.taken.wait_for(3)
        until(lambda: waiting(context) == 1)
    join = start(lambda: context.bridge.close(LIMIT))
    until(lambda: context.bridge.registry.state != "open")
    source.closed.wait()
    subscriber = context.subscriber
    assert not (subscriber.items or subscriber.ends), (subscriber.items, subscriber.ends)
    gate.open()
    assert not join().stuck


@then("the results of what was taken come, then BridgeClosedError, and the source is closed")
def step_the_results_of_what_was_taken_come(context: Context) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert [result.content for result in subscriber.items] == [0, 1], subscriber.items
    assert type(subscriber.error).__name__ == "BridgeClosedError", subscriber.error
    assert context.source.closed.is_open


@when("the bridge is closed while a subscriber without a stage waits for the third item")
def step_the_bridge_is_closed_while_a_subscriber_without_a_stage_waits(context: Context) -> None:
    context.source = source = Source(idle_at=2)
    subscribe(context, context.bridge.from_iterable(source.of("async generator")))
    source.idle.wait()
    assert not context.bridge.close(LIMIT).stuck


@then("the items 0, 1 came, then BridgeClosedError, and the source is closed")
def step_the_items_0_1_came_then_and_the_source_is_closed(context: Context) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert subscriber.items == [0, 1], subscriber.items
    assert type(subscriber.error).__name__ == "BridgeClosedError", subscriber.error
    assert context.source.closed.is_open


@when("the bridge is closed while a run waits for the end of a stream of an endless {kind}")
def step_the_bridge_is_closed_while_a_run_waits_for_the_end(context: Context, kind: Any) -> None:
    context.source, gate, ended = Source(), Gate(), Gate()
    context.add_cleanup(ended.open)
    context.add_cleanup(gate.open)

    async def node(content: Any) -> Any:
        await gate.wait_async()
        return content

    async def parent(content: Any) -> str:
        ends = ops.finally_action(ended.open)
        pulled = context.bridge.from_iterable(context.source.of(kind))
        subscribe(context, pulled.pipe(context.bridge.invoke(node, max_concurrency=1), ends))
        await ended.wait_async()
        return "it has ended"

    context.run = context.bridge.create_future_task(parent, 0)
    # One runs, one has room, and the next one waits for that.
    context.source.taken.wait_for(3)
    until(lambda: waiting(context) == 1)
    join = start(lambda: context.bridge.close(LIMIT))
    context.source.closed.wait()
    gate.open()
    join()


@then("the run that waited for it is answered")
def step_the_run_that_waited_for_it_is_answered(context: Context) -> None:
    assert context.run.result(LIMIT).content == "it has ended"


@when("the bridge is closed, while an endless {kind} waits for room behind a stuck run")
def step_the_bridge_is_closed_while_waits_behind_a_stuck_run(context: Context, kind: Any) -> None:
    context.source, forever = Source(), threading.Event()
    context.add_cleanup(forever.set)
    pulled = context.bridge.from_iterable(context.source.of(kind))
    subscribe(context, pulled.pipe(context.bridge.invoke(lambda content: forever.wait(2 * LIMIT))))
    context.source.taken.wait_for(3)
    until(lambda: waiting(context) == 1)
    assert context.bridge.close(0, cancel_timeout=0).stuck


@then("the stream has ended, the source is closed, and no thread iterates any more")
def step_the_stream_has_ended_and_no_thread_iterates_any_more(context: Context) -> None:
    assert context.subscriber.wait_for_end().error is not None
    context.source.closed.wait()
    for each in threading.enumerate():
        if each.name == "rxlanggraph-pull":
            each.join(LIMIT)
            assert not each.is_alive(), each


@when("the bridge is closed while runs of both stages behind an endless generator are active")
def step_the_bridge_is_closed_while_runs_of_both_stages_are_active(context: Context) -> None:
    context.source, first, second, began = Source(), Gate(), Gate(), Gate()
    context.add_cleanup(first.open)
    context.add_cleanup(second.open)

    async def one(content: Any) -> Any:
        if content > 0:
            await first.wait_async()
        return content

    async def two(content: Any) -> Any:
        began.open()
        await second.wait_async()
        return content

    stages = [context.bridge.invoke(each, max_concurrency=1) for each in (one, two)]
    pulled = context.bridge.from_iterable(context.source.of("generator"))
    subscribe(context, pulled.pipe(*stages))
    began.wait()
    context.source.taken.wait_for(3)
    join = start(lambda: context.bridge.close(LIMIT))
    context.source.closed.wait()
    first.open()
    on_loop(context)
    second.open()
    assert not join().stuck


@then("the result of the second stage comes, then BridgeClosedError")
def step_the_result_of_the_second_stage_comes(context: Context) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert [result.content for result in subscriber.items] == [0], subscriber.items
    assert type(subscriber.error).__name__ == "BridgeClosedError", subscriber.error


@when("an endless {kind} is subscribed to where {what}")
def step_an_endless_kind_is_subscribed_to_where(context: Context, kind: Any, what: str) -> None:
    context.bridge.create_future_task(echo, 0).result(LIMIT)  # its loop runs
    engine, started_loop = context.bridge._engine, context.bridge._engine.started_loop

    def closed_loop() -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.close()
        return loop

    def closing() -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = started_loop()
        context.bridge.close()
        return loop

    patched = {
        "no thread can be started": lambda: mock.patch.object(
            threading.Thread, "start", side_effect=RuntimeError("can't start new thread")
        ),
        "the loop is closed just then": lambda: mock.patch.object(
            engine, "started_loop", closed_loop
        ),
        "the bridge is closed just then": lambda: mock.patch.object(
            engine, "started_loop", closing
        ),
    }[what]
    pulled = context.bridge.from_iterable(Source().of(kind))
    with warnings.catch_warnings(record=True) as context.warnings, patched():
        warnings.simplefilter("always")
        subscribe(context, pulled)
        gc.collect()


@then("nothing is left of the source, and no coroutine that was never awaited")
def step_nothing_is_left_of_the_source(context: Context) -> None:
    admission = context.bridge._engine.admission
    assert not admission._closing, admission._closing
    assert not (admission._holders or admission._gates), (admission._holders, admission._gates)
    unawaited = [str(each.message) for each in context.warnings if "_pull" in str(each.message)]
    assert not unawaited, unawaited


@when("an async generator waits for its next item on another loop, which ends")
def step_an_async_generator_waits_on_another_loop_which_ends(context: Context) -> None:
    context.source = Source(idle_at=0)
    pulled = context.bridge.from_iterable(context.source.async_generator())
    subscribe(context, pulled.pipe(context.bridge.invoke(echo)), "on another loop")
    context.source.idle.wait()
    context.other.end()


@then("the stream ends with {error}, and the source is closed")
def step_the_stream_ends_with_error_and_the_source_is_closed(context: Context, error: str) -> None:
    assert type(context.subscriber.wait_for_end().error).__name__ == error
    assert context.source.closed.is_open


@when("{words} goes through a flat_map to {each:d} each, and a stage")
def step_words_goes_through_a_flat_map_and_a_stage(context: Context, words: str, each: int) -> None:
    pulled = context.bridge.from_iterable(source_of(words))
    several = ops.flat_map(lambda item: reactivex.from_iterable([item] * each))
    subscribe(context, pulled.pipe(several, context.bridge.invoke(echo)))


@when("{words} goes through a filter of every tenth, and a stage")
def step_words_goes_through_a_filter_of_every_tenth(context: Context, words: str) -> None:
    pulled = context.bridge.from_iterable(source_of(words))
    tenth = ops.filter(lambda item: item % 10 == 0)
    subscribe(context, pulled.pipe(tenth, context.bridge.invoke(echo)))


@then("{count:d} results come, and the end is completed")
def step_results_come_and_the_end_is_completed(context: Context, count: int) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert subscriber.ends == ["completed"], subscriber.ends
    assert len(subscriber.items) == count, len(subscriber.items)
    assert context.bridge.registry.wait_idle(LIMIT)
    assert not context.bridge._engine.admission._holders


@when("2 async generators, 2 generators and 2 threads of 300 messages each go through stages")
def step_async_generators_generators_and_threads_go_through_stages(context: Context) -> None:
    bridge = context.bridge
    context.peak, context.subscribers = 0, []

    async def node(content: Any) -> Any:
        context.peak = max(context.peak, len(bridge.registry))
        await asyncio.sleep(0)
        return content

    for number in range(4):
        kind = "an async generator" if number % 2 else "a generator"
        subscriber = Subscriber()
        pulled = bridge.from_iterable(source_of(f"{kind} of 300 items"))
        subscriber.subscribe(pulled.pipe(bridge.invoke(node)))
        context.subscribers.append(subscriber)

    def send() -> None:
        for number in range(300):
            context.futures.append(bridge.create_future_task(node, number))

    joins = [start(send) for _ in range(2)]
    for join in joins:
        join()


@then("all {count:d} messages have results, and no more than {bound:d} were in flight")
def step_all_messages_have_results_and_no_more_were_in_flight(
    context: Context, count: int, bound: int
) -> None:
    results = [future.result(LIMIT) for future in context.futures]
    for subscriber in context.subscribers:
        assert subscriber.wait_for_end().ends == ["completed"], subscriber.ends
        results += subscriber.items
    assert len(results) == count, len(results)
    assert context.peak <= bound, context.peak


@when("an endless {kind} is subscribed to by an observer that raises")
def step_an_endless_is_subscribed_to_by_an_observer(context: Context, kind: Any) -> None:
    context.source, context.holding, context.begun = Source(), Holding(context), True

    def fail(_: object) -> None:
        raise LookupError("from an observer")

    context.bridge.create_future_task(echo, 0).result(LIMIT)
    context.bridge.from_iterable(context.source.of(kind)).subscribe(fail)


@then("no item was taken behind the one at which it raised")
def step_no_item_was_taken_behind_the_one_at_which_it_raised(context: Context) -> None:
    assert list(context.source.taken) == [0], list(context.source.taken)


@then('from_iterable of {source} raises {error}: "{words}"')
def step_from_iterable_of_source_raises_error(
    context: Context, source: str, error: str, words: str
) -> None:
    try:
        context.bridge.from_iterable(eval(source))
    except Exception as raised:
        assert type(raised).__name__ == error, raised
        assert words in str(raised), raised
    else:
        raise AssertionError("it was accepted")


@when("the bridge is closed, and {words} is subscribed to")
def step_the_bridge_is_closed_and_words_is_subscribed_to(context: Context, words: str) -> None:
    context.bridge.close()
    pulled = context.bridge.from_iterable(source_of(words))
    subscribe(context, pulled.pipe(context.bridge.invoke(echo)))


@then("the stream ends with {error:w}")
def step_the_stream_ends_with_error(context: Context, error: str) -> None:
    assert type(context.subscriber.wait_for_end().error).__name__ == error
