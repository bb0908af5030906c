from __future__ import annotations

import asyncio
import functools
from typing import Any

import reactivex
from behave import given, then, when
from behave.runner import Context
from reactivex import operators as ops
from reactivex.subject import Subject

from rxlanggraph import StreamMessage
from support.bridge.bridges import answer, expire, on_loop, send
from support.bridge.graphs import count_of, counter
from support.bridge.streams import Subscriber
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads


@given("a graph that adds 1 to a checkpointed counter, and waits until all have read it")
def step_a_graph_that_adds_1_to_a_checkpointed_counter_and_waits(context: Context) -> None:
    context.read, all_have_read = Log(), Gate()

    async def before_adding() -> None:
        context.read.add(1)
        if len(context.read) == 100:
            all_have_read.open()
        await all_have_read.wait_async()

    context.graph = counter(before_adding)


@given("a graph that adds 1 to a checkpointed counter")
def step_a_graph_that_adds_1_to_a_checkpointed_counter(context: Context) -> None:
    context.graph = counter()


@when('{count:d} plain "ainvoke" of it run at once on one thread')
def step_count_plain_ainvoke_of_it_run_at_once_on_one_thread(context: Context, count: int) -> None:
    config = {"configurable": {"thread_id": "t"}}

    async def main() -> None:
        runs = (context.graph.ainvoke({"value": i}, config) for i in range(count))
        await asyncio.gather(*runs)

    asyncio.run(main())


@then("the counter of that thread is {count:d}")
def step_the_counter_of_that_thread_is_count(context: Context, count: int) -> None:
    assert count_of(context.graph, "t") == count, count_of(context.graph, "t")


@when("{feeders:d} thread(s) send it {count:d} messages on one thread through {way}")
def step_feeders_thread_s_send_it_count_messages_on_one_thread(
    context: Context, feeders: int, count: int, way: str
) -> None:
    context.results = Log()
    shares = [list(range(i, count, feeders)) for i in range(feeders)]
    if way == "create_future_task":

        def feed(number: int) -> None:
            for value in shares[number]:
                message = StreamMessage({"value": value}, "t")
                future = context.bridge.create_future_task(context.graph, message)
                future.add_done_callback(lambda done: context.results.add(done.result()))

        in_threads(feeders, feed)
        return
    operator = {
        "invoke": context.bridge.invoke(context.graph),
        "RxPY's flat_map": ops.flat_map(
            functools.partial(context.bridge.create_future_task, context.graph)
        ),
    }[way]
    source: Subject[Any] = Subject()
    source.pipe(operator).subscribe(context.results.add, context.results.add)

    def emit(number: int) -> None:
        for value in shares[number]:
            source.on_next(StreamMessage({"value": value}, "t"))

    in_threads(feeders, emit)


@then("the counter of that thread is {count:d}, and the results are 1 to {same:d}, none twice")
def step_the_counter_of_that_thread_is_count_and_the_results_are_1(
    context: Context, count: int, same: int
) -> None:
    results = context.results.wait_for(count)
    assert count_of(context.graph, "t") == count, count_of(context.graph, "t")
    counted = [result.content["count"] for result in results]
    assert sorted(counted) == list(range(1, count + 1)), counted
    assert sorted(result.content["value"] for result in results) == list(range(count))


@when("a feeder of a stream stands still behind its hand-over until the next message is answered")
def step_a_feeder_of_a_stream_stands_still_behind_its_hand_over(context: Context) -> None:
    context.subscriber, handed_over = Subscriber(), Gate()
    source: Subject[Any] = Subject()
    hand_over = context.bridge._engine.hand_over

    def slow_for_the_first(run: Any) -> Any:
        result = hand_over(run)
        if run.message.content["value"] == 0:
            run.result(LIMIT)
            handed_over.open()
            context.subscriber.log.wait_for(1)
        return result

    context.bridge._engine.hand_over = slow_for_the_first
    operator = context.bridge.invoke(context.work.answer, thread_id="t")
    context.subscriber.subscribe(source.pipe(operator))

    def feed(number: int) -> None:
        if number == 1:
            handed_over.wait()
        source.on_next({"value": number})

    in_threads(2, feed)


