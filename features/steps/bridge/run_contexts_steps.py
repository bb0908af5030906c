"""What of the sender reaches a run: of a node, of a span, of a trace."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.types import interrupt
from langsmith import Client, traceable
from langsmith.run_helpers import tracing_context
from opentelemetry import trace
from reactivex import operators as ops
from reactivex.subject import Subject

from rxlanggraph import StreamMessage
from support.bridge.bridges import answer
from support.bridge.graphs import one_node
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Gate, Log

HELLO: Any = {"value": None}


class Heard(BaseCallbackHandler):
    """Hears of every chain that begins under it."""

    def __init__(self) -> None:
        self.names = Log()

    def on_chain_start(self, _: Any, inputs: Any, **about: Any) -> None:
        self.names.add(about.get("name"))


def tell_config(_: object) -> Any:
    config = get_config()
    told = {"thread_id": config["configurable"].get("thread_id"), "tags": config.get("tags")}
    return {"value": told}


@given("a graph that asks and one that tells its config")
def step_a_graph_that_asks_and_one_that_tells_its_config(context: Context) -> None:
    context.telling = one_node(tell_config)
    context.telling.name = "telling"
    context.asking = one_node(lambda _: {"value": interrupt("really?")})
    context.told = Log()


def parent_of(context: Context, node: Any) -> Any:
    """A graph of ``node``, with a checkpointer; what it is called with."""
    context.saver, context.heard = InMemorySaver(), Heard()
    context.parent = one_node(node, checkpointer=context.saver)
    return {"tags": ["parent"], "callbacks": [context.heard]}


@when(
    "a node of a graph with a checkpointer, tags and callbacks "
    'starts the other by plain "create_task"'
)
def step_a_node_of_a_graph_with_a_checkpointer_tags_and_callbacks(context: Context) -> None:
    async def node(state: Any) -> Any:
        told = await asyncio.create_task(context.telling.ainvoke(HELLO))
        context.told.add(told["value"])
        return state

    config = parent_of(context, node)
    run(context.parent.ainvoke(HELLO, {**config, "configurable": {"thread_id": "parent"}}))


def by_future_async(context: Context) -> Callable[..., Any]:
    async def node(state: Any) -> Any:
        future = context.bridge.create_future_task(context.telling, HELLO)
        context.told.add((await asyncio.wrap_future(future)).content["value"])
        return state

    return node


def by_future_sync(context: Context) -> Callable[..., Any]:
    def node(state: Any) -> Any:
        future = context.bridge.create_future_task(context.telling, HELLO)
        context.told.add(future.result(LIMIT).content["value"])
        return state

    return node


def by_stream(context: Context) -> Callable[..., Any]:
    subject: Subject[Any] = Subject()
    stream = subject.pipe(context.bridge.invoke(context.telling))
    context.subscription = stream.subscribe(
        lambda result: context.told.add(result.content["value"])
    )
    context.add_cleanup(context.subscription.dispose)

    async def node(state: Any) -> Any:
        subject.on_next(HELLO)
        return state

    return node


def by_lambda(context: Context) -> Callable[..., Any]:
    node = RunnableLambda(by_future_async(context))

    async def call(state: Any) -> Any:
        return await node.ainvoke(state)

    return call


def by_function(context: Context) -> Callable[..., Any]:
    async def call(content: Any) -> Any:
        return await context.telling.ainvoke(content)

    def node(state: Any) -> Any:
        context.told.add(
            context.bridge.create_future_task(call, HELLO).result(LIMIT).content["value"]
        )
        return state

    return node


WAYS = {
    "create_future_task in an async node": by_future_async,
    "create_future_task in a sync node": by_future_sync,
    "a stream through invoke": by_stream,
    "a RunnableLambda": by_lambda,
    "a plain function that calls the other": by_function,
}


@when("a node of a graph with a checkpointer, tags and callbacks sends by {way}")
def node_sends(context: Context, way: str) -> None:
    config = parent_of(context, WAYS[way](context))
    future = context.bridge.create_future_task(
        context.parent, HELLO, thread_id="parent", config=config
    )
    future.result(LIMIT)


@then("the other has neither the thread, the tags nor the callbacks of the node's graph")
def step_the_other_has_neither_the_thread_the_tags_nor_the(context: Context) -> None:
    (told,) = context.told.wait_for(1)
    assert told["thread_id"] is None and not told["tags"], told
    assert "telling" not in list(context.heard.names), list(context.heard.names)


@then("the checkpointer of the node's graph knows its own thread alone")
def step_the_checkpointer_of_the_nodes_graph_knows_its_own_thread(context: Context) -> None:
    known = {
        (each.config["configurable"]["thread_id"], each.config["configurable"]["checkpoint_ns"])
        for each in context.saver.list(None)
    }
    assert known == {("parent", "")}, known


@when("a node sends to the graph that asks")
def step_a_node_sends_to_the_graph_that_asks(context: Context) -> None:
    async def node(state: Any) -> Any:
        future = context.bridge.create_future_task(context.asking, HELLO, errors="emit")
        context.futures.append(future)
        await asyncio.wait([asyncio.wrap_future(future)])
        return state

    config = parent_of(context, node)
    context.bridge.create_future_task(
        context.parent, HELLO, thread_id="parent", config=config
    ).result(LIMIT)


@then("the run ends with its question")
def step_the_run_ends_with_its_question(context: Context) -> None:
    result = answer(context)
    assert result.error is None, result.error
    (question,) = result.content["__interrupt__"]
    assert question.value == "really?", question


# -- what crosses ----------------------------------------------------------------------------------

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
SPAN = trace.NonRecordingSpan(
    trace.SpanContext(trace_id=7, span_id=8, is_remote=False, trace_flags=trace.TraceFlags(1))
)


@contextlib.contextmanager
def somebody_with(what: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if what == "a context variable":
            stack.callback(tenant.reset, tenant.set("acme"))
        else:
            stack.enter_context(trace.use_span(SPAN))
        yield


def seen(_: object) -> Any:
    span = trace.get_current_span().get_span_context()
    return {"value": (tenant.get(None), span.span_id)}


@when("a sender with {what} sends from {where}")
def step_a_sender_with_what_sends_from_where(context: Context, what: str, where: str) -> None:
    graph = one_node(seen)

    async def node(state: Any) -> Any:
        with somebody_with(what):
            future = context.bridge.create_future_task(graph, HELLO)
        context.futures.append(future)
        return state

    if where == "a node":
        context.bridge.create_future_task(one_node(node), HELLO).result(LIMIT)
    else:
        run(node(HELLO))


@then("the run has {what}")
def the_run_has(context: Context, what: str) -> None:
    name, span_id = answer(context).content["value"]
    assert (name == "acme") == (what == "a context variable"), (name, span_id)
    assert (span_id == 8) == (what != "a context variable"), (name, span_id)


@when(
    "{count:d} messages, each sent with a context variable of its own, "
    "go through two stages: {mode}"
)
def messages_through_stages(context: Context, count: int, mode: str) -> None:
    others, failing = Log(), mode.startswith("every third")

    async def first(content: Any) -> Any:
        if mode.startswith("in order") and content["value"] == 0:
            await context.work.gate.wait_async()
        if failing and content["value"] % 3 == 2:
            raise LookupError("not this one")
        others.add(content)
        return content

    async def second(content: Any) -> Any:
        return {**content, "tenant": tenant.get()}

    subject: Subject[Any] = Subject()
    context.got, ended = Log(), Gate()
    subject.pipe(
        context.bridge.invoke(first, ordered=mode.startswith("in order"), errors="emit"),
        ops.map(lambda result: result if result.error else result.content),
        context.bridge.invoke(second, errors="emit"),
    ).subscribe(lambda result: context.got.add((result, tenant.get())), on_completed=ended.open)

    def send(number: int) -> None:
        tenant.set(f"tenant-{number}")
        subject.on_next({"value": number})

    for number in range(count):
        contextvars.copy_context().run(send, number)
    if mode.startswith("in order"):
        others.wait_for(count - 1)
    context.work.gate.open()
    subject.on_completed()
    ended.wait()


@then("each run of the second stage, and each result, had the context variable of its message")
def step_each_run_of_the_second_stage_and_each_result_had_the(context: Context) -> None:
    for result, heard in context.got:
        if result.error is None:
            assert result.content["tenant"] == f"tenant-{result.content['value']}", result
        value = (result.content or result.source.content)["value"]
        assert heard == f"tenant-{value}", (heard, result)


@when("a sender with a context variable sends a message, and is notified of {what}")
def step_a_sender_with_a_context_variable_sends_a_message_and_is(
    context: Context, what: str
) -> None:
    work, message, options = context.work, HELLO, {"timeout": 0.02}
    graph: Any = work.wait
    if what == "the timeout of a blocked thread":
        graph = work.block
    elif what == "the timeout of a stuck attempt":
        graph, options = work.swallow, {"timeout": 0.02, "retry": 1}
    elif what == "a failed result that came through":
        message = StreamMessage(1, status="error", error=LookupError("not this one"))
    subject: Subject[Any] = Subject()
    context.got = Log()
    stage = context.bridge.invoke(graph, errors="emit", **options)
    subject.pipe(stage).subscribe(lambda result: context.got.add((result.status, tenant.get(None))))
    with somebody_with("a context variable"):
        subject.on_next(message)


@then("the notified code has that context variable")
def step_the_notified_code_has_that_context_variable(context: Context) -> None:
    ((status, heard),) = context.got.wait_for(1)
    assert status in {"timed_out", "error"} and heard == "acme", (status, heard)


# -- traces ----------------------------------------------------------------------------------------


@when("{sender} sends to a traced graph")
def sender_sends_traced(context: Context, sender: str) -> None:
    client = mock.Mock(spec=Client)
    client.tracing_queue = None
    context.traced = []

    def create_run(**fields: Any) -> None:
        context.traced.append(SimpleNamespace(**fields))

    client.create_run.side_effect = create_run
    graph = one_node(lambda state: state)
    graph.name = "receiver"

    def send(_: object) -> Any:
        return context.bridge.create_future_task(graph, HELLO).result(LIMIT).content

    with tracing_context(enabled=True, client=client):
        if sender == "a node":
            context.bridge.create_future_task(one_node(send), HELLO).result(LIMIT)
        else:
            traceable(send, name="sender", client=client)(None)
    context.sender = "node" if sender == "a node" else "sender"


@then("the graph's trace is a child of {sender}, in one trace")
def trace_is_a_child(context: Context, sender: str) -> None:
    (receiver,) = [traced for traced in context.traced if traced.name == "receiver"]
    (above,) = [traced for traced in context.traced if traced.id == receiver.parent_run_id]
    assert above.name == context.sender, context.traced
    assert len({traced.trace_id for traced in context.traced}) == 1, context.traced
