"""What accompanies the calls of a graph: hooks, limits, usage and lanes, with workers."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import select
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import wait
from contextlib import asynccontextmanager
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langchain_core.callbacks import BaseCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge import execution
from rxlanggraph.bridge.remote.fence import FenceHere, FenceThere
from rxlanggraph.bridge.remote.models import ModelsThere
from rxlanggraph.errors import InvalidTypeError
from rxlanggraph.executors import pool
from rxlanggraph.executors.host import GraphHost
from rxlanggraph.executors.payloads import RemoteCall, dump_call, load_error
from rxlanggraph.hooks import Hooks, NodeEnded, RunEnded
from rxlanggraph.limits import Limits, ModelLimit, Usage
from rxlanggraph.limits.callbacks import RunCalls
from rxlanggraph.state import open_state
from support.bridge.bridges import LentLoop
from support.bridge.savers import rows_of
from support.concurrency.kept import PATIENCE, uncollected
from support.concurrency.patching import patch
from support.concurrency.pauses import until
from support.concurrency.raising import check_error, error_of
from support.concurrency.waiting import Gate
from support.executors import models, program
from support.executors.holding import holding
from support.executors.in_process import InProcessExecutor
from support.executors.world import LIMIT, begin, made, open_bridge

PRICES = {"small": {"input": 2, "output": 10}, "large": {"input": 20, "output": 100}}
# Seconds of a lease whose end a scenario waits for, and in which a busy machine renews it.
SHORT = 5.0


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < limit
        threading.Event().wait(0.005)


def open_accompanied(
    context: Context, graph: str, workers: int, where: str, **options: Any
) -> None:
    executor = made(f"support.executors.models:{graph}", workers, where)
    open_bridge(context, executor, getattr(models, graph), **options)
    context.hooks = Told()


# -- usage -----------------------------------------------------------------------------------------


@given('a bridge that counts usage, for the graph "{graph}" of models with {n:d} workers {where}')
def step_a_bridge_that_counts_usage(context: Context, graph: str, n: int, where: str) -> None:
    context.usage = Usage(PRICES)
    open_accompanied(context, graph, n, where, usage=context.usage)


@given("the calls of its graph are not accompanied")
def step_the_calls_of_its_graph_are_not_accompanied(context: Context) -> None:
    patch(context, execution, "companions_of", lambda *_: ())


def messages() -> list[StreamMessage]:
    sent = [StreamMessage({"n": n}, thread) for n, thread in ((100, "a"), (200, "b"), (300, "a"))]
    return [*sent, StreamMessage({"n": 7, "model": "large"})]


@when("3 messages on 2 threads, and one with another model, are {sent}")
def step_3_messages_on_2_threads_and_one_with_another_model(context: Context, sent: str) -> None:
    context.messages = messages()
    context.expected = Usage(PRICES)
    with RxPyLangGraphBridge(usage=context.expected) as plain:
        for bridge in (context.bridge, plain):
            if sent == "sent":
                make = bridge.create_future_task
                results = [make(context.graph, message) for message in context.messages]
                wait(results, LIMIT)
                context.results = [result.result(0) for result in results]
            else:
                context.results = [asyncio.run(streamed(bridge, context.graph, message))
                                   for message in context.messages]  # fmt: skip


async def streamed(bridge: RxPyLangGraphBridge, graph: Any, message: StreamMessage) -> Any:
    return [chunk async for chunk in bridge.astream(graph, message)][-1]


@then("the usage is in total, by model, thread and message that of a bridge without an executor")
def step_the_usage_is_that_of_a_bridge_without_an_executor(context: Context) -> None:
    here, expected = context.usage, context.expected
    assert expected.total().calls == 4 and expected.total().cost > 0, expected
    for found in (lambda each: each.total(), Usage.by_model, Usage.by_thread):
        assert found(here) == found(expected), (found(here), found(expected))
    for message, result in zip(context.messages, context.results, strict=True):
        assert here.of(message) == expected.of(message) == here.of(result)


@when("a message has had its first answer, and its worker is lost in the second call")
def step_a_message_has_had_its_first_answer(context: Context) -> None:
    content = {"n": 5, "port": context.meeting.port}
    context.runs = [context.bridge.create_future_task(context.graph, content)]
    begin(context, 1)
    wait_until(lambda: context.usage.total().calls == 1)
    lose_worker(context)


def lose_worker(context: Context) -> None:
    worker = context.executor.workers[0]
    context.bridge._engine.inbox.loop.call_soon_threadsafe(worker.lost.set)


@then("it is repeated, and the usage has its {count:d} answers")
def step_it_is_repeated_and_the_usage_has_its_answers(context: Context, count: int) -> None:
    (guest,) = context.meeting.wait_for(1)
    guest.tell()
    result = context.runs[0].result(LIMIT)
    assert context.usage.of(result).calls == context.usage.total().calls == count, context.usage


# -- hooks -----------------------------------------------------------------------------------------


class Told(Hooks):
    """The nodes and ends of runs, as hooks were told of them, in their order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def on_node(self, event: NodeEnded) -> None:
        assert event.duration >= 0 and not event.future.done()
        error = None if event.error is None else (type(event.error).__name__, str(event.error))
        self.events.append((event.node, event.status, error, event.attempt))

    def on_ended(self, event: RunEnded) -> None:
        self.events.append(("the run", event.result.status))