@then("the subscriber gets both results in order of their messages")
def step_the_subscriber_gets_both_results_in_order_of_their(context: Context) -> None:
    results = context.subscriber.log.wait_for(2)
    assert [result.content["value"] for result in results] == [0, 1], results


@when("{count:d} messages for {threads:d} threads go through invoke, the thread chosen by {choice}")
def step_count_messages_for_threads_threads_go_through_invoke_the(
    context: Context, count: int, threads: int, choice: str
) -> None:
    def thread_of(item: dict[str, int]) -> str:
        return str(item["value"] % threads)

    items: list[Any] = [{"value": value} for value in range(count)]
    operator = context.bridge.invoke(context.graph, thread_id=thread_of)
    if choice == "the message":
        items = [StreamMessage(item, thread_of(item)) for item in items]
        operator = context.bridge.invoke(context.graph)
    results = Log()
    reactivex.from_iterable(items).pipe(operator).subscribe(results.add, results.add)
    for result in results.wait_for(count):
        assert result.raise_for_status().thread_id == thread_of(result.content), result


@then("the counter of each of the {threads:d} threads is {count:d}")
def step_the_counter_of_each_of_the_threads_threads_is_count(
    context: Context, threads: int, count: int
) -> None:
    counts = [count_of(context.graph, str(number)) for number in range(threads)]
    assert counts == [count] * threads, counts


@when('{count:d} messages on the thread "{name}" go to {kind:Kind}')
def step_count_messages_on_the_thread_name_go_to_kind(
    context: Context, count: int, name: str, kind: str
) -> None:
    send(context, kind, range(count), thread_id=name)


@when("{count:d} messages without a thread go to {kind:Kind}")
def step_count_messages_without_a_thread_go_to_kind(
    context: Context, count: int, kind: str
) -> None:
    context.crowd = list(context.futures)
    context.futures.clear()
    send(context, kind, range(1000, 1000 + count))


@then("they ran one at a time, in order")
def step_they_ran_one_at_a_time_in_order(context: Context) -> None:
    for future in context.futures:
        future.result(LIMIT)
    assert context.work.peak == 1
    assert list(context.work.began) == list(range(len(context.futures)))


@then("those without a thread are answered while the crowded one stands still")
def step_those_without_a_thread_are_answered_while_the_crowded_one(context: Context) -> None:
    for future in context.futures:
        future.result(LIMIT)
    assert [value for value in context.work.began if value < 1000] == [0]
    assert not any(future.done() for future in context.crowd)


@when('a message on the thread "{name}" goes to {kind:Kind}, which {how}')
def step_a_message_on_the_thread_name_goes_to_kind_which_how(
    context: Context, name: str, kind: str, how: str
) -> None:
    options = {"timeout": LIMIT} if how == "times out" else {}
    send(context, kind, [0], thread_id=name, **options)
    context.work.began.wait_for(1)
    if how == "is cancelled":
        assert context.futures[0].cancel()
    elif how == "times out":
        expire(context.futures[0])
        context.futures[0].exception(LIMIT)


@when('another one on the thread "{name}" goes to {kind:Kind}')
def step_another_one_on_the_thread_name_goes_to_kind(
    context: Context, name: str, kind: str
) -> None:
    send(context, kind, [1], thread_id=name)
    on_loop(context)


@then("that one is answered, and began after the first had ended")
def step_that_one_is_answered_and_began_after_the_first_had_ended(context: Context) -> None:
    if len(context.work.ended) == 0:
        assert list(context.work.began) == [0]
    context.work.gate.open()
    assert answer(context).content == {"value": 1}
    assert list(context.work.ended) == [0, 1] and context.work.peak == 1


@when("the second to the fourth of them are cancelled, and the gate opens")
def step_the_second_to_the_fourth_of_them_are_cancelled_and_the(context: Context) -> None:
    context.work.began.wait_for(1)
    assert all(future.cancel() for future in context.futures[1:4])
    context.work.gate.open()


@then("only the first and the fifth began")
def step_only_the_first_and_the_fifth_began(context: Context) -> None:
    assert answer(context).content == {"value": 4}
    assert context.bridge.registry.wait_idle(LIMIT)
    assert list(context.work.began) == [0, 4]
