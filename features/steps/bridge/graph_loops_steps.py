from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import Any

import reactivex
from behave import given, then, when
from behave.runner import Context
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.store.base.batch import AsyncBatchedBaseStore

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge import graph_loops, loops
from rxlanggraph.concurrency import interpreter
from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.hooks import Hooks, NodeEnded
from rxlanggraph.limits import Limits, ModelLimit, Usage
from rxlanggraph.state import open_state, open_state_threadsafe
from support.bridge import loop_graphs
from support.bridge.bridges import expire
from support.bridge.loop_graphs import Cleaning, State, one_node
from support.concurrency.kept import uncollected
from support.concurrency.patching import patch
from support.concurrency.raising import check_error, error_of
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads
from support.executors import graphs
from support.executors.in_process import InProcessExecutor

WAY_OF_ONE = ContextVar("way", default=-1)


def open_loops(context: Context, loops: int, **options: Any) -> RxPyLangGraphBridge:
    patch(context, interpreter, "gil_enabled", lambda: False)
    patch(context, interpreter, "can_look_into", lambda _: True)  # as there is one, or 3.14
    bridge = RxPyLangGraphBridge(loops=loops, **options)
    context.add_cleanup(bridge.close, 0)
    return bridge


@given("a bridge with {loops:d} loops")
def step_a_bridge_with_loops(context: Context, loops: int) -> None:
    context.bridge = open_loops(context, loops)


@given("another bridge with {loops:d} loops")
def step_another_bridge_with_loops(context: Context, loops: int) -> None:
    context.other = open_loops(context, loops)


@given("a bridge with {loops:d} loops, {runs:d} runs and {threads:d} threads at once")
def step_a_bridge_with_loops_runs_and_threads_at_once(
    context: Context, loops: int, runs: int, threads: int
) -> None:
    context.bridge = open_loops(context, loops, max_concurrency=runs, max_threads=threads)


# -- which Python ----------------------------------------------------------------------------------


@when("a bridge with {loops:d} loops is made, on this Python as it is")
def step_a_bridge_with_loops_is_made_on_this_python_as_it_is(context: Context, loops: int) -> None:
    def make() -> None:
        context.bridge = RxPyLangGraphBridge(loops=loops)
        context.add_cleanup(context.bridge.close, 0)

    context.error = error_of(make)


@then('it has {loops:d} loops without the GIL; otherwise InvalidArgumentError says "{words}"')
def step_it_has_loops_without_the_gil_otherwise(context: Context, loops: int, words: str) -> None:
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        check_error(context.error, "InvalidArgumentError", words)
        return
    threads: set[str] = set()
    graph = loop_graphs.chain(threads)
    answers(context.bridge, graph, [{"n": n} for n in range(20)])
    assert len(threads) == loops, threads


@when("a bridge with {loops:d} loops and an executor is made")
def step_a_bridge_with_loops_and_an_executor_is_made(context: Context, loops: int) -> None:
    executor = InProcessExecutor(graphs.plain)
    context.error = error_of(lambda: open_loops(context, loops, executor=executor))


# -- results and chunks ----------------------------------------------------------------------------


def answers(bridge: RxPyLangGraphBridge, graph: Any, contents: list[Any]) -> list[Any]:
    runs = [bridge.create_future_task(graph, content) for content in contents]
    return [run.result(LIMIT).content for run in runs]


@when("{count:d} messages go through {graph}, with one loop and with these")
def step_messages_go_through_graph_with_one_loop_and_with_these(
    context: Context, count: int, graph: str
) -> None:
    contents = [{"n": n} for n in range(count)]
    with RxPyLangGraphBridge() as one:
        context.expected = answers(one, loop_graphs.GRAPHS[graph](set()), contents)
    context.threads = set()
    context.results = answers(context.bridge, loop_graphs.GRAPHS[graph](context.threads), contents)


@then("the results are the same, and {count:d} threads have called it")
def step_the_results_are_the_same_and_threads_have_called_it(context: Context, count: int) -> None:
    assert context.results == context.expected
    assert len(context.threads) == count, context.threads
    assert all("-graphs-" in name for name in context.threads), context.threads


@when("a message is sent to a sync function")
def step_a_message_is_sent_to_a_sync_function(context: Context) -> None:
    def name(_: object) -> str:
        return threading.current_thread().name

    (context.result,) = answers(context.bridge, name, [1])


@then("it was called in a worker thread of the bridge")
def step_it_was_called_in_a_worker_thread_of_the_bridge(context: Context) -> None:
    assert context.result == f"{context.bridge.name}-worker"


async def chunks_of(
    bridge: RxPyLangGraphBridge, graph: Any, content: Any, **options: Any
) -> list[Any]:
    async with bridge.astream(graph, content, **options) as stream:
        return [chunk async for chunk in stream]


def shown(chunk: StreamMessage) -> Any:
    """What is the same in each run: without the ids that LangGraph makes."""
    content = chunk.content
    if chunk.mode == "messages":
        content = content[0].content
    path = tuple(part.partition(":")[0] for part in chunk.namespace or ())
    return chunk.mode, path, content, chunk.status