@given(
    'a bridge with hooks for nodes, for the graph "{graph}" of models with {n:d} workers {where}'
)
def step_a_bridge_with_hooks_for_nodes(context: Context, graph: str, n: int, where: str) -> None:
    open_accompanied(context, graph, n, where)
    context.bridge.add_hooks(context.hooks)


@when("a message with the number {number:d} goes through it")
def step_a_message_with_the_number_goes_through_it(context: Context, number: int) -> None:
    plain, context.expected = RxPyLangGraphBridge(), Told()
    plain.add_hooks(context.expected)
    context.add_cleanup(plain.close)
    for bridge in (context.bridge, plain):
        run = bridge.create_future_task(context.graph, {"n": number}, errors="emit")
        result = run.result(LIMIT)
        assert bridge.registry.wait_idle(LIMIT)
        elsewhere = (result.content or {}).get("pid", os.getpid()) != os.getpid()
        here = bridge is plain or isinstance(context.executor, InProcessExecutor)
        assert elsewhere is not here, result


@then("the hooks were told the same as those of a bridge without an executor, with {count:d} nodes")
def step_the_hooks_were_told_the_same(context: Context, count: int) -> None:
    assert context.hooks.events == context.expected.events, (
        context.hooks.events,
        context.expected.events,
    )
    assert len(context.hooks.events) == count + 1


@when("a message is in its node")
def step_a_message_is_in_its_node(context: Context) -> None:
    content = {"n": 5, "port": context.meeting.port}
    make = context.bridge.create_future_task
    context.runs = [make(context.graph, content, timeout=LIMIT, errors="emit")]
    begin(context, 1)


@when("a message is in its node, and its worker is lost")
def step_a_message_is_in_its_node_and_its_worker_is_lost(context: Context) -> None:
    step_a_message_is_in_its_node(context)
    lose_worker(context)


@then('the snapshot shows the node "{node}"')
def step_the_snapshot_shows_the_node(context: Context, node: str) -> None:
    (info,) = context.bridge.registry.snapshot()
    assert info.node == node, info


@then('the snapshot shows the node "{node}" once the message is in it again')
def step_the_snapshot_shows_the_node_once_the_message_is_in_it_again(
    context: Context, node: str
) -> None:
    (context.guest,) = context.meeting.wait_for(1)
    step_the_snapshot_shows_the_node(context, node)


