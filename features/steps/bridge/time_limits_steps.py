"""Steps for the time limits of runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import reactivex as rx
from behave import then, when
from behave.runner import Context
from langgraph.errors import NodeTimeoutError
from langgraph.graph import END, START, StateGraph
from langgraph.types import TimeoutPolicy

from rxlanggraph import RunTimeoutError, StreamMessage, TimeLimits
from rxlanggraph.testing import VirtualBridge
from support.bridge.bridges import arguments, on_loop, send
from support.bridge.graphs import State, graph_of, one_node
from support.bridge.streams import Subscriber
from support.concurrency.waiting import LIMIT, Gate, Log, thread


def _last(context: Context) -> Any:
    """The last result of what was sent: of a future, or of a stream."""
    if context.futures:
        return context.futures[-1].result(LIMIT)
    context.subscriber.log.wait_for(1)
    return context.subscriber.wait_for_end().items[-1]


@when("a run blocks its thread, and a message with {options} waits behind it")
def step_a_run_blocks_its_thread_and_a_message_waits(context: Context, options: str) -> None:
    send(context, "a blocking sync function", [0], thread_id="t")
    context.work.began.wait_for(1)
    chosen = arguments(options)
    send(context, "an async function", [1], thread_id="t", errors="emit", **chosen)
    if "deadline" in chosen:
        context.futures[-1].result(LIMIT)
    else:
        for _ in range(100):
            on_loop(context)


@then("the message is answered, while the run still blocks")
def step_the_message_is_answered_while_the_run_still_blocks(context: Context) -> None:
    assert not context.futures[0].done()
    assert context.futures[1].done()


@then("the last message is answered")
def step_the_last_message_is_answered(context: Context) -> None:
    result = _last(context)
    assert result.status == "ok", result


@then('it has timed out by "{limit}", with the words "{words}"')
def step_it_has_timed_out_by_with_the_words(context: Context, limit: str, words: str) -> None:
    result = _last(context)
    assert result.status == "timed_out", result
    assert isinstance(result.error, RunTimeoutError), result
    assert result.error.limit == limit, result.error.limit
    assert words in str(result.error), result.error


@when("{kind:Kind} is sent to by {entry}, with {options}")
def step_is_sent_to_by_with(context: Context, kind: str, entry: str, options: str) -> None:
    chosen = arguments(options)
    if entry == "create_future_task":
        send(context, kind, [0], **{"errors": "emit", **chosen})
        return
    graph = graph_of(context.work, kind)
    context.subscriber = Subscriber()
    context.subscriber.subscribe(
        rx.just({"value": 0}).pipe(getattr(context.bridge, entry)(graph, **chosen))
    )


@then("nothing of it is left when everything may end")
def step_nothing_of_it_is_left_when_everything_may_end(context: Context) -> None:
    context.work.release()
    assert context.bridge.registry.wait_idle(LIMIT)
    assert not context.bridge._engine._dispatcher._scheduler._lanes


@when("a run has all there is, and a message with {options} waits for {what}")
def step_a_run_has_all_there_is_and_a_message_waits(
    context: Context, options: str, what: str
) -> None:
    chosen = arguments(options)
    send(context, "a blocking sync function", [0], thread_id="t")
    context.work.began.wait_for(1)
    if what == "room":
        send(context, "an async function", [1])
    thread_id = "t" if what == "its thread" else None
    send(context, "an async function", [2], thread_id=thread_id, errors="emit", **chosen)


@when(
    'a message on "{thread_id}" waits too long for the one place of a subscription, which another '
    "one has"
)
def step_a_message_waits_too_long_for_the_one_place_of_a_subscription(
    context: Context, thread_id: str
) -> None:
    messages = [
        StreamMessage({"value": number}, thread_id=it) for number, it in enumerate(["s", thread_id])
    ]
    stage = context.bridge.invoke(
        context.work.wait, max_concurrency=1, timeout=TimeLimits(start=0.5), errors="emit"
    )
    context.subscriber = Subscriber()
    context.subscriber.subscribe(rx.from_iterable(messages).pipe(stage))
    context.bridge.run(asyncio.sleep(1))


@then('the next message on "{thread_id}" is answered meanwhile')
def step_the_next_message_is_answered_meanwhile(context: Context, thread_id: str) -> None:
    assert [item.status for item in context.subscriber.items] == ["timed_out"]
    send(context, "an async function", [2], thread_id=thread_id)
    assert _last(context).status == "ok"
    context.work.release()


@when("the loop is blocked for longer than a message with {options} may wait")
def step_the_loop_is_blocked_for_longer_than_a_message_may_wait(
    context: Context, options: str
) -> None:
    with _blocked_loop(context):
        send(context, "an async function", [2], errors="emit", **arguments(options))


@when("a run blocks the loop for longer than a message with {options} may wait")
def step_a_run_blocks_the_loop_for_longer_than_a_message_may_wait(
    context: Context, options: str
) -> None:
    begun, waiting = Gate(), Gate()
    context.add_cleanup(waiting.open)

    async def block(_: object) -> None:
        begun.open()
        await waiting.wait_async()
        time.sleep(0.3)  # noqa: ASYNC251 - it is to block the loop

    first = context.bridge.create_future_task(block, 0)
    begun.wait()
    send(context, "an async function", [2], errors="emit", **arguments(options))
    on_loop(context)  # it was admitted in time
    waiting.open()
    first.result(LIMIT)


@when("a waiting run has the thread, and a message that would interrupt it is too late")
def step_a_waiting_run_has_the_thread_and_a_message_is_too_late(context: Context) -> None:
    send(context, "a waiting graph", [0], thread_id="t")
    context.work.began.wait_for(1)
    with _blocked_loop(context):
        send(
            context,
            "an async function",
            [2],
            thread_id="t",
            multitask_strategy="interrupt",
            timeout=TimeLimits(start=0.05),
            errors="emit",
        )


@then("the run that was there is answered")
def step_the_run_that_was_there_is_answered(context: Context) -> None:
    context.work.release()
    assert context.futures[0].result(LIMIT).status == "ok"


@contextmanager
def _blocked_loop(context: Context) -> Iterator[None]:
    """Block the loop in the block, and then for longer than the limits of these scenarios."""
    blocking, go_on = Gate(), Gate()

    def block() -> None:
        blocking.open()
        go_on.wait()

    send(context, "an async function", [0])
    context.futures.pop().result(LIMIT)  # the loop runs
    context.bridge._engine.host.loop.call_soon_threadsafe(block)
    blocking.wait()
    yield
    time.sleep(0.1)
    go_on.open()


@when("{count:d} runs of 1.5 s go through invoke in order, one at a time, with {options}")
def step_count_runs_go_through_invoke_in_order_one_at_a_time(
    context: Context, count: int, options: str
) -> None:
    async def run(number: int) -> float:
        await asyncio.sleep(1.5)
        return number

    context.subscriber = Subscriber()
    context.subscriber.subscribe(
        rx.from_iterable(range(count)).pipe(
            context.bridge.invoke(
                run, ordered=True, max_concurrency=1, errors="emit", **arguments(options)
            )
        )
    )
    context.bridge.run(asyncio.sleep(60))


@then("the first is answered, and no run has begun that waited for longer than 0.5 s")
def step_the_first_is_answered_and_no_run_has_begun(context: Context) -> None:
    results = context.subscriber.wait_for_end().items
    found = [result.status for result in results]
    assert found == ["ok", *["timed_out"] * (len(results) - 1)], found


@when("a run has all there is, and a message with {options} awaits room on {which} loop")
def step_a_run_has_all_there_is_and_a_message_awaits_room(
    context: Context, options: str, which: str
) -> None:
    send(context, "a blocking sync function", [0])
    context.work.began.wait_for(1)
    send(context, "an async function", [1])
    graph, chosen = graph_of(context.work, "an async function"), arguments(options)

    async def submit() -> None:
        context.futures.append(
            await context.bridge.submit(graph, {"value": 2}, errors="emit", **chosen)
        )

    if which == "another":
        thread(lambda: asyncio.run(submit())).result(LIMIT)
    else:
        context.lent.run(submit())


@then("it is not begun when everything may end")
def step_it_is_not_begun_when_everything_may_end(context: Context) -> None:
    context.work.release()
    assert context.bridge.registry.wait_idle(LIMIT)
    assert 2 not in list(context.work.began)


@when("{count:d} messages are answered with {options}")
def step_messages_are_answered_with(context: Context, count: int, options: str) -> None:
    send(context, "an async function", range(count), **arguments(options))
    assert context.bridge.registry.wait_idle(LIMIT)
    on_loop(context)


@then("no timer is left on the loop")
def step_no_timer_is_left_on_the_loop(context: Context) -> None:
    timers = context.bridge._engine.host.loop._scheduled
    assert [each for each in timers if not each.cancelled()] == []


@then("the bridge has room for another one")
def step_the_bridge_has_room_for_another_one(context: Context) -> None:
    async def send_there() -> StreamMessage:
        # Without room, this is refused on the loop's thread.
        return await context.bridge.create_future_task(context.work.answer, {"value": 3})

    loop = context.bridge._engine.host.loop
    assert asyncio.run_coroutine_threadsafe(send_there(), loop).result(LIMIT).status == "ok"


@then("all {count:d} messages were counted, this one as failed")
def step_all_count_messages_were_counted(context: Context, count: int) -> None:
    statistics = context.bridge.statistics()
    assert (statistics.submitted, statistics.failed) == (count, 1), statistics
    assert statistics.dropped == 0, statistics


@when("a run with {options} runs for longer than that")
def step_a_run_with_runs_for_longer_than_that(context: Context, options: str) -> None:
    send(context, "a waiting graph", [0], errors="emit", **arguments(options))
    context.bridge.run(asyncio.sleep(3))
    context.work.release()


@then("it is answered")
def step_it_is_answered(context: Context) -> None:
    assert _last(context).status == "ok"


@when("a waiting graph is retried, with {options}")
def step_a_waiting_graph_is_retried_with(context: Context, options: str) -> None:
    send(context, "a waiting graph", [0], errors="emit", retry=1000, **arguments(options))


@when(
    "in virtual time an attempt with {options}, which may be retried, cleans up for {seconds:g} s"
)
def step_in_virtual_time_an_attempt_cleans_up(
    context: Context, options: str, seconds: float
) -> None:
    cleanup = context.cleanup = Log()

    async def clean_up_slowly(content: Any) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                cleanup.add("disturbed")
                raise
            cleanup.add("ended")

    chosen: dict[str, Any] = {"errors": "emit", "retry": 1, **arguments(options)}
    with VirtualBridge() as bridge:
        context.futures = [bridge.create_future_task(clean_up_slowly, 0, **chosen)]
        bridge.run(asyncio.sleep(10))


@then("its cleanup went on to its end, undisturbed")
def step_its_cleanup_went_on_to_its_end(context: Context) -> None:
    assert list(context.cleanup) == ["ended"], list(context.cleanup)


@then("it was tried more than once")
def step_it_was_tried_more_than_once(context: Context) -> None:
    assert len(context.work.began) > 1


@when("a stream has its first chunk in the second attempt, with a limit of {limit:g} s for it")
def step_a_stream_has_its_first_chunk_in_the_second_attempt(context: Context, limit: float) -> None:
    tried = context.tried = Log()

    async def answer(content: State) -> State:
        tried.add(content)
        if len(tried) == 1:
            await context.work.gate.wait_async()
        return content

    apply = context.bridge.stream(
        one_node(answer), timeout=TimeLimits(first_chunk=limit), retry=1, errors="emit"
    )
    context.subscriber = Subscriber()
    context.subscriber.subscribe(rx.just({"value": 0}).pipe(apply))
    context.bridge.run(asyncio.sleep(60))


@then("it is answered by the second attempt")
def step_it_is_answered_by_the_second_attempt(context: Context) -> None:
    assert _last(context).status == "ok"
    assert len(context.tried) == 2


@when("a consumer takes longer for each chunk than {options} allows")
def step_a_consumer_takes_longer_for_each_chunk(context: Context, options: str) -> None:
    async def node(content: State) -> State:
        return content

    builder = StateGraph(State)
    names = [f"node {number}" for number in range(20)]  # more than fit into the window
    for before, name in zip((START, *names), names, strict=False):
        builder.add_node(name, node).add_edge(before, name)
    graph = builder.add_edge(names[-1], END).compile()

    async def read() -> list[Any]:
        chunks = context.bridge.astream(graph, {"value": 0}, errors="emit", **arguments(options))
        read = []
        async for chunk in chunks:
            if len(read) < 3:
                await asyncio.sleep(3)
            read.append(chunk)
        return read

    with VirtualBridge(context.bridge.scheduler) as another:
        context.read = another.run(read())


@then("all chunks and the result arrive")
def step_all_chunks_and_the_result_arrive(context: Context) -> None:
    *chunks, result = context.read
    assert [chunk.sequence for chunk in chunks] == list(range(20)), chunks
    assert result.status == "ok", result


@when("the first of 3 messages is stuck in an ordered stream, with {options}")
def step_the_first_of_3_messages_is_stuck_in_an_ordered_stream(
    context: Context, options: str
) -> None:
    async def stuck(content: Any) -> Any:
        if content["value"] == 0:
            await context.work.gate.wait_async()
        return content

    apply = context.bridge.invoke(stuck, ordered=True, errors="emit", **arguments(options))
    context.subscriber = Subscriber()
    context.subscriber.subscribe(rx.of(*({"value": each} for each in range(3))).pipe(apply))
    context.bridge.run(asyncio.sleep(60))


@when("a node with a TimeoutPolicy of {seconds:g} s waits in a run without limits")
def step_a_node_with_a_timeoutpolicy_waits(context: Context, seconds: float) -> None:
    async def wait(content: State) -> State:
        await Gate().wait_async()
        return content

    builder = StateGraph(State)
    builder.add_node("node", wait, timeout=TimeoutPolicy(run_timeout=seconds))
    graph = builder.add_edge(START, "node").add_edge("node", END).compile()
    run = context.bridge.create_future_task(graph, {"value": 0}, errors="emit")
    context.futures.append(run)


@then("its run has failed with a NodeTimeoutError, and was not cancelled")
def step_its_run_has_failed_with_a_nodetimeouterror(context: Context) -> None:
    result = _last(context)
    assert result.status == "error", result
    assert isinstance(result.error, NodeTimeoutError), result


@when("a node waits for a run that exceeds its deadline of {seconds:g} s")
def step_a_node_waits_for_a_run_that_exceeds_its_deadline(context: Context, seconds: float) -> None:
    bridge, wait = context.bridge, context.work.wait

    async def node(content: State) -> State:
        await bridge.create_future_task(wait, content, deadline=seconds)
        return content

    run = bridge.create_future_task(one_node(node), {"value": 0}, errors="emit", deadline=LIMIT)
    context.futures.append(run)


@then("the node's run has failed with the child's error")
def step_the_nodes_run_has_failed_with_the_childs_error(context: Context) -> None:
    result = _last(context)
    assert result.status == "error", result
    assert isinstance(result.error, RunTimeoutError), result
    assert result.error.limit == "deadline", result