@when("a graph with a subgraph is streamed in the modes {modes}, with one loop and with these")
def step_a_graph_with_a_subgraph_is_streamed_in_the_modes(context: Context, modes: str) -> None:
    def streamed(bridge: RxPyLangGraphBridge) -> list[Any]:
        graph = loop_graphs.talking_in_a_subgraph(
            GenericFakeChatModel(messages=iter([AIMessage("one two three four")]))
        )
        options = {"stream_mode": modes.split(", "), "subgraphs": True}
        chunks = asyncio.run(chunks_of(bridge, graph, {"n": 0}, **options))
        return [shown(chunk) for chunk in chunks]

    with RxPyLangGraphBridge() as one:
        context.expected = streamed(one)
    context.results = streamed(context.bridge)


@when("a sequence of graphs is streamed, with one loop and with these")
def step_a_sequence_of_graphs_is_streamed_with_one_loop_and_with_these(context: Context) -> None:
    def streamed(bridge: RxPyLangGraphBridge) -> list[Any]:
        graph = loop_graphs.sequence(context.threads)
        return [shown(chunk) for chunk in asyncio.run(chunks_of(bridge, graph, {"n": 1}))]

    context.threads = set()
    with RxPyLangGraphBridge() as one:
        context.expected = streamed(one)
    context.threads.clear()
    context.results = streamed(context.bridge)
    assert context.threads, "no node was called"
    assert all("-graphs-" in name for name in context.threads), context.threads


@then("the first step of a sequence may ask, on a thread")
def step_the_first_step_of_a_sequence_may_ask_on_a_thread(context: Context) -> None:
    make = context.bridge.create_future_task
    graph = loop_graphs.sequence(set(), InMemorySaver())
    make(graph, StreamMessage({"n": 1}, "t"), errors="emit").result(LIMIT)
    refused = make(graph, StreamMessage({"n": 2}, "t"), errors="emit").result(LIMIT)
    check_error(refused.error, "PendingInterruptError")


@then("the chunks are the same, and so is the result")
def step_the_chunks_are_the_same_and_so_is_the_result(context: Context) -> None:
    assert len(context.expected) > 2
    # Which of two modes comes first for one step depends on when the reader comes.
    assert context.results[-1] == context.expected[-1]
    for mode in {mode for mode, *_ in context.expected}:
        assert [each for each in context.results if each[0] == mode] == [
            each for each in context.expected if each[0] == mode
        ]


@when("a run of {count:d} supersteps is streamed, and its reader waits after the first chunk")
def step_a_run_of_supersteps_is_streamed(context: Context, count: int) -> None:
    context.made = Log()
    graph = loop_graphs.talking(context.made)

    async def read() -> None:
        options = {"config": {"recursion_limit": count + 5}}
        async with context.bridge.astream(graph, {"n": count}, **options) as stream:
            context.chunks = [await anext(stream)]
            for _ in range(20 * count):  # enough steps for all of them, if nothing held them up
                await asyncio.sleep(0)
            await asyncio.to_thread(settle, context.bridge, count)
            context.before = len(context.made)
            context.chunks += [chunk async for chunk in stream]

    asyncio.run(read())
    context.count = count


def settle(bridge: RxPyLangGraphBridge, count: int) -> None:
    """Let the loops of the bridge take enough steps for what they have to do."""

    async def steps() -> None:
        for _ in range(20 * count):
            await asyncio.sleep(0)

    seats = bridge._engine.workers._seats
    for loop in (bridge._engine.host.loop, *(seat.host.loop for seat in seats)) * 2:
        asyncio.run_coroutine_threadsafe(steps(), loop).result(LIMIT)


@then("no more than {count:d} of them were made")
def step_no_more_than_of_them_were_made(context: Context, count: int) -> None:
    assert 0 < context.before <= count, context.before


@then("the reader then has the chunks of all {count:d} in order, and the result")
def step_the_reader_then_has_all_in_order_and_the_result(context: Context, count: int) -> None:
    *chunks, result = context.chunks
    numbers = [chunk.content["talk"]["n"] for chunk in chunks]
    assert numbers == list(range(count - 1, -1, -1)), numbers
    assert result.content["n"] == 0


@when("a stream of a run that goes on forever is left after {count:d} chunks")
def step_a_stream_of_a_run_that_goes_on_forever_is_left(context: Context, count: int) -> None:
    context.ended = Gate()

    async def talk(state: State) -> State:
        write = loop_graphs.get_stream_writer()
        try:
            while True:
                write(1)
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            context.ended.open()

    async def read() -> None:
        graph = one_node(talk)
        async with context.bridge.astream(graph, {"n": 0}, stream_mode="custom") as stream:
            for _ in range(count):
                await anext(stream)

    asyncio.run(read())


