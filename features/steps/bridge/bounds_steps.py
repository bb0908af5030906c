"""What a run is while it lasts: its slot, its worker threads, its context."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, wait
from typing import Any

from behave import then, when
from behave.runner import Context
from reactivex.subject import Subject

from rxlanggraph import StreamMessage
from support.bridge import work
from support.bridge.bridges import answer, expire, on_loop, send
from support.bridge.graphs import State, one_node
from support.bridge.streams import Subscriber
from support.concurrency.waiting import LIMIT, Gate, Log

EXCEPTIONS: dict[str, type[BaseException]] = {
    error.__name__: error
    for error in (
        asyncio.CancelledError,
        GeneratorExit,
        KeyboardInterrupt,
        StopAsyncIteration,
        StopIteration,
        SystemExit,
    )
}


@when("a run of {kind} raises {exception}")
def step_a_run_of_kind_raises_exception(context: Context, kind: str, exception: str) -> None:
    def in_thread(_: object) -> None:
        raise EXCEPTIONS[exception]

    async def on_loop(_: object) -> None:
        raise EXCEPTIONS[exception]

    function = {"an async function": on_loop, "a sync function": in_thread}[kind]
    context.futures.append(context.bridge.create_future_task(function, None))


@then("the future is done within {seconds:g} s")
def step_the_future_is_done_within_seconds_s(context: Context, seconds: float) -> None:
    assert not wait(context.futures, seconds).not_done, context.futures


@then("the bridge answers the next message")
def step_the_bridge_answers_the_next_message(context: Context) -> None:
    future = context.bridge.create_future_task(work.answer, "next")
    assert work.answer_of(future)[0] == "next"


# -- slots -----------------------------------------------------------------------------------------


@when("{count:d} messages go to {waiting:Kind}, and {more:d} to {kind:Kind}")
def step_count_messages_go_to_waiting_and_more_to_kind(
    context: Context, count: int, waiting: str, more: int, kind: str
) -> None:
    send(context, waiting, range(count))
    send(context, kind, range(count, count + more))


@then("no more than {bound:d} are ever on, and all end once the first {bound:d} may")
def step_no_more_than_bound_are_ever_on_and_all_end_once_the_first(
    context: Context, bound: int
) -> None:
    work = context.work
    assert sorted(work.began.wait_for(bound)) == list(range(bound))
    assert len(context.bridge.registry) == len(context.futures)
    work.gate.open()
    work.ended.wait_for(len(context.futures))
    assert work.peak == bound, work.peak
    for future in context.futures:
        future.result(LIMIT)


@when("{count:d} messages that are answered in the first step wait behind a run, and that ends")
def step_messages_answered_in_the_first_step_wait(context: Context, count: int) -> None:
    send(context, "a waiting async function", [0])
    loop, turn = context.futures[0].get_loop(), 0
    context.answered_in = Log()

    async def answer_at_once(content: Any) -> Any:
        context.answered_in.add(turn)
        return content

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        if not all(future.done() for future in context.futures):
            loop.call_soon(count_turns)

    for number in range(count):
        context.futures.append(context.bridge.create_future_task(answer_at_once, number))
    # Two rounds of the loop: all of them have been looked at.
    on_loop(context)
    on_loop(context)
    loop.call_soon_threadsafe(count_turns)
    context.work.gate.open()


@then("they were answered in several turns of the loop")
def step_answered_in_several_turns(context: Context) -> None:
    turns = set(context.answered_in)
    assert len(turns) > 1, turns


@when("a message goes to {kind:Kind} and is ended by {end} while it runs")
def step_a_message_goes_to_kind_and_is_ended_by_end_while_it_runs(
    context: Context, kind: str, end: str
) -> None:
    send(context, kind, [0], **({"timeout": LIMIT} if end == "timeout" else {}))
    context.work.began.wait_for(1)
    if end == "cancelling":
        assert context.futures[0].cancel()
    else:
        expire(context.futures[0])


@then("its future is done, and the registry still has it")
def step_its_future_is_done_and_the_registry_still_has_it(context: Context) -> None:
    (future,) = context.futures
    try:
        error: BaseException | None = future.exception(LIMIT)
    except CancelledError as cancelled:
        error = cancelled
    assert error is not None and future.done()
    assert len(context.work.ended) == 0
    assert future in context.bridge.registry


@then("that one has not begun while the gate is shut, and answers once it is open")
def step_that_one_has_not_begun_while_the_gate_is_shut_and_answers(context: Context) -> None:
    # Two rounds of the loop: the message has been looked at, and a free slot would be taken.
    on_loop(context)
    on_loop(context)
    assert list(context.work.began) == [0]
    context.work.gate.open()
    answer(context)
    # The first had ended before the second began.
    assert list(context.work.ended) == [0, 0] and context.work.peak == 1


@when("a run submits two more, and ends {least:d} to {most:d} turns of the loop later")
def step_a_run_submits_two_more_and_ends_least_to_most_turns_of_the(
    context: Context, least: int, most: int
) -> None:
    def began_in_order(turns: int) -> list[str]:
        log = Log()

        async def begin(content: str) -> None:
            log.add(content)

        async def first(_: object) -> None:
            for each in ("second", "third"):
                context.bridge.create_future_task(begin, each)
            for _ in range(turns):
                await asyncio.sleep(0)

        context.bridge.create_future_task(first, None)
        began = log.wait_for(2)
        assert context.bridge.registry.wait_idle(LIMIT)
        return began

    context.began = {turns: began_in_order(turns) for turns in range(least, most + 1)}


@then("the first of the two has always begun before the second")
def step_the_first_of_the_two_has_always_begun_before_the_second(context: Context) -> None:
    others = {turns: log for turns, log in context.began.items() if log != ["second", "third"]}
    assert len(context.began) == 10 and not others, others


@then("{count:d} runs of {kind} meet at a barrier for {same:d}")
def step_count_runs_of_kind_meet_at_a_barrier_for_same(
    context: Context, count: int, kind: str, same: int
) -> None:
    barrier = threading.Barrier(count)

    def meet(content: Any) -> Any:
        barrier.wait(LIMIT)
        return content

    graph = one_node(meet) if kind == "a graph with a sync node" else meet
    futures = [context.bridge.create_future_task(graph, {"value": i}) for i in range(count)]
    assert [future.result(LIMIT).content["value"] for future in futures] == list(range(count))


@then('{count:d} plain "ainvoke" of a graph with a sync node break a barrier for {same:d}')
def step_count_plain_ainvoke_of_a_graph_with_a_sync_node_break_a(
    context: Context, count: int, same: int
) -> None:
    # The default executor never has more than 32 threads, however many cores there are.
    barrier = threading.Barrier(count)

    def meet(content: Any) -> Any:
        barrier.wait(0.2)
        return content

    async def main() -> list[Any]:
        graph = one_node(meet)
        runs = (graph.ainvoke({"value": i}) for i in range(count))
        return await asyncio.gather(*runs, return_exceptions=True)

    results = asyncio.run(main())
    assert all(isinstance(result, threading.BrokenBarrierError) for result in results), results


@when("a second message waits behind it and is cancelled")
def step_a_second_message_waits_behind_it_and_is_cancelled(context: Context) -> None:
    context.work.began.wait_for(1)
    send(context, "an async function", [1])
    assert context.futures[1].cancel()


@when(
    "one on a thread waits for its slot, with another one of that thread behind it, and is "
    "cancelled"
)
def step_one_on_a_thread_waits_for_its_slot_and_is_cancelled(context: Context) -> None:
    context.work.began.wait_for(1)
    send(context, "an async function", [1, 2], thread_id="t")
    # Two rounds of the loop: both have been looked at.
    on_loop(context)
    on_loop(context)
    assert context.futures[1].cancel()


@then("the one behind it is answered once the gate opens")
def step_the_one_behind_it_is_answered(context: Context) -> None:
    context.work.gate.open()
    assert answer(context).content == {"value": 2}
    assert list(context.work.began) == [0, 2], list(context.work.began)


@then("the second never begins, and leaves the registry once the loop has seen it")
def step_the_second_never_begins_and_leaves_the_registry_once_the(context: Context) -> None:
    on_loop(context)
    assert context.futures[1] not in context.bridge.registry
    context.work.gate.open()
    assert context.bridge.registry.wait_idle(LIMIT)
    assert list(context.work.began) == [0]


@when(
    "in a stream with max_concurrency=1 a message waits behind a run, and another one of its "
    "thread behind it"
)
def step_in_a_stream_with_max_concurrency_1_a_message_waits_behind(context: Context) -> None:
    context.source, context.subscriber = Subject(), Subscriber()
    stage = context.bridge.invoke(context.work.wait, max_concurrency=1, errors="emit")
    context.subscriber.subscribe(context.source.pipe(stage))
    for value, thread_id in enumerate(["on", "waiting", "waiting"]):
        context.source.on_next(StreamMessage({"value": value}, thread_id))
    on_loop(context)
    assert list(context.work.began) == [0]


@when("that message is cancelled, one on another thread follows, and the gate opens")
def step_that_message_is_cancelled_one_on_another_thread_follows(context: Context) -> None:
    _, waiting, _ = context.bridge.registry.tasks()
    assert waiting.cancel()
    on_loop(context)
    context.source.on_next(StreamMessage({"value": 3}, "another"))
    on_loop(context)
    context.work.gate.open()
    context.source.on_completed()


@then("the stream has completed, and never had more than 1 run on")
def step_the_stream_has_completed_and_never_had_more_than_1_run_on(context: Context) -> None:
    assert context.subscriber.wait_for_end().ends == ["completed"], context.subscriber.ends
    assert list(context.work.began) == [0, 3, 2] and context.work.peak == 1, context.work.peak


@when("its future is discarded from the registry, and the gate opens")
def step_its_future_is_discarded(context: Context) -> None:
    context.work.began.wait_for(1)
    context.bridge.registry.discard(context.futures[0])
    context.work.gate.open()


# -- attempts --------------------------------------------------------------------------------------


@when("a node blocks a thread past its timeout and is tried again")
def step_a_node_blocks_a_thread_past_its_timeout_and_is_tried_again(context: Context) -> None:
    context.log, expired = Log(), Gate()

    def block(attempt: int) -> None:
        context.log.add(f"began {attempt}")
        if attempt == 1:
            expired.wait()
        context.log.add(f"ended {attempt}")

    async def node(_: State) -> State:
        attempt = 2 if context.log else 1
        try:
            await asyncio.to_thread(block, attempt)
        except asyncio.CancelledError:
            expired.open()
            raise
        return {"value": attempt}

    context.futures.append(
        context.bridge.create_future_task(one_node(node), {"value": 0}, timeout=LIMIT, retry=1)
    )
    context.log.wait_for(1)
    expire(context.futures[-1])


@then("the second attempt begins after the first has ended, and its result arrives")
def step_the_second_attempt_begins_after_the_first_has_ended_and(context: Context) -> None:
    assert answer(context).content["value"] == 2
    assert list(context.log) == ["began 1", "ended 1", "began 2", "ended 2"], list(context.log)


@when("that run is cancelled")
def step_that_run_is_cancelled(context: Context) -> None:
    context.work.began.wait_for(1)
    assert context.futures[-1].cancel()


@then("the registry is idle, and it began 1 time")
def step_the_registry_is_idle_and_it_began_1_time(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    assert len(context.work.began) == 1