@then("the hooks were told of one node, which has succeeded")
def step_the_hooks_were_told_of_one_node(context: Context) -> None:
    context.guest.tell()
    assert context.runs[0].result(LIMIT).status == "ok"
    assert context.bridge.registry.wait_idle(LIMIT)
    events = context.hooks.events
    assert [each for each in events if each[1] == "ok"] == [
        ("ask", "ok", None, 1),
        ("the run", "ok"),
    ], events


@then('when its time is over, its error names the node "{node}"')
def step_when_its_time_is_over_its_error_names_the_node(context: Context, node: str) -> None:
    (run,) = context.runs
    loop = context.bridge._engine.inbox.loop
    # The timer is the attempt's: it is called as it would be then.
    loop.call_soon_threadsafe(run.timer._run)
    error = run.result(LIMIT).error
    check_error(error, "RunTimeoutError")
    assert error.node == node, error


@then("nothing has accompanied it")
def step_nothing_has_accompanied_it(context: Context) -> None:
    sent: list[RemoteCall] = []

    def dump(asked: RemoteCall, dumps: Any) -> bytes:
        sent.append(asked)
        return dump_call(asked, dumps)

    patch(context, pool, "dump_call", dump)
    context.bridge.create_future_task(context.graph, {"n": 0}).result(LIMIT)
    assert [list(asked.companions) for asked in sent] == [[]], sent


@given("a bridge with a worker in this process, and hooks for nodes that keep nothing")
def step_a_bridge_with_hooks_that_keep_nothing(context: Context) -> None:
    class Forgetful(Hooks):
        def on_node(self, event: NodeEnded) -> None: ...

    executor = InProcessExecutor("support.executors.models:asking", workers=1)
    context.bridge = RxPyLangGraphBridge(executor=executor)
    context.add_cleanup(context.bridge.close, 0)
    context.bridge.add_hooks(Forgetful())


@when("a message that cannot be pickled is refused, without the cyclic collector")
def step_a_message_that_cannot_be_pickled_is_refused(context: Context) -> None:
    freed = threading.Event()
    with uncollected():
        run = context.bridge.create_future_task(models.asking, {"model": threading.Lock()})
        context.run = weakref.ref(run, lambda _: freed.set())
        assert isinstance(run.exception(LIMIT), InvalidTypeError)
        del run
        context.freed_in_time = freed.wait(PATIENCE)


@then("its run is freed")
def step_its_run_is_freed(context: Context) -> None:
    gc.collect()  # or the leak check would find what this is about
    assert context.freed_in_time


# -- limits ----------------------------------------------------------------------------------------


@given(
    "a bridge that counts usage and allows {most:d} calls at once, "
    'for the graph "{graph}" of models with {n:d} workers {where}'
)
def step_a_bridge_that_counts_usage_and_allows_calls_at_once(
    context: Context, most: int, graph: str, n: int, where: str
) -> None:
    context.usage, context.limits = Usage(), Limits(ModelLimit(concurrency=most))
    open_accompanied(context, graph, n, where, usage=context.usage, limits=context.limits)


@given("each worker has limits of its own")
def step_each_worker_has_limits_of_its_own(context: Context) -> None:
    own: dict[int, Limits] = {}

    def enter(self: ModelsThere, link: Any, graph: Any, arguments: Any) -> Any:
        key = link._call.key
        (worker,) = [each.number for each in context.executor.workers if key in each.host._calls]
        limits = own.setdefault(worker, Limits(ModelLimit(concurrency=2)))
        clock = context.bridge._engine.inbox.clock
        self._calls = RunCalls(limits, None, StreamMessage(None), clock, link.is_inside)
        self._calls.enter()
        return arguments

    patch(context, ModelsThere, "enter", enter)


@when("{count:d} messages call the model")
def step_messages_call_the_model(context: Context, count: int) -> None:
    make = context.bridge.create_future_task
    port = context.meeting.port
    context.runs = [make(context.graph, {"n": n, "port": port}) for n in range(count)]


def in_flight_and_waiting(context: Context) -> tuple[int, int]:
    figures = context.limits.statistics().get("small")
    return (0, 0) if figures is None else (figures.in_flight, figures.waiting)