@then("the run has left the registry, and its node has cleaned up")
def step_the_run_has_left_the_registry_and_its_node_has_cleaned_up(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.ended.is_open


# -- threads of conversations ----------------------------------------------------------------------


@when("graphs ask on {count:d} threads, and each is answered")
def step_graphs_ask_on_threads_and_each_is_answered(context: Context, count: int) -> None:
    graph = loop_graphs.asking(InMemorySaver())
    make = context.bridge.create_future_task
    asked = [make(graph, StreamMessage({"n": n}, f"t{n}")) for n in range(count)]
    results = [run.result(LIMIT) for run in asked]
    assert [result.status for result in results] == ["interrupted"] * count
    replies = [result.reply(f"answer {n}") for n, result in enumerate(results)]
    context.runs = [make(graph, reply) for reply in replies]
    context.again = [make(graph, reply, errors="emit") for reply in replies]


@then("each has its answer, and a second answer is refused with {error}")
def step_each_has_its_answer_and_a_second_answer_is_refused(context: Context, error: str) -> None:
    logs = [run.result(LIMIT).content["log"] for run in context.runs]
    assert logs == [[f"answer {n}"] for n in range(len(logs))], logs
    for run in context.again:
        check_error(run.result(LIMIT).error, error)


@when("{count:d} messages are sent to {threads:d} threads in turn")
def step_messages_are_sent_to_threads_in_turn(context: Context, count: int, threads: int) -> None:
    graph = loop_graphs.logging_thread(InMemorySaver())
    messages = [StreamMessage({"n": n}, f"t{n % threads}") for n in range(count)]
    runs = [context.bridge.create_future_task(graph, message) for message in messages]
    results = [run.result(LIMIT) for run in runs]
    context.logs = [result.content["log"] for result in results[-threads:]]
    context.expected = [list(range(n, count, threads)) for n in range(threads)]


@then("each thread has its messages in order, without a gap")
def step_each_thread_has_its_messages_in_order_without_a_gap(context: Context) -> None:
    assert context.logs == context.expected


@when("{count:d} messages are sent from {threads:d} threads")
def step_messages_are_sent_from_threads(context: Context, count: int, threads: int) -> None:
    async def twice(n: int) -> int:
        await asyncio.sleep(0)
        return n * 2

    def part(number: int) -> bool:
        numbers = range(number, count, threads)
        runs = [context.bridge.create_future_task(twice, n) for n in numbers]
        return [run.result(LIMIT).content for run in runs] == [n * 2 for n in numbers]

    context.right = in_threads(threads, part)
    context.count = count


@then("each has its own result, and nothing is in flight")
def step_each_has_its_own_result_and_nothing_is_in_flight(context: Context) -> None:
    assert all(context.right)
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.bridge.statistics().succeeded == context.count
    assert not any(seat.calls for seat in context.bridge._engine.workers._seats)


# -- ends ------------------------------------------------------------------------------------------


@given("its calls are made by run_coroutine_threadsafe")
def step_its_calls_are_made_by_run_coroutine_threadsafe(context: Context) -> None:
    async def call(self: Any, path: Any, arguments: Any, options: Any) -> Any:
        seat = self._loops._choose()
        coroutine = getattr(self._graph, path[0])(*arguments, **options)
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(coroutine, seat.host.loop)
        )

    patch(context, graph_loops._Calls, "call", call)


@when("a run is cancelled, whose node cleans up for a while")
def step_a_run_is_cancelled_whose_node_cleans_up_for_a_while(context: Context) -> None:
    context.node = Cleaning()
    context.add_cleanup(context.node.may_end.open)
    context.run = context.bridge.create_future_task(one_node(context.node), {"n": 0})
    context.node.log.wait_for(1)
    context.run.cancel()
    context.node.log.wait_for(2)


@then("it is in the registry until the node has cleaned up, and then it is not")
def step_it_is_in_the_registry_until_the_node_has_cleaned_up(context: Context) -> None:
    settle(context.bridge, 5)
    try:
        assert context.run in context.bridge.registry
    finally:
        context.node.may_end.open()
        context.node.log.wait_for(3)
    assert context.bridge.registry.wait_idle(LIMIT)
    assert list(context.node.log) == ["begun", "cancelled", "clean"]


@when("a message interrupts a run, whose node cleans up for a while")
def step_a_message_interrupts_a_run_whose_node_cleans_up(context: Context) -> None:
    context.node = Cleaning(attempts=1)
    graph = one_node(context.node, checkpointer=InMemorySaver())
    make = context.bridge.create_future_task
    first = make(graph, StreamMessage({"n": 0}, "t"), errors="emit")
    context.node.log.wait_for(1)
    context.run = make(graph, StreamMessage({"n": 1}, "t"), multitask_strategy="interrupt")
    context.node.log.wait_for(2)
    check_error(first.result(LIMIT).error, "RunInterruptedError")
    settle(context.bridge, 5)


@then("it begins when the node has cleaned up")
def step_it_begins_when_the_node_has_cleaned_up(context: Context) -> None:
    assert list(context.node.log) == ["begun", "cancelled"]
    context.node.may_end.open()
    assert context.run.result(LIMIT).content["log"] == ["answered"]
    assert list(context.node.log) == ["begun", "cancelled", "clean", "begun"]


@when("a run is retried, whose first attempt takes too long")
def step_a_run_is_retried_whose_first_attempt_takes_too_long(context: Context) -> None:
    context.node = Cleaning(attempts=1)
    run = context.bridge.create_future_task(
        one_node(context.node), {"n": 0}, timeout=LIMIT, retry=1
    )
    context.node.log.wait_for(1)
    expire(run)
    context.node.log.wait_for(2)
    context.node.may_end.open()
    assert run.result(LIMIT).content["log"] == ["answered"]


@then("the first attempt had cleaned up when the second began")
def step_the_first_attempt_had_cleaned_up_when_the_second_began(context: Context) -> None:
    assert list(context.node.log) == ["begun", "cancelled", "clean", "begun"]


