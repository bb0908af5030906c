"""Disposing, subscribers that raise or block, feedback."""

from __future__ import annotations

import functools
import threading
from typing import Any
from unittest import mock

import reactivex
from behave import then, when
from behave.runner import Context
from reactivex import operators as ops
from reactivex.disposable import SingleAssignmentDisposable
from reactivex.scheduler import EventLoopScheduler
from reactivex.subject import Subject

from support.bridge.bridges import listen
from support.bridge.graphs import graph_of, one_node
from support.bridge.streams import Subscriber, value_of
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads, thread


@when("a source that never completes sends 5 messages to a waiting graph")
def step_a_source_that_never_completes_sends_5_messages_to_a(context: Context) -> None:
    context.source, context.subscriber = Subject(), Subscriber()
    operator = context.bridge.invoke(graph_of(context.work, "a waiting graph"))
    context.subscriber.subscribe(context.source.pipe(operator))
    for value in range(5):
        context.source.on_next({"value": value})


@when("all have begun, and the subscription is disposed")
def step_all_have_begun_and_the_subscription_is_disposed(context: Context) -> None:
    context.work.began.wait_for(5)
    context.subscriber.subscription.dispose()


@then("the source has no subscriber any more")
def step_the_source_has_no_subscriber_any_more(context: Context) -> None:
    assert context.source.observers == []


@when("Ctrl-C interrupts the hand-over of a message")
def step_ctrl_c_interrupts_the_hand_over_of_a_message(context: Context) -> None:
    source, context.subscriber = Subject[Any](), Subscriber()
    context.subscriber.subscribe(source.pipe(context.bridge.invoke(one_node(context.work.answer))))
    context.interrupt = KeyboardInterrupt()
    with mock.patch.object(context.bridge._engine, "hand_over", side_effect=context.interrupt):
        context.error = error_of(lambda: source.on_next({"value": 1}))


@then("it comes out of on_next, the stream ends with it, and the registry becomes idle")
def step_it_comes_out_of_on_next_the_stream_ends_with_it(context: Context) -> None:
    assert context.error is context.interrupt, repr(context.error)
    assert context.subscriber.error is context.interrupt, repr(context.subscriber.error)
    assert context.bridge.registry.wait_idle(LIMIT)


@when("the thread_id function of the 2nd message disposes of the subscription")
def step_the_thread_id_function_of_the_2nd_message_disposes(context: Context) -> None:
    source, subscriber = Subject[Any](), Subscriber()

    def thread_of(message: Any) -> str:
        if message == 2:
            subscriber.subscription.dispose()
        return str(message)

    def note(message: int) -> int:
        context.work.began.add(message)
        return message

    subscriber.subscribe(source.pipe(context.bridge.invoke(note, thread_id=thread_of)))
    source.on_next(1)
    subscriber.log.wait_for(1)
    source.on_next(2)