def check_that_no_other_arrives(context: Context) -> None:
    arrived, _, _ = select.select([context.meeting._listener], [], [], 0)
    assert not arrived, "one more call was made than may be"


def wait_for_queue(context: Context, in_flight: int, waiting: int) -> None:
    limit = time.monotonic() + LIMIT
    while in_flight_and_waiting(context) != (in_flight, waiting):
        check_that_no_other_arrives(context)
        assert time.monotonic() < limit, context.limits.statistics()
        threading.Event().wait(0.005)
    check_that_no_other_arrives(context)


@then("{count:d} calls are made, and the others wait until one is answered")
def step_calls_are_made_and_the_others_wait(context: Context, count: int) -> None:
    guests = context.meeting.wait_for(count)
    waiting = len(context.runs) - count
    while waiting:
        wait_for_queue(context, count, waiting)
        guests.pop(0).tell()
        guests += context.meeting.wait_for(1)
        waiting -= 1
    for guest in guests:
        guest.tell()


@then("all have their results, and the usage has {count:d} calls")
def step_all_have_their_results_and_the_usage_has_calls(context: Context, count: int) -> None:
    assert [run.result(LIMIT).content["n"] for run in context.runs] == list(range(count))
    assert context.usage.total().calls == count
    assert context.usage.total().input_tokens == sum(range(count))
    assert in_flight_and_waiting(context) == (0, 0)


@when("{count:d} messages call the model, and one that waits is cancelled")
def step_messages_call_the_model_and_one_that_waits_is_cancelled(
    context: Context, count: int
) -> None:
    step_messages_call_the_model(context, count)
    (context.guest,) = context.meeting.wait_for(1)
    wait_for_queue(context, 1, count - 1)
    context.cancelled = next(run for n, run in enumerate(context.runs) if n != context.guest.n)
    assert context.cancelled.cancel()


@then("it ends without having called the model, and the other one that waits is next")
def step_it_ends_without_having_called_the_model(context: Context) -> None:
    wait_until(lambda: context.cancelled not in context.bridge.registry)
    wait_for_queue(context, 1, 1)
    context.guest.tell()
    (guest,) = context.meeting.wait_for(1)
    assert context.runs[guest.n] is not context.cancelled
    guest.tell()
    wait(context.runs, LIMIT)
    assert context.bridge.registry.wait_idle(LIMIT)
    assert in_flight_and_waiting(context) == (0, 0) and context.usage.total().calls == 2


@when("{count:d} messages call the model, and their worker is lost")
def step_messages_call_the_model_and_their_worker_is_lost(context: Context, count: int) -> None:
    step_messages_call_the_model(context, count)
    context.meeting.wait_for(2)
    wait_for_queue(context, 2, count - 2)
    lose_worker(context)


@then("the limits have no call in flight, and none that waits")
def step_the_limits_have_no_call_in_flight(context: Context) -> None:
    for run in context.runs:
        check_error(error_of(lambda run=run: run.result(LIMIT)), "WorkerLostError")
    wait_until(lambda: in_flight_and_waiting(context) == (0, 0))


@when("a message calls the model, which is refused, and is retried by the limits")
def step_a_message_calls_the_model_which_is_refused(context: Context) -> None:
    content = {"n": 3, "port": context.meeting.port}
    retry = context.limits.retrying(2)
    context.run = context.bridge.create_future_task(context.graph, content, retry=retry)
    for word in ("refuse", "on"):
        (guest,) = context.meeting.wait_for(1)
        guest.tell(word)


@then("it has its result, and the limits have {refused:d} refusal, and {most:d} calls at once")
def step_it_has_its_result_and_the_limits_have_refusal(
    context: Context, refused: int, most: int
) -> None:
    assert context.run.result(LIMIT).content["n"] == 3
    figures = context.limits.statistics()["small"]
    assert (figures.refused, figures.calls) == (refused, 2), figures
    assert figures.concurrency < 4, figures