class OwnError(Exception):
    def __init__(self, first: object, second: object) -> None:
        super().__init__(first)


ERRORS: dict[str, BaseException] = {
    "KeyError": KeyError("no such key"),
    "ExceptionGroup": ExceptionGroup("both", [ValueError(1), OSError(2)]),
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "an own exception": OwnError(threading.Lock(), object()),
}


@when("a node on a loop of its own raises {error}")
def step_a_node_raises(context: Context, error: str) -> None:
    context.raised = ERRORS[error]

    async def fail(state: State) -> State:
        await asyncio.sleep(0)
        raise context.raised

    run = context.bridge.create_future_task(one_node(fail), {"n": 0}, errors="emit")
    context.result = run.result(LIMIT)


@when("a function on a loop of its own raises CancelledError")
def step_a_function_on_a_loop_of_its_own_raises_cancellederror(context: Context) -> None:
    async def cancel(_: object) -> None:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    run = context.bridge.create_future_task(cancel, 1, errors="emit")
    context.result = error_of(lambda: run.result(LIMIT)) or run.result(LIMIT)


@then("the very same exception is the error of its run")
def step_the_very_same_exception_is_the_error_of_its_run(context: Context) -> None:
    assert context.result.status == "error"
    assert context.result.error is context.raised, context.result.error
    places = [frame.name for frame in traceback.extract_tb(context.raised.__traceback__)]
    assert "fail" in places, places


@then("its run is cancelled")
def step_its_run_is_cancelled(context: Context) -> None:
    assert context.result.status == "cancelled"


@then("a further message has its result")
def step_a_further_message_has_its_result(context: Context) -> None:
    assert answers(context.bridge, loop_graphs.chain(set()), [{"n": 1}])[0]["n"] == 4


@when("a node blocks its loop")
def step_a_node_blocks_its_loop(context: Context) -> None:
    begun, context.unblocked = Gate(), Gate()
    context.add_cleanup(context.unblocked.open)

    async def block(state: State) -> State:
        begun.open()
        context.unblocked.wait()  # on the loop
        return {"log": ["unblocked"]}

    context.run = context.bridge.create_future_task(one_node(block), {"n": 0})
    begun.wait()


@then("{count:d} further messages have their results one after the other")
def step_further_messages_have_their_results_one_after_the_other(
    context: Context, count: int
) -> None:
    graph = loop_graphs.chain(set())
    for n in range(count):
        assert answers(context.bridge, graph, [{"n": n}])[0]["n"] == (n + 1) * 2


@then("a report of a cleanup names the line at which it blocks")
def step_a_report_of_a_cleanup_names_the_line_at_which_it_blocks(context: Context) -> None:
    (stuck,) = context.bridge.cleanup_tasks(0.1).stuck
    assert "context.unblocked.wait()" in stuck.stack, stuck.stack
    context.unblocked.open()
    assert context.bridge.registry.wait_idle(LIMIT)


@when("that bridge is closed within a tenth of a second, by {way}")
def step_that_bridge_is_closed_within_a_tenth_of_a_second(context: Context, way: str) -> None:
    context.hosts = [seat.host for seat in context.bridge._engine.workers._seats]
    # Otherwise the bridge's own loop would leave the run behind, if this were slow to unblock it.
    patch(context, loops, "_LAST_ROUND", LIMIT)
    begun = time.monotonic()
    if way == "close":
        context.report = context.bridge.close(0, cancel_timeout=0.1)
    else:
        context.report = asyncio.run(context.bridge.aclose(0, cancel_timeout=0.1))
    context.seconds = time.monotonic() - begun


@then("its report names the line at which it blocks, and it has not taken {most:d} seconds")
def step_its_report_names_the_line_at_which_it_blocks(context: Context, most: int) -> None:
    (stuck,) = context.report.stuck
    assert "context.unblocked.wait()" in stuck.stack, stuck.stack
    assert context.seconds < most, context.seconds


@then("the loop ends when the node no longer blocks it")
def step_the_loop_ends_when_the_node_no_longer_blocks_it(context: Context) -> None:
    context.unblocked.open()
    for host in context.hosts:
        host.stopped.result(LIMIT)


@when("runs wait on both loops, and a node stops one of these")
def step_runs_wait_on_both_loops_and_a_node_stops_one_of_these(context: Context) -> None:
    begun, context.gate = Log(), Gate()

    async def wait(content: Any) -> Any:
        begun.add(threading.current_thread().name)
        if content == "stop":
            await context.gate.wait_async()
            asyncio.get_running_loop().stop()
            await asyncio.Event().wait()
        await context.go_on.wait_async()
        return threading.current_thread().name

    context.go_on = Gate()
    make = context.bridge.create_future_task
    context.runs = [make(wait, what) for what in ("stop", "a", "b", "c")]
    begun.wait_for(4)
    context.gate.open()
    check_error(error_of(lambda: context.runs[0].result(LIMIT)), "LoopUnavailableError", "stopped")
    context.go_on.open()