@then("the graph was run on the 1st alone, and the registry becomes idle")
def step_the_graph_was_run_on_the_1st_alone(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    assert list(context.work.began) == [1], list(context.work.began)


@when("a subscriber disposes at the 3rd of 50 messages")
def step_a_subscriber_disposes_at_the_3rd_of_50_messages(context: Context) -> None:
    context.log = Log()
    subscription = SingleAssignmentDisposable()

    def on_next(result: Any) -> None:
        context.log.add(result)
        if len(context.log) == 3:
            subscription.dispose()

    source: Subject[Any] = Subject()
    operator = context.bridge.invoke(one_node(context.work.answer))
    subscription.disposable = source.pipe(operator).subscribe(on_next)

    async def emit() -> None:
        for value in range(50):
            source.on_next({"value": value})

    # On the loop, so that all have arrived before the first one is answered.
    context.bridge.create_future_task(lambda _: emit(), None).result(LIMIT)


@then("it got 3, and the registry becomes idle")
def step_it_got_3_and_the_registry_becomes_idle(context: Context) -> None:
    context.log.wait_for(3)
    assert context.bridge.registry.wait_idle(LIMIT)
    assert len(context.log) == 3
    assert context.bridge.statistics().cancelled > 0


@when("a thread disposes while another emits, 200 times over")
def step_a_thread_disposes_while_another_emits_200_times_over(context: Context) -> None:
    context.late = []
    graph = graph_of(context.work, "an async function")
    for _ in range(200):
        source: Subject[Any] = Subject()
        subscriber = Subscriber()
        subscriber.subscribe(source.pipe(context.bridge.invoke(graph)))

        def emit_or_dispose(
            number: int, source: Subject[Any] = source, subscriber: Subscriber = subscriber
        ) -> None:
            if number:
                assert subscriber.subscription is not None
                subscriber.subscription.dispose()
                return
            for value in range(10):
                source.on_next({"value": value})

        in_threads(2, emit_or_dispose)
        source.on_next({"value": -1})
        context.late.append(subscriber)


@then("the registry becomes idle, and nothing came after any disposing")
def step_the_registry_becomes_idle_and_nothing_came_after_any(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT), context.bridge.registry.snapshot()
    for subscriber in context.late:
        assert subscriber.ends == [] and subscriber.overlaps == 0
        assert -1 not in [value_of(result) for result in subscriber.items]


# -- back-pressure ---------------------------------------------------------------------------------


@when("a source in a thread of its own sends 10 messages to a waiting graph")
def step_a_source_in_a_thread_of_its_own_sends_10_messages_to_a(context: Context) -> None:
    context.source, context.subscriber = Subject(), Subscriber()
    operator = context.bridge.invoke(graph_of(context.work, "a waiting graph"))
    context.subscriber.subscribe(context.source.pipe(operator))

    def emit() -> None:
        for value in range(10):
            context.source.on_next({"value": value})

    context.sending = thread(emit)


@then("the source is held back with 3 messages in flight")
def step_the_source_is_held_back_with_3_messages_in_flight(context: Context) -> None:
    admission = context.bridge._engine.admission
    context.work.began.wait_for(1)
    waiting = threading.Event()
    while not waiting.wait(0.001):  # bounded by the scenario's own deadline
        if admission._gates and len(context.bridge.registry) == 3:
            waiting.set()
    assert not context.sending.done()


@when("the subscription is disposed")
def step_the_subscription_is_disposed(context: Context) -> None:
    context.subscriber.subscription.dispose()


@then("the source's thread is free, and the registry becomes idle")
def step_the_sources_thread_is_free_and_the_registry_becomes_idle(context: Context) -> None:
    context.sending.result(LIMIT)
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.subscriber.items == []


@when("{count:d} threads emit {each:d} messages each into one stream")
def step_count_threads_emit_each_messages_each_into_one_stream(
    context: Context, count: int, each: int
) -> None:
    source: Any = Subject()
    # A bare observable: a Subject would serialise its callers by its lock.
    observers: list[Any] = []
    bare = reactivex.create(lambda observer, _: observers.append(observer) or source)
    context.subscriber = Subscriber()
    graph = graph_of(context.work, "an async function")
    context.subscriber.subscribe(bare.pipe(context.bridge.invoke(graph)))
    (observer,) = observers

    def emit(number: int) -> None:
        for value in range(each):
            observer.on_next({"value": (number, value)})

    in_threads(count, emit)
    observer.on_completed()


# -- subscribers that raise, block, or answer ------------------------------------------------------


@when("a subscriber raises at its 2nd of 5 results, behind {operator}")
def step_a_subscriber_raises_at_its_2nd_of_5_results_behind(
    context: Context, operator: str
) -> None:
    logger = "rxlanggraph" if operator == "invoke" else "concurrent.futures"
    context.records, context.log = listen(context, logger), Log()
    graph = graph_of(context.work, "an async function")
    stage = {
        "RxPY's flat_map": ops.flat_map(
            functools.partial(context.bridge.create_future_task, graph)
        ),
        "invoke": context.bridge.invoke(graph),
    }[operator]

    def on_next(result: Any) -> None:
        context.log.add(result)
        if len(context.log) == 2:
            raise ZeroDivisionError("the subscriber's own")

    source = reactivex.from_iterable({"value": value} for value in range(5))
    source.pipe(stage).subscribe(on_next, context.log.add)


@when("a message fails behind invoke, and the subscriber has no on_error")
def step_a_message_fails_behind_invoke_and_the_subscriber_has_no(context: Context) -> None:
    async def fail(content: Any) -> None:
        raise ZeroDivisionError(content)

    context.records = listen(context, "rxlanggraph")
    reactivex.of("the graph's own").pipe(context.bridge.invoke(fail)).subscribe()


@then('"{message}" was logged with that error')
def step_message_was_logged_with_that_error(context: Context, message: str) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    (record,) = context.records
    assert message in record.getMessage(), record.getMessage()
    assert isinstance(record.exc_info[1], ZeroDivisionError), record.exc_info


@when("a subscriber blocks behind observe_on")
def step_a_subscriber_blocks_behind_observe_on(context: Context) -> None:
    scheduler, context.entered = EventLoopScheduler(), Gate()
    context.add_cleanup(scheduler.dispose)

    def on_next(_: object) -> None:
        context.entered.open()
        context.work.gate.wait()

    operator = context.bridge.invoke(graph_of(context.work, "an async function"))
    source = reactivex.of({"value": 0}).pipe(operator, ops.observe_on(scheduler))
    context.subscriber = Subscriber()
    context.subscriber.subscribe(source.pipe(ops.do_action(on_next)))
    context.entered.wait()


@then("another stream of the same bridge is answered meanwhile")
def step_another_stream_of_the_same_bridge_is_answered_meanwhile(context: Context) -> None:
    other = Subscriber()
    operator = context.bridge.invoke(graph_of(context.work, "an async function"))
    other.subscribe(reactivex.of({"value": 1}).pipe(operator))
    assert [value_of(result) for result in other.wait_for_end().items] == [1]
    assert context.subscriber.items == []
    context.work.gate.open()
    assert len(context.subscriber.wait_for_end().items) == 1


@then("{count:d} messages, each sent by the subscriber to the one before, are answered")
def step_count_messages_each_sent_by_the_subscriber_to_the_one(
    context: Context, count: int
) -> None:
    source: Subject[Any] = Subject()
    subscriber = Subscriber()

    def send_next(result: Any) -> None:
        if value_of(result) + 1 < count:
            source.on_next({"value": value_of(result) + 1})
        else:
            source.on_completed()

    operator = context.bridge.invoke(graph_of(context.work, "an async function"))
    subscriber.subscribe(source.pipe(operator, ops.do_action(send_next)))
    source.on_next({"value": 0})
    got = subscriber.wait_for_end()
    assert sorted(value_of(result) for result in got.items) == list(range(count))