@given(
    "a bridge whose limits have a key that fails for the number {number:d}, "
    'for the graph "{graph}" of models with {n:d} workers {where}'
)
def step_a_bridge_whose_limits_have_a_key_that_fails(
    context: Context, number: int, graph: str, n: int, where: str
) -> None:
    context.called = called = []

    def key(call: Any) -> str:
        called.append((call.message.content["n"], call.messages[0].content, call.model))
        if call.message.content["n"] == number:
            raise KeyError("no key for it")
        return "any"

    limits = Limits(ModelLimit(requests=10), key=key)
    open_accompanied(context, graph, n, where, limits=limits)


@given(
    "a bridge whose limits have a clock that fails once, "
    'for the graph "{graph}" of models with {n:d} workers {where}'
)
def step_a_bridge_whose_limits_have_a_clock_that_fails_once(
    context: Context, graph: str, n: int, where: str
) -> None:
    fails = [1]

    def time() -> float:
        if fails:
            fails.pop()
            raise KeyError("no time for it")
        return 0.0

    limits = Limits(ModelLimit(concurrency=1), time=time)
    open_accompanied(context, graph, n, where, limits=limits)


@when("messages with the numbers 0 and 1 call the model, the second one behind the first")
def step_messages_0_and_1_call_the_model_the_second_one_behind_the_first(context: Context) -> None:
    context.results = [
        context.bridge.create_future_task(context.graph, {"n": n}, errors="emit").result(LIMIT)
        for n in range(2)
    ]


@then("the first one has the KeyError of the clock, and the other one its result")
def step_the_first_one_has_the_keyerror_of_the_clock(context: Context) -> None:
    first, second = context.results
    check_error(first.error, "KeyError", "no time for it")
    assert second.status == "ok", second


@given(
    "a bridge whose limits have a key that notes the parameters, "
    'for the graph "{graph}" of models with {n:d} workers {where}'
)
def step_a_bridge_whose_limits_have_a_key_that_notes_the_parameters(
    context: Context, graph: str, n: int, where: str
) -> None:
    context.parameters = parameters = dict[str, Any]()

    def key(call: Any) -> str:
        parameters.update(call.parameters)
        return "any"

    limits = Limits(ModelLimit(requests=10), key=key)
    open_accompanied(context, graph, n, where, limits=limits)


@when("a message calls the model")
def step_a_message_calls_the_model(context: Context) -> None:
    run = context.bridge.create_future_task(context.graph, {"n": 1})
    assert run.result(LIMIT).status == "ok"


@then('the key was given the parameter "{one}", and not the parameter "{other}"')
def step_the_key_was_given_the_parameter_and_not_the_parameter(
    context: Context, one: str, other: str
) -> None:
    assert one in context.parameters and other not in context.parameters, context.parameters


@given(
    "a bridge with limits, for a graph of two calls, "
    "of which one is pickled after the answer of the other"
)
def step_a_bridge_with_limits_for_a_graph_of_two_calls(context: Context) -> None:
    begun, answered = Gate(), Gate()

    class Parameter:
        def __reduce__(self) -> Any:
            begun.open()
            answered.wait()
            return int, ()

    def ask_first(_: models.Asked) -> models.Asked:
        models.MeetingModel(port=0).bind(parameter=Parameter()).invoke("1")
        return {}

    def ask_second(_: models.Asked) -> models.Asked:
        begun.wait()
        models.MeetingModel(port=0).invoke("2")
        answered.open()
        return {}

    builder = StateGraph(models.Asked)
    for node in (ask_first, ask_second):
        builder.add_node(node.__name__, node).add_edge(START, node.__name__)
    graph = builder.compile()
    context.limits = Limits(ModelLimit(concurrency=2))
    open_bridge(context, InProcessExecutor(lambda: graph, workers=1), graph, limits=context.limits)


@when("a message is sent to it")
def step_a_message_is_sent_to_it(context: Context) -> None:
    context.result = context.bridge.create_future_task(context.graph, {"n": 1}).result(LIMIT)