@when("a state is opened on it, and nodes stop the loops on which they are called")
def step_a_state_is_opened_on_it_and_nodes_stop_the_loops(context: Context) -> None:
    manager = open_state_threadsafe(context.bridge, "memory:")
    context.state = manager.__enter__()
    context.add_cleanup(manager.__exit__, None, None, None)
    begun, go_on = Log(), Gate()

    async def stop(_: State) -> None:
        begun.add(asyncio.get_running_loop())
        await go_on.wait_async()
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

    runs = [context.bridge.create_future_task(one_node(stop), {"n": n}) for n in range(2)]
    begun.wait_for(2)
    go_on.open()
    for run in runs:
        check_error(error_of(lambda run=run: run.result(LIMIT)), "LoopUnavailableError", "stopped")


@then("sync nodes use the state, and an async node gets {error}")
def step_sync_nodes_use_the_state_and_an_async_node_gets(context: Context, error: str) -> None:
    def count(_: State) -> State:
        return {"n": context.state.sync.increment_counter("runs")}

    async def count_on_its_loop(_: State) -> State:
        return {"n": await context.state.increment_counter("runs")}

    found = answers(context.bridge, one_node(count), [{"n": 0}] * 20)
    assert sorted(each["n"] for each in found) == list(range(1, 21)), found
    run = context.bridge.create_future_task(one_node(count_on_its_loop), {"n": 0})
    check_error(error_of(lambda: run.result(LIMIT)), error)


@then("its runs end with {error}, and the others with their results")
def step_its_runs_end_with_error_and_the_others_with_their_results(
    context: Context, error: str
) -> None:
    ends = [error_of(lambda run=run: run.result(LIMIT)) for run in context.runs]
    failed = [end for end in ends if end is not None]
    assert len(failed) == 2, ends
    for end in failed:
        check_error(end, error)


@when("a message is sent, and the loop that its call would go to ends before its run begins")
def step_a_message_is_sent_and_the_loop_that_its_call_would_go_to(context: Context) -> None:
    engine, blocking, go_on = context.bridge._engine, Gate(), Gate()
    context.add_cleanup(go_on.open)

    async def echo(content: Any) -> Any:
        return content

    def block() -> None:
        blocking.open()
        go_on.wait()

    context.bridge.create_future_task(echo, 0).result(LIMIT)
    (seat,) = engine.workers._seats
    engine.host.loop.call_soon_threadsafe(block)
    blocking.wait()
    context.run = context.bridge.create_future_task(echo, 1)
    seat.host.loop.call_soon_threadsafe(seat.host.loop.stop)
    seat.host.stopped.result(LIMIT)
    go_on.open()


@then("it has its result all the same")
def step_it_has_its_result_all_the_same(context: Context) -> None:
    assert context.run.result(LIMIT).content == 1


@then("{count:d} further messages have their results")
def step_further_messages_have_their_results(context: Context, count: int) -> None:
    threads: set[str] = set()
    results = answers(context.bridge, loop_graphs.chain(threads), [{"n": n} for n in range(count)])
    assert [each["n"] for each in results] == [(n + 1) * 2 for n in range(count)]
    assert len(threads) == 2, threads


@when("{count:d} runs have begun, and the bridge is closed")
def step_runs_have_begun_and_the_bridge_is_closed(context: Context, count: int) -> None:
    step_runs_have_begun(context, count)
    context.node.may_end.open()
    context.bridge.close(0)


@when("{count:d} runs have begun")
def step_runs_have_begun(context: Context, count: int) -> None:
    context.node = Cleaning()
    context.add_cleanup(context.node.may_end.open)
    graph = one_node(context.node)
    context.runs = [context.bridge.create_future_task(graph, {"n": n}) for n in range(count)]
    context.node.log.wait_for(count)


@then("a snapshot has the node of each")
def step_a_snapshot_has_the_node_of_each(context: Context) -> None:
    nodes = [info.node for info in context.bridge.registry.snapshot()]
    assert nodes == ["node"] * len(context.runs), nodes


@then("their futures are cancelled, and each has cleaned up on its loop")
def step_their_futures_are_cancelled_and_each_has_cleaned_up(context: Context) -> None:
    assert all(run.cancelled() for run in context.runs)
    counts = Counter(context.node.log)
    assert counts["clean"] == len(context.runs), counts


@then("what is sent then is refused with {error}")
def step_what_is_sent_then_is_refused(context: Context, error: str) -> None:
    graph = one_node(context.node)
    check_error(error_of(lambda: context.bridge.create_future_task(graph, {"n": 0})), error)


@when("it has had {count:d} messages, and is dropped")
def step_it_has_had_messages_and_is_dropped(context: Context, count: int) -> None:
    bridge = RxPyLangGraphBridge(loops=2)
    answers(bridge, loop_graphs.chain(set()), [{"n": n} for n in range(count)])
    context.hosts = [seat.host for seat in bridge._engine.workers._seats]
    del bridge
    gc.collect()


@then("its loops end")
def step_its_loops_end(context: Context) -> None:
    assert len(context.hosts) == 2
    for host in context.hosts:
        host.stopped.result(LIMIT)
        assert host.loop.is_closed()


