"""RxPY's operators and schedulers around invoke, in real and in virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import reactivex
from behave import then, when
from behave.runner import Context
from reactivex import Observable
from reactivex import operators as ops
from reactivex.observable.marbles import parse
from reactivex.scheduler import EventLoopScheduler, ThreadPoolScheduler
from reactivex.subject import Subject
from reactivex.testing import ReactiveTest, TestScheduler

from support.bridge.graphs import Work, graph_of, one_node
from support.bridge.streams import Subscriber, value_of
from support.concurrency.waiting import LIMIT, Log


def messages(*values: Any) -> Observable[Any]:
    return reactivex.from_iterable([{"value": value} for value in values])


def values(source: Observable[Any]) -> list[Any]:
    """Subscribe, wait for the end, and return the values in their order."""
    subscriber = Subscriber()
    subscriber.subscribe(source)
    subscriber.wait_for_end()
    assert subscriber.ends == ["completed"], subscriber.ends
    assert subscriber.overlaps == 0
    return [value_of(result) for result in subscriber.items]


def answering(context: Context) -> Callable[[Observable[Any]], Observable[Any]]:
    operator: Callable[[Observable[Any]], Observable[Any]] = context.bridge.invoke(
        one_node(context.work.answer)
    )
    return operator


# -- in real time ----------------------------------------------------------------------------------


def observe_on_pool(context: Context) -> None:
    pool, names = ThreadPoolScheduler(2), set()
    context.add_cleanup(pool.executor.shutdown)
    note = ops.do_action(lambda _: names.add(threading.current_thread().name))
    source = messages(*range(50)).pipe(answering(context), ops.observe_on(pool), note)
    assert sorted(values(source)) == list(range(50))
    assert not any(name.startswith(context.bridge.name) for name in names), names


def observe_on_event_loop(context: Context) -> None:
    # Not disposed of: having passed the end on, observe_on schedules once more, which would raise.
    scheduler = EventLoopScheduler(exit_if_empty=True)
    source = messages(*range(50)).pipe(answering(context), ops.observe_on(scheduler))
    assert sorted(values(source)) == list(range(50))


def subscribe_on_pool(context: Context) -> None:
    pool = ThreadPoolScheduler(1)
    context.add_cleanup(pool.executor.shutdown)
    source = messages(*range(50)).pipe(answering(context), ops.subscribe_on(pool))
    assert sorted(values(source)) == list(range(50))


def retry(context: Context) -> None:
    failures = Log()

    async def run(content: Any) -> Any:
        if content["value"] == 2 and len(failures) < 2:
            failures.add(1)
            raise ValueError("again")
        return content

    stage = context.bridge.invoke(one_node(run), ordered=True)
    got = values(messages(1, 2, 3).pipe(stage, ops.retry(3)))
    assert got[-3:] == [1, 2, 3] and len(failures) == 2, got


def take(context: Context) -> None:
    async def run(content: Any) -> Any:
        return await (context.work.wait if content["value"] > 2 else context.work.answer)(content)

    stage = context.bridge.invoke(one_node(run))
    assert sorted(values(messages(*range(20)).pipe(stage, ops.take(3)))) == [0, 1, 2]
    assert context.bridge.registry.wait_idle(LIMIT)
    # The source may have been disposed of before it had emitted all of them.
    statistics = context.bridge.statistics()
    assert statistics.succeeded == 3, statistics
    assert statistics.cancelled == statistics.submitted - 3, statistics


def group_by(context: Context) -> None:
    def each(group: Any) -> Observable[Any]:
        stage = context.bridge.invoke(one_node(context.work.answer), ordered=True)
        return group.pipe(stage)  # type: ignore[no-any-return]

    got = values(
        messages(*range(60)).pipe(ops.group_by(lambda item: item["value"] % 3), ops.flat_map(each))
    )
    assert sorted(got) == list(range(60))
    for key in range(3):
        mine = [value for value in got if value % 3 == key]
        assert mine == sorted(mine)


def share(context: Context) -> None:
    source: Subject[Any] = Subject()
    shared = source.pipe(answering(context), ops.share())
    subscribers = [Subscriber(), Subscriber()]
    for subscriber in subscribers:
        subscriber.subscribe(shared)
    for value in range(10):
        source.on_next({"value": value})
    source.on_completed()
    results = [subscriber.wait_for_end().items for subscriber in subscribers]
    assert results[0] == results[1] and len(results[0]) == 10
    assert context.bridge.statistics().submitted == 10


def to_future(context: Context) -> None:
    future: Any = messages(1, 2, 3).pipe(
        context.bridge.invoke(one_node(context.work.answer), ordered=True), ops.to_future(Future)
    )
    assert value_of(future.result(LIMIT)) == 3


def concat(context: Context) -> None:
    stage = answering(context)
    got = values(reactivex.concat(messages(1, 2).pipe(stage), messages(3, 4).pipe(stage)))
    assert sorted(got[:2]) == [1, 2] and sorted(got[2:]) == [3, 4], got


def switch_latest(context: Context) -> None:
    outer: Subject[Any] = Subject()
    subscriber = Subscriber()
    subscriber.subscribe(outer.pipe(ops.switch_latest()))
    waiting = context.bridge.invoke(graph_of(context.work, "a waiting graph"))
    outer.on_next(messages(1).pipe(waiting))
    context.work.began.wait_for(1)
    outer.on_next(messages(2).pipe(answering(context)))
    outer.on_completed()
    got = subscriber.wait_for_end()
    assert [value_of(result) for result in got.items] == [2]
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.bridge.statistics().cancelled == 1


def merge(context: Context) -> None:
    stage = answering(context)
    streams = (messages(*range(i, 40, 4)).pipe(stage) for i in range(4))
    assert sorted(values(reactivex.merge(*streams))) == list(range(40))


def timeout(context: Context) -> None:
    stage = context.bridge.invoke(graph_of(context.work, "a waiting graph"))
    subscriber = Subscriber()
    subscriber.subscribe(messages(1).pipe(stage, ops.timeout(0.1)))
    assert subscriber.wait_for_end().ends == ["error Timeout"], subscriber.ends
    assert context.bridge.registry.wait_idle(LIMIT)


def run(context: Context) -> None:
    stage = context.bridge.invoke(one_node(context.work.answer), ordered=True)
    assert value_of(messages(1, 2).pipe(stage).run()) == 2


def second_subscription(context: Context) -> None:
    stream = messages(1, 2, 3).pipe(answering(context))
    assert sorted(values(stream)) == sorted(values(stream)) == [1, 2, 3]
    assert context.bridge.statistics().submitted == 6


def second_invoke(context: Context) -> None:
    source = messages(*range(30)).pipe(
        answering(context), ops.map(lambda result: result.content), answering(context)
    )
    assert sorted(values(source)) == list(range(30))


def invoke_inside_flat_map(context: Context) -> None:
    stage = answering(context)
    source = reactivex.of(0, 10).pipe(
        ops.flat_map(lambda first: messages(*range(first, first + 10)).pipe(stage))
    )
    assert sorted(values(source)) == list(range(20))


AROUND: dict[str, Callable[[Context], None]] = {
    "observe_on(ThreadPoolScheduler)": observe_on_pool,
    "observe_on(EventLoopScheduler)": observe_on_event_loop,
    "subscribe_on(ThreadPoolScheduler)": subscribe_on_pool,
    "retry": retry,
    "take": take,
    "group_by and flat_map": group_by,
    "share": share,
    "to_future": to_future,
    "concat": concat,
    "switch_latest": switch_latest,
    "merge": merge,
    "timeout": timeout,
    "run": run,
    "a second subscription": second_subscription,
    "a second invoke": second_invoke,
    "an invoke inside flat_map": invoke_inside_flat_map,
}


@then("{what} around invoke gives what it should")
def step_what_around_invoke_gives_what_it_should(context: Context, what: str) -> None:
    AROUND[what](context)


# -- in virtual time -------------------------------------------------------------------------------

BEGIN, STEP = 200.0, 10.0


def recorded(marbles: str) -> list[Any]:
    """What the marbles say, 10 virtual seconds to each character from 200 on."""
    error = ValueError("#")
    notifications = parse(marbles, timespan=STEP, time_shift=BEGIN, error=error)
    return [(time, str(notification)) for time, notification in notifications]


def told(time: float, notification: Any) -> tuple[float, str]:
    if notification.kind == "N":
        return time, f"OnNext({value_of(notification.value)})"
    if notification.kind == "E":
        return time, "OnError(#)"
    return time, "OnCompleted()"


def pipeline(context: Context, words: str, scheduler: TestScheduler) -> list[Any]:
    graph: Work = context.work
    invoke = context.bridge.invoke
    stages: dict[str, list[Any]] = {
        "invoke": [invoke(one_node(graph.answer))],
        "ordered invoke": [invoke(one_node(graph.answer), ordered=True)],
        "delay(20) and invoke": [
            ops.delay(20.0, scheduler=scheduler),
            invoke(one_node(graph.answer)),
        ],
        "debounce(30) and invoke": [
            ops.debounce(30.0, scheduler=scheduler),
            invoke(one_node(graph.answer)),
        ],
        "invoke and take(2)": [invoke(one_node(graph.answer)), ops.take(2)],
        "invoke of a waiting graph and timeout(30)": [
            invoke(one_node(graph.wait)),
            ops.timeout(30.0, scheduler=scheduler),
        ],
    }
    return stages[words]


@when('the hot source "{marbles}" goes through {words}, in virtual time')
def step_the_hot_source_marbles_goes_through_words_in_virtual_time(
    context: Context, marbles: str, words: str
) -> None:
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(
        [
            ReactiveTest.on_next(time, {"value": notification.value})
            if notification.kind == "N"
            else ReactiveTest.on_error(time, notification.exception)
            if notification.kind == "E"
            else ReactiveTest.on_completed(time)
            for time, notification in parse(
                marbles, timespan=STEP, time_shift=BEGIN, error=ValueError("#")
            )
        ]
    )
    observer = scheduler.create_observer()
    scheduler.advance_to(BEGIN)
    source.pipe(*pipeline(context, words, scheduler)).subscribe(observer, scheduler=scheduler)
    waits = "waiting" in words
    for time in range(201, 400):
        scheduler.advance_to(float(time))
        # Virtual time stands still until every run has ended and its result was emitted.
        if waits and context.bridge.statistics().in_flight:
            context.work.began.wait_for(1)
        elif not waits:
            assert context.bridge.registry.wait_idle(LIMIT)
    context.results = [told(message.time, message.value) for message in observer.messages]


@then('the results are "{marbles}" in the same time')
def step_the_results_are_marbles_in_the_same_time(context: Context, marbles: str) -> None:
    # The clock is looked at once a virtual second, so results come within the second.
    got = [(STEP * (time // STEP), text) for time, text in context.results]
    assert got == recorded(marbles), (got, recorded(marbles))