@then("both calls are made")
def step_both_calls_are_made(context: Context) -> None:
    assert context.limits.statistics()["small"].calls == 2


@when("messages with the numbers 0 and 1 call the model")
def step_messages_with_the_numbers_0_and_1_call_the_model(context: Context) -> None:
    make = context.bridge.create_future_task
    context.runs = [make(context.graph, {"n": n}, errors="emit") for n in range(2)]


@then("the first one has its result, and the other one has the KeyError of the key")
def step_the_first_one_has_its_result_and_the_other_one_has(context: Context) -> None:
    first, second = (run.result(LIMIT) for run in context.runs)
    assert first.status == "ok", first
    check_error(second.error, "KeyError", "no key for it")
    assert sorted(context.called) == [(0, "0", "small"), (1, "1", "small")], context.called


def cancelled_key(_: Any) -> str:
    raise asyncio.CancelledError


def missing_key(_: Any) -> str:
    raise OSError("no key")


def stopped_clock() -> float:
    raise OSError("no clock")


def program_key(_: Any) -> str:
    raise program.ProgramError("no key for it")


WRONG: dict[str, dict[str, Any]] = {
    "a key that raises a CancelledError": {"key": cancelled_key},
    "a key that raises an OSError": {"key": missing_key},
    "a key that raises an error of its program": {"key": program_key},
    "a time that raises an error": {"time": stopped_clock},
    "a time that returns nothing": {"time": lambda: None},
}


@given(
    'a bridge whose limits have {what}, for the graph "{graph}" of models with 1 workers '
    "in this process"
)
def step_a_bridge_whose_limits_have(context: Context, what: str, graph: str) -> None:
    limits = Limits(ModelLimit(requests=10), **WRONG[what])
    open_accompanied(context, graph, 1, "in this process", limits=limits)


@given("its executor can pickle that error")
def step_its_executor_can_pickle_that_error(context: Context) -> None:
    patch(context, InProcessExecutor, "dumps", staticmethod(program.dumps))


@when("a message calls the model in vain")
def step_a_message_calls_the_model_in_vain(context: Context) -> None:
    run = context.bridge.create_future_task(context.graph, {"n": 1})
    context.error = error_of(lambda: run.result(LIMIT))


@when("a message whose callbacks are no list is sent, and a hook listens to nodes")
def step_a_message_whose_callbacks_are_no_list_is_sent(context: Context) -> None:
    context.bridge.add_hooks(context.hooks)
    config = {"callbacks": BaseCallbackHandler()}
    run = context.bridge.create_future_task(context.graph, {"n": 1}, config=config)
    context.error = error_of(lambda: run.result(LIMIT))


@given(
    "a bridge that counts usage and allows 1 calls at once, "
    "for a graph that leaves a call behind, with a worker in this process"
)
def step_a_bridge_for_a_graph_that_leaves_a_call_behind(context: Context) -> None:
    context.gate, context.left = Gate(), []

    async def call_later() -> None:
        await context.gate.wait_async()
        await models.MeetingModel(port=0).ainvoke("1")

    async def leave(_: models.Asked) -> models.Asked:
        context.left.append(asyncio.ensure_future(call_later()))
        return {"n": 1}

    graph = StateGraph(models.Asked).add_node("leave", leave).add_edge(START, "leave").compile()
    options = {"usage": Usage(), "limits": Limits(ModelLimit(concurrency=1))}
    open_bridge(context, InProcessExecutor(lambda: graph, workers=1), graph, **options)


@when("a message is sent, and the call is made after its end")
def step_a_message_is_sent_and_the_call_is_made_after_its_end(context: Context) -> None:
    context.bridge.create_future_task(context.graph, {"n": 1}).result(LIMIT)
    assert context.bridge.registry.wait_idle(LIMIT)
    context.gate.open()