@when("a program ends its loop, adopted by a bridge with {loops:d} loops, in the middle of runs")
def step_a_program_ends_its_loop_in_the_middle_of_runs(context: Context, loops: int) -> None:
    patch(context, interpreter, "gil_enabled", lambda: False)
    context.node = Cleaning()
    context.node.may_end.open()

    async def main() -> None:
        bridge = RxPyLangGraphBridge(asyncio.get_running_loop(), loops=loops)
        graph = one_node(context.node)
        context.runs = [bridge.create_future_task(graph, {"n": n}) for n in range(6)]
        await asyncio.to_thread(context.node.log.wait_for, 6)

    asyncio.run(main())


@then("each run has cleaned up on its loop")
def step_each_run_has_cleaned_up_on_its_loop(context: Context) -> None:
    counts = Counter(context.node.log.wait_for(3 * len(context.runs)))
    assert counts["clean"] == len(context.runs), counts
    assert all(run.done() for run in context.runs)


# -- contexts and threads --------------------------------------------------------------------------


@when("{count:d} messages are sent, each in a context of its own")
def step_messages_are_sent_each_in_a_context_of_its_own(context: Context, count: int) -> None:
    async def first(state: State) -> State:
        return {"log": [WAY_OF_ONE.get()]}

    def second(state: State) -> State:
        return {"log": [WAY_OF_ONE.get()]}

    builder = StateGraph(State).add_node("first", first).add_node("second", second)
    graph = builder.add_edge(START, "first").add_edge("first", "second").compile()
    runs = []
    for number in range(count):
        own = copy_context()
        own.run(WAY_OF_ONE.set, number)
        runs.append(own.run(context.bridge.create_future_task, graph, {"n": number}))
    context.logs = [run.result(LIMIT).content["log"] for run in runs]


@then("each run has seen that of its own message")
def step_each_run_has_seen_that_of_its_own_message(context: Context) -> None:
    assert context.logs == [[number, number] for number in range(len(context.logs))]


@when("{count:d} messages go through a graph that fans out to {width:d} sync nodes")
def step_messages_go_through_a_graph_that_fans_out(
    context: Context, count: int, width: int
) -> None:
    lock = threading.Lock()
    context.most = at_work = 0

    def work(state: State) -> State:
        nonlocal at_work
        with lock:
            at_work += 1
            context.most = max(context.most, at_work)
        threading.Event().wait(0.001)
        with lock:
            at_work -= 1
        return {"log": [state["n"]]}

    graph = loop_graphs.fanning_out(width, work)
    results = answers(context.bridge, graph, [{"n": n} for n in range(count)])
    assert [each["log"] for each in results] == [[n] * width for n in range(count)]


@then("no more than {count:d} threads were at work at once")
def step_no_more_than_threads_were_at_work_at_once(context: Context, count: int) -> None:
    assert 1 < context.most <= count, context.most


@when("a node leaves a task behind, which calls a sync function once the run has ended")
def step_a_node_leaves_a_task_behind(context: Context) -> None:
    context.gate, context.called, context.may_end = Gate(), Gate(), Gate()
    context.add_cleanup(context.may_end.open)
    tasks = []

    def work() -> None:
        context.called.open()
        context.may_end.wait()

    async def leave() -> None:
        await context.gate.wait_async()
        await asyncio.to_thread(work)

    async def node(state: State) -> State:
        tasks.append(asyncio.get_running_loop().create_task(leave()))
        return {"n": 1}

    context.run = context.bridge.create_future_task(one_node(node), {"n": 0})
    context.run.result(LIMIT)
    assert context.bridge.registry.wait_idle(LIMIT)
    context.gate.open()
    context.called.wait()


@then("that was called, and no run holds its slot for it")
def step_that_was_called_and_no_run_holds_its_slot_for_it(context: Context) -> None:
    shares = list(context.bridge._engine.threads._shares)
    assert shares == [None], shares
    context.may_end.open()
    settle(context.bridge, 5)


# -- runs that wait for runs -----------------------------------------------------------------------


@when(
    "{count:d} nodes await runs of the same bridge, and {others:d} sync nodes wait for their result"
)
def step_nodes_await_runs_of_the_same_bridge(context: Context, count: int, others: int) -> None:
    context.bridge.close(0)
    context.bridge = open_loops(context, 2, max_concurrency=100)
    make = context.bridge.create_future_task

    async def inner(n: int) -> int:
        await asyncio.sleep(0)
        return n * 10

    async def outer(state: State) -> State:
        return {"log": [(await make(inner, state["n"])).content]}

    def outer_sync(state: State) -> State:
        return {"log": [make(inner, state["n"]).result(LIMIT).content]}

    runs = [make(one_node(outer), {"n": n}) for n in range(count)]
    runs += [make(one_node(outer_sync), {"n": n}) for n in range(count, count + others)]
    context.logs = [run.result(LIMIT).content["log"] for run in runs]


@when("{count:d} nodes of the one await runs of the other, whose nodes await runs of the one")
def step_nodes_of_the_one_await_runs_of_the_other(context: Context, count: int) -> None:
    one, other = context.bridge.create_future_task, context.other.create_future_task

    async def innermost(n: int) -> int:
        await asyncio.sleep(0)
        return n * 10

    async def middle(n: int) -> int:
        return (await one(innermost, n)).content

    async def outer(state: State) -> State:
        return {"log": [(await other(middle, state["n"])).content]}

    runs = [one(one_node(outer), {"n": n}) for n in range(count)]
    context.logs = [run.result(LIMIT).content["log"] for run in runs]


