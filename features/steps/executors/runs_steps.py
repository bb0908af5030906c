"""Bridges with executors, and what goes through them: with workers here, or of Ray."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import wait
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from reactivex import operators as ops

from rxlanggraph import StreamMessage
from support.concurrency.raising import check_error, error_of
from support.executors import graphs
from support.executors.in_process import InProcessExecutor
from support.executors.world import LIMIT, begin, made, open_bridge, send


@given('a bridge for the graph "{name}" with {workers:d} workers {where}')
def step_a_bridge_for_the_graph_with_workers(
    context: Context, name: str, workers: int, where: str
) -> None:
    executor = made(f"support.executors.graphs:{name}", workers, where)
    open_bridge(context, executor, getattr(graphs, name))


# -- results ---------------------------------------------------------------------------------------


@when("{count:d} messages with a number each go through the bridge")
def step_messages_with_a_number_each_go_through_the_bridge(context: Context, count: int) -> None:
    source = rx.from_iterable([StreamMessage({"n": number}) for number in range(count)])
    context.results = source.pipe(context.bridge.invoke(context.graph), ops.to_list()).run()
    assert len(context.results) == count


@then("each result is one more than its message")
def step_each_result_is_one_more_than_its_message(context: Context) -> None:
    for result in context.results:
        assert result.content["n"] == result.source.content["n"] + 1, result
    assert len(context.bridge.registry) == 0


@when("a message is sent")
def step_a_message_is_sent(context: Context) -> None:
    send_number(context, 1)


@when("a message with the number {number:d} is sent")
def step_a_message_with_the_number_is_sent(context: Context, number: int) -> None:
    send_number(context, number)


def send_number(context: Context, number: int) -> None:
    run = context.bridge.create_future_task(context.graph, {"n": number})
    context.error = error_of(lambda: run.result(LIMIT))


# -- meetings --------------------------------------------------------------------------------------


@when("{count:d} messages are sent, the first begins, and the second is cancelled")
def step_messages_are_sent_the_first_begins_and_the_second_is(context: Context, count: int) -> None:
    send(context, count)
    begin(context, 1)
    assert context.runs[1].cancel()


@when("{count:d} messages are sent, both begin, and the second is cancelled")
@when("{count:d} messages are sent, all begin, and the second is cancelled")
def step_messages_are_sent_all_begin_and_the_second_is_cancelled(
    context: Context, count: int
) -> None:
    send(context, count)
    begin(context, count)
    assert context.runs[1].cancel()
    context.chosen = context.runs[1], context.guests[1]


def wait_until_left(context: Context, run: Any) -> None:
    """Wait until the registry does not have ``run`` any more."""
    context.ended.gate(run).wait()
    assert run not in context.bridge.registry


@then("the second run has left the registry, while the first one still runs")
def step_the_second_run_has_left_the_registry_while_the_first(context: Context) -> None:
    wait_until_left(context, context.runs[1])
    assert context.runs[0].running()


@then("the second run is still in the registry while it cleans up, and then it is not")
@then("the run is still in the registry while it cleans up, and then it is not")
def step_the_second_run_is_still_in_the_registry_while_it(context: Context) -> None:
    run, guest = context.chosen
    assert guest.said() == "cancelled"
    assert run.done() and run in context.bridge.registry
    guest.tell("clean")
    wait_until_left(context, run)


@then("the first one ends with its result")
@then("the others end with their results")
def step_the_others_end_with_their_results(context: Context) -> None:
    for n, run in enumerate(context.runs):
        if not run.cancelled():
            context.guests[n].tell()
            assert run.result(LIMIT).content["n"] == n
    assert context.bridge.registry.wait_idle(LIMIT)


@when("{count:d} messages are sent and begin, and one worker is lost")
def step_messages_are_sent_and_begin_and_one_worker_is_lost(context: Context, count: int) -> None:
    send(context, count)
    begin(context, count)
    lose_a_worker(context)


def lose_a_worker(context: Context) -> None:
    worker = context.executor.workers[0]
    keys = sorted(worker.host._calls)
    context.lost = [key - 1 for key in keys]  # as the first call has the key 1
    context.bridge._engine.inbox.loop.call_soon_threadsafe(worker.lost.set)


@then("{count:d} of them end with WorkerLostError, and the others with their results")
def step_of_them_end_with_workerlosterror_and_the_others_with_their(
    context: Context, count: int
) -> None:
    assert len(context.lost) == count, context.lost
    for n, run in enumerate(context.runs):
        if n in context.lost:
            check_error(error_of(lambda run=run: run.result(LIMIT)), "WorkerLostError")
    for n, run in enumerate(context.runs):
        if n not in context.lost:
            context.guests[n].tell()
            assert run.result(LIMIT).content["n"] == n
    assert context.bridge.registry.wait_idle(LIMIT)


@then("{count:d} more messages are answered by {workers:d} workers")
def step_more_messages_are_answered_by_workers(context: Context, count: int, workers: int) -> None:
    # The new worker may be starting still: then the others have all of them.
    for _ in range(1000):
        send(context, count)
        begin(context, count)
        for guest in context.guests.values():
            guest.tell()
        pids = {run.result(LIMIT).content["pid"] for run in context.runs}
        if is_whole(context, pids, workers):
            return
    raise AssertionError(f"the lost worker was not replaced: {pids}")


def is_whole(context: Context, pids: set[int], workers: int) -> bool:
    if isinstance(context.executor, InProcessExecutor):  # of one pid
        return len(context.executor.workers) == workers + 1
    return len(pids) == workers


@then("all of them end with their results, after {count:d} have begun once more")
def step_all_of_them_end_with_their_results_after_count_have_begun(
    context: Context, count: int
) -> None:
    for guest in context.guests.values():
        if guest.n not in context.lost:
            guest.tell()
    again = context.meeting.wait_for(count)
    assert sorted(guest.n for guest in again) == sorted(context.lost)
    for guest in again:
        guest.tell()
    wait(context.runs, LIMIT)
    assert [run.result(0).content["n"] for run in context.runs] == list(range(len(context.runs)))
    assert context.bridge.registry.wait_idle(LIMIT)


# -- streams ---------------------------------------------------------------------------------------


@when("a run that has {count:d} chunks is streamed, and its reader waits after the first")
def step_a_run_that_has_chunks_is_streamed_and_its_reader(context: Context, count: int) -> None:
    context.count = count
    context.reader = context.bridge.astream(context.graph, {"n": count}, stream_mode="custom")

    async def first() -> Any:
        async with asyncio.timeout(LIMIT):
            return await anext(context.reader)

    context.chunks = [asyncio.run(first())]


@then("the reader then has all {count:d} in order, and the result")
def step_the_reader_then_has_all_in_order_and_the_result(context: Context, count: int) -> None:
    async def rest() -> list[StreamMessage]:
        async with asyncio.timeout(LIMIT):
            return [chunk async for chunk in context.reader]

    *chunks, result = context.chunks + asyncio.run(rest())
    assert [chunk.content["number"] for chunk in chunks] == list(range(count))
    assert [chunk.sequence for chunk in chunks] == list(range(count))
    assert result.content["n"] == count and result.sequence is None
    here = isinstance(context.executor, InProcessExecutor)
    assert {chunk.content["pid"] == os.getpid() for chunk in chunks} == {here}


@when("a stream is left after its run has begun")
def step_a_stream_is_left_after_its_run_has_begun(context: Context) -> None:
    message = StreamMessage({"n": 0, "port": context.meeting.port})
    reader = context.bridge.astream(context.graph, message)
    (guest,) = context.meeting.wait_for(1)
    (run,) = context.bridge.registry.tasks()

    async def leave() -> None:
        await reader.aclose()

    asyncio.run(leave())
    context.chosen = run, guest