@then("the call is cancelled")
def step_the_call_is_cancelled(context: Context) -> None:
    (left,) = context.left
    wait_until(left.done)
    assert left.cancelled()


@given("a host of a graph of two sync nodes, of which one calls a model")
def step_a_host_of_a_graph_of_two_sync_nodes(context: Context) -> None:
    context.gate = Gate()

    def fail(_: models.Asked) -> models.Asked:
        context.gate.wait()
        raise KeyError("no such key")

    builder = StateGraph(models.Asked).add_node("fail", fail).add_edge(START, "fail")
    builder.add_node("ask", models.ask_in_a_thread).add_edge(START, "ask")
    graph = builder.compile()
    context.host = GraphHost(lambda: graph, (), 4, pickle.dumps)


@when("that call waits for the limits, and the other node fails")
def step_that_call_waits_for_the_limits_and_the_other_node_fails(context: Context) -> None:
    async def main() -> list[Any]:
        assert (await context.host.open())[0] == "open"
        sides = [ModelsThere(limits=True, counts=True)]
        asked = RemoteCall(("ainvoke",), False, ({"n": 1}, None), {}, {}, sides)
        happened = []
        try:
            async with asyncio.timeout(LIMIT):
                async for events in context.host.execute([(1, dump_call(asked, pickle.dumps))]):
                    happened += events
                    context.gate.open()
        finally:
            await context.host.close()  # lets a thread go that still waits
        return happened

    context.events = asyncio.run(main())


@then("the call of the graph has ended with an error, and the model was not called")
def step_the_call_of_the_graph_has_ended_with_an_error(context: Context) -> None:
    *told, (_, kind, data) = context.events
    assert [pickle.loads(each)[1][0] for _, _, each in told] == ["ask", "left"], told
    assert kind == "error"
    check_error(load_error(data), "KeyError")


# -- lanes -----------------------------------------------------------------------------------------


@given("2 bridges with workers in this process that share their lanes, and a saver")
def step_2_bridges_with_workers_that_share_their_lanes(context: Context) -> None:
    context.lent = LentLoop()
    context.add_cleanup(context.lent.end)
    context.inside, context.gate, context.saver = Gate(), Gate(), InMemorySaver()
    context.graph = holding(context.inside, context.gate, context.saver)
    context.bridges = [sharing(context) for _ in range(2)]


def sharing(context: Context) -> RxPyLangGraphBridge:
    manager = open_state("memory:lanes-of-workers")
    state = context.lent.run(manager.__aenter__())
    context.add_cleanup(lambda: context.lent.run(manager.__aexit__(None, None, None)))
    executor = InProcessExecutor(lambda: context.graph, workers=1)
    bridge = RxPyLangGraphBridge(executor=executor, lanes=state, lane_ttl=SHORT)
    context.add_cleanup(bridge.close, 0)
    context.add_cleanup(context.gate.open)
    return bridge


def to_thread(context: Context, bridge: RxPyLangGraphBridge, hold: str = "") -> Any:
    message = StreamMessage({"hold": hold}, "t")
    return bridge.create_future_task(context.graph, message, errors="emit")


@when("{count:d} messages to one thread go through each")
def step_messages_to_one_thread_go_through_each(context: Context, count: int) -> None:
    runs = [to_thread(context, each) for _ in range(count) for each in context.bridges]
    assert {run.result(LIMIT).status for run in runs} == {"ok"}


def rows(context: Context) -> Any:
    return asyncio.run(rows_of(context.saver, "t"))


def counted(context: Context) -> Any:
    return context.graph.get_state({"configurable": {"thread_id": "t"}}).values.get("count")


@then("the thread has counted all {count:d}")
def step_the_thread_has_counted_all(context: Context, count: int) -> None:
    assert counted(context) == count


@given("workers put no fence before the saver")
def step_workers_put_no_fence_before_the_saver(context: Context) -> None:
    patch(context, FenceThere, "enter", lambda self, link, graph, arguments: arguments)