@then("each has the result of its own")
def step_each_has_the_result_of_its_own(context: Context) -> None:
    assert context.logs == [[n * 10] for n in range(len(context.logs))], context.logs


async def wait_forever(_: object) -> None:
    await asyncio.Event().wait()


def _wait_for_room(bridge: RxPyLangGraphBridge) -> None:
    for n in range(40):
        bridge.create_future_task(wait_forever, n)


WAITS: dict[str, Callable[[RxPyLangGraphBridge], Any]] = {
    "result()": lambda bridge: bridge.create_future_task(wait_forever, 1).result(LIMIT),
    "Observable.run()": lambda bridge: reactivex.just(1).pipe(bridge.invoke(wait_forever)).run(),
    "close()": lambda bridge: bridge.close(),
    "cleanup_tasks()": lambda bridge: bridge.cleanup_tasks(),
    "aclose()": lambda bridge: bridge.aclose(),
    "a message without room": _wait_for_room,
}


@when("a node does this on its loop: {wait}")
def step_a_node_does_this_on_its_loop(context: Context, wait: str) -> None:
    bridge = context.bridge
    if wait == "a message without room":
        bridge = open_loops(context, 2, max_pending=1, max_concurrency=2)

    context.other = RxPyLangGraphBridge()
    context.add_cleanup(context.other.close, 0)

    async def node(state: State) -> State:
        try:
            if wait == "result() of another":
                context.other.create_future_task(wait_forever, 1).result(LIMIT)
            else:
                done = WAITS[wait](bridge)
                if asyncio.iscoroutine(done):
                    await done
        except Exception as error:
            return {"log": [error]}
        return {"log": [None]}

    run = bridge.create_future_task(one_node(node), {"n": 0})
    (context.error,) = run.result(LIMIT).content["log"]


@then('it gets {error}, which says "{words}"')
def step_it_gets_error_which_says(context: Context, error: str, words: str) -> None:
    check_error(context.error, error, words)


@when("a node sends a message to its own thread, and awaits the result")
def step_a_node_sends_a_message_to_its_own_thread(context: Context) -> None:
    async def node(state: State) -> State:
        try:
            await context.bridge.create_future_task(wait_forever, StreamMessage(1, "t"))
        except Exception as error:
            return {"log": [error]}
        return {"log": [None]}

    run = context.bridge.create_future_task(one_node(node), StreamMessage({"n": 0}, "t"))
    (context.error,) = run.result(LIMIT).content["log"]


# -- what applies to graphs ------------------------------------------------------------------------


class Counted:
    """How many calls there are at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.most = 0

    def change(self, by: int) -> None:
        with self._lock:
            self._now += by
            self.most = max(self.most, self._now)


CALLS = Counted()


class CountedModel(BaseChatModel):
    """Counts its calls."""

    @property
    def _llm_type(self) -> str:
        return "counted"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, *_: Any, **__: Any) -> ChatResult:
        CALLS.change(1)
        for _ in range(20):
            await asyncio.sleep(0)
        CALLS.change(-1)
        usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        message = AIMessage("well", usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


class NodesEnded(Hooks):
    def __init__(self) -> None:
        self.nodes = Log()

    def on_node(self, event: NodeEnded) -> None:
        self.nodes.add((event.node, event.message.content["n"]))


@contextlib.contextmanager
def open_lanes() -> Iterator[Any]:
    """A state on a loop of its own, in a thread."""
    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever)
    runner.start()

    async def opened() -> Any:
        manager = open_state("memory:loops")
        return manager, await manager.__aenter__()

    manager, state = asyncio.run_coroutine_threadsafe(opened(), loop).result(LIMIT)
    try:
        yield state
    finally:
        left = manager.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(left, loop).result(LIMIT)
        loop.call_soon_threadsafe(loop.stop)
        runner.join(LIMIT)
        loop.close()


@given("a bridge with {loops:d} loops, with limits, a usage and lanes")
def step_a_bridge_with_loops_with_limits_a_usage_and_lanes(context: Context, loops: int) -> None:
    lanes = open_lanes()
    state = lanes.__enter__()
    context.add_cleanup(lanes.__exit__, None, None, None)
    context.usage, context.hooks = Usage(), NodesEnded()
    limits = Limits(ModelLimit(concurrency=2))
    context.bridge = open_loops(context, loops, limits=limits, usage=context.usage, lanes=state)
    context.bridge.add_hooks(context.hooks)


@when("{count:d} messages go through a graph that calls a model")
def step_messages_go_through_a_graph_that_calls_a_model(context: Context, count: int) -> None:
    context.model = CountedModel()

    async def ask(state: State) -> State:
        return {"log": [(await context.model.ainvoke("hello")).content]}

    graph = one_node(ask, checkpointer=InMemorySaver())
    messages = [StreamMessage({"n": n}, f"t{n % 5}") for n in range(count)]
    runs = [context.bridge.create_future_task(graph, message) for message in messages]
    results = [run.result(LIMIT).content["log"] for run in runs]
    assert [len(log) for log in results] == [n // 5 + 1 for n in range(count)], results


@then(
    "hooks heard of each node, the usage has {count:d} calls, "
    "and never more than {most:d} were made at once"
)
def step_hooks_heard_of_each_node(context: Context, count: int, most: int) -> None:
    assert sorted(context.hooks.nodes) == [("node", n) for n in range(count)]
    assert context.usage.total().calls == count
    assert 1 <= CALLS.most <= most, CALLS.most


@when("the bridge is closed with drain_after=0 while a run is between its nodes")
def step_the_bridge_is_closed_with_drain_after(context: Context) -> None:
    begun, go_on = Gate(), Gate()
    saver = InMemorySaver()

    async def first(state: State) -> State:
        begun.open()
        await go_on.wait_async()
        return {"log": ["first"]}

    async def second(state: State) -> State:
        return {"log": ["second"]}

    builder = StateGraph(State).add_node("first", first).add_node("second", second)
    context.graph = builder.add_edge(START, "first").add_edge("first", "second").compile(saver)
    make = context.bridge.create_future_task
    context.run = make(context.graph, StreamMessage({"n": 0}, "t"), errors="emit")
    begun.wait()
    context.run.add_done_callback(lambda _: None)
    closing = threading.Thread(target=context.bridge.close, kwargs={"drain_after": 0})
    closing.start()
    control = context.run.control
    while not control.asked:  # bounded by the deadline of the scenario
        threading.Event().wait(0.001)
    go_on.open()
    closing.join(LIMIT)


@then("the run is interrupted, and another bridge continues it")
def step_the_run_is_interrupted_and_another_bridge_continues_it(context: Context) -> None:
    result = context.run.result(LIMIT)
    check_error(result.error, "RunDrainedError")
    with open_loops(context, 2) as other:
        run = other.create_future_task(context.graph, StreamMessage(None, "t"))
        assert run.result(LIMIT).content["log"] == ["first", "second"]


class WithoutControl:
    """What has the shape of a graph, with another `ainvoke`."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        if name in {"name", "_graph"}:
            raise AttributeError(name)
        return getattr(self._graph, name)

    async def ainvoke(self, content: Any, config: Any = None) -> Any:
        return await self._graph.ainvoke(content, config)


@when("a message is sent to a graph on a thread, whose ainvoke takes no control")
def step_a_message_is_sent_to_a_graph_whose_ainvoke_takes_no_control(context: Context) -> None:
    graph = WithoutControl(loop_graphs.logging_thread(InMemorySaver()))
    context.run = context.bridge.create_future_task(graph, StreamMessage({"n": 3}, "t"))


@then("it has its result, and the name of its class")
def step_it_has_its_result_and_the_name_of_its_class(context: Context) -> None:
    assert context.run.result(LIMIT).content["log"] == [3]
    assert context.run.options.name == "WithoutControl"


# -- what cannot be called on several loops --------------------------------------------------------


class StoreWithLoop(AsyncBatchedBaseStore):
    async def abatch(self, ops: Any) -> Any:
        return []

    def batch(self, ops: Any) -> Any:
        return []


async def _node(state: State) -> State:
    return {"n": 1}


def _sqlite_in(place: str) -> Callable[[], Any]:
    async def make() -> Any:
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            graph = one_node(_node, checkpointer=saver)
            return one_node(graph) if place == "subgraph" else graph

    return lambda: asyncio.run(make())


async def _with_store() -> Any:
    store = StoreWithLoop()
    graph = one_node(_node, store=store)
    store._task.cancel()
    return graph


BOUND: dict[str, Callable[[], Any]] = {
    "an AsyncSqliteSaver": _sqlite_in("graph"),
    "an AsyncSqliteSaver in a subgraph": _sqlite_in("subgraph"),
    "a store with a loop": lambda: asyncio.run(_with_store()),
    "an AsyncSqliteSaver behind another": lambda: one_node(_node) | _sqlite_in("graph")(),
}


@when("it is passed a graph with {what}")
def step_it_is_passed_a_graph_with(context: Context, what: str) -> None:
    graph = BOUND[what]()
    context.error = error_of(lambda: context.bridge.create_future_task(graph, {"n": 0}))
    for passed in (context.bridge.invoke, context.bridge.stream):
        assert isinstance(error_of(lambda passed=passed: passed(graph)), InvalidArgumentError)


@when("{count:d} messages are answered, and {failed:d} fail, without the cyclic collector")
def step_messages_are_answered_and_fail_without_the_cyclic_collector(
    context: Context, count: int, failed: int
) -> None:
    class Thing:
        pass

    async def node(state: Any) -> Any:
        await asyncio.sleep(0)
        if state["fails"]:
            raise ValueError(state["thing"])
        return {"fails": False}

    graph = StateGraph(dict).add_node("node", node).add_edge(START, "node").compile()
    context.kept = []
    with uncollected():
        for n in range(count + failed):
            thing = Thing()
            context.kept.append(weakref.ref(thing))
            content = {"thing": thing, "fails": n >= count}
            run = context.bridge.create_future_task(graph, content)
            with contextlib.suppress(ValueError):
                run.result(LIMIT)
            del thing, content, run
        assert context.bridge.registry.wait_idle(LIMIT)
        settle(context.bridge, 5)
        context.kept = [each for each in context.kept if each() is not None]


@then("none of their contents is kept")
def step_none_of_their_contents_is_kept(context: Context) -> None:
    assert len(context.kept) == 0, len(context.kept)