@when("{kind} is in its worker, and its lease is lost")
def step_kind_is_in_its_worker_and_its_lease_is_lost(context: Context, kind: str) -> None:
    first = context.bridges[0]
    hold = "swallow" if "swallows" in kind else "wait"
    context.run = to_thread(context, first, hold)
    context.inside.wait()
    # What precedes the node is saved while it is at work: two checkpoints, and writes of the first.
    wait_until(lambda: len(rows(context)[0].get("", ())) == 2 and bool(rows(context)[1]))
    context.rows = rows(context)
    lease = context.run.lease
    if "nothing" in kind:  # the loop of the state, which would tell, is blocked
        blocked = Gate()
        context.add_cleanup(blocked.open)
        context.lent.loop.call_soon_threadsafe(blocked.wait)
    else:
        context.lent.run(take_away(context, lease.held))
    wait_until(lambda: lease.lost)
    if "nothing" not in kind:
        wait_until(context.run.done)
    context.gate.open()


async def take_away(context: Context, held: Any) -> None:
    backend = held._client.backend
    await backend.lock_release(held.key, held.token)
    await backend.lock_acquire(held.key, "another one", 0.1)


@then("its error is a LaneLostError, and the thread has nothing of what followed")
def step_its_error_is_a_lanelosterror(context: Context) -> None:
    result = context.run.result(LIMIT)
    wait_until(lambda: context.run.task is None)
    assert rows(context) == context.rows, "something was saved"
    check_error(result.error, "LaneLostError", "the lease of the thread 't' is lost")


@when("a message to one thread goes through 5 nodes")
def step_a_message_to_one_thread_goes_through_5_nodes(context: Context) -> None:
    context.asked = asked = []
    hear = FenceHere.hear

    def noted(self: FenceHere, what: Any) -> None:
        asked.append(what)
        hear(self, what)

    patch(context, FenceHere, "hear", noted)
    assert to_thread(context, context.bridges[0]).result(LIMIT).status == "ok"


@then("its worker has asked once for how long the lease lasts")
def step_its_worker_has_asked_once(context: Context) -> None:
    assert len(context.asked) == 1, context.asked
    assert len(rows(context)[0][""]) >= 6


# -- the host --------------------------------------------------------------------------------------


@when("a call of it arrives, and is cancelled before its first step")
def step_a_call_of_it_arrives_and_is_cancelled_before_its_first_step(context: Context) -> None:
    async def main() -> list[Any]:
        host = context.host
        assert (await host.open())[0] == "open"
        data = dump_call(RemoteCall((), False, (None,), {}, {}), pickle.dumps)
        events = host.execute([(1, data)])
        step = asyncio.ensure_future(anext(events))
        # After the step of `execute` that makes the task of the call, before that task's own.
        host.control([("cancel", 1, 0)])
        async with asyncio.timeout(LIMIT):
            happened = await step
        await events.aclose()
        await host.close()
        return [happened]

    context.events = asyncio.run(main())


@given("a host of a graph whose factory waits")
def step_a_host_of_a_graph_whose_factory_waits(context: Context) -> None:
    context.entered, context.go_on, context.left = Gate(), Gate(), Gate()

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        context.entered.open()
        await context.go_on.wait_async()
        yield models.asking
        context.left.open()

    context.host = GraphHost(make, (), 4, pickle.dumps)


@when("its start is cancelled, and the factory goes on")
def step_its_start_is_cancelled_and_the_factory_goes_on(context: Context) -> None:
    async def main() -> int:
        start = asyncio.ensure_future(context.host.open())
        await context.entered.wait_async()
        start.cancel()
        await asyncio.wait([start])
        context.go_on.open()
        await context.left.wait_async()
        await until(lambda: len(asyncio.all_tasks()) == 1)
        return len(asyncio.all_tasks())

    context.tasks = asyncio.run(main())


@then("the graph is left, and no task is")
def step_the_graph_is_left_and_no_task_is(context: Context) -> None:
    assert context.left.is_open and context.tasks == 1
