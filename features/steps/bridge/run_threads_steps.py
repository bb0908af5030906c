"""Threads of runs, named in the ways of this package and of LangGraph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import reactivex as rx
from behave import then, when
from behave.runner import Context
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.base import RunnableBinding
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from reactivex import operators as ops

from rxlanggraph import StreamMessage
from support.bridge.graphs import count_of
from support.bridge.streams import Subscriber
from support.concurrency.raising import error_of
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT

HELLO: dict[str, Any] = {"value": 1}


def on(thread_id: Any) -> dict[str, Any]:
    """LangGraph's way to name a thread."""
    return {"configurable": {"thread_id": thread_id}}


@when('{count:d} messages at once go by plain "ainvoke" to the graph bound to the thread "{name}"')
def messages_go_by_ainvoke(context: Context, count: int, name: str) -> None:
    bound = context.graph.with_config(on(name))

    async def send_all() -> None:
        await asyncio.gather(*(bound.ainvoke(HELLO) for _ in range(count)))

    run(send_all())


# -- the ways -----------------------------------------------------------------------------------

Way = Callable[[Context, str, int], Iterable[Any]]


def by_call(context: Context, count: int, message: Any, graph: Any = None, **options: Any) -> Any:
    graph = context.graph if graph is None else graph
    return [context.bridge.create_future_task(graph, message, **options) for _ in range(count)]


def by_operator(context: Context, count: int, **options: Any) -> Any:
    future: Any = rx.from_iterable([HELLO] * count).pipe(
        context.bridge.invoke(context.graph, **options), ops.to_list()
    )
    return future.run()


def by_sequence(context: Context, name: str, count: int) -> Any:
    sequence = RunnableLambda(lambda content: content) | context.graph.with_config(on(name))
    return by_call(context, count, HELLO, sequence)


WAYS: dict[str, Way] = {
    "the message": lambda context, name, count: by_call(context, count, StreamMessage(HELLO, name)),
    "the argument": lambda context, name, count: by_call(context, count, HELLO, thread_id=name),
    "a function of the item": lambda context, name, count: by_operator(
        context, count, thread_id=lambda _: name
    ),
    "the config of each call": lambda context, name, count: by_call(
        context, count, HELLO, config=on(name)
    ),
    "the config of the operator": lambda context, name, count: by_operator(
        context, count, config=on(name)
    ),
    "a config in LangGraph's short form": lambda context, name, count: by_call(
        context, count, HELLO, config={"thread_id": name}
    ),
    "the graph's with_config": lambda context, name, count: by_call(
        context, count, HELLO, context.graph.with_config(on(name))
    ),
    "with_config below with_retry": lambda context, name, count: by_call(
        context, count, HELLO, context.graph.with_config(on(name)).with_retry()
    ),
    "with_config within a sequence": by_sequence,
    "a RunnableBinding's config": lambda context, name, count: by_call(
        context, count, HELLO, RunnableBinding(bound=context.graph, config=on(name))
    ),
    "the message and the config alike": lambda context, name, count: by_call(
        context, count, StreamMessage(HELLO, name), config=on(name)
    ),
}


def by_all(context: Context, name: str, count: int) -> list[Any]:
    share = count // len(WAYS)
    shares = [share + (number < count % len(WAYS)) for number in range(len(WAYS))]
    sent = [way(context, name, each) for way, each in zip(WAYS.values(), shares, strict=True)]
    return [result for results in sent for result in results]


@when('{count:d} messages are sent whose thread "{name:Text}" is named by {way}')
def messages_are_sent_by(context: Context, count: int, name: str, way: str) -> None:
    send = by_all if way.startswith("all of these") else WAYS[way]
    sent = [
        item if isinstance(item, StreamMessage) else item.result(LIMIT)
        for item in send(context, name, count)
    ]
    context.results = sent


@then('the count of the thread "{name:Text}" is {count:d}')
def count_of_the_thread(context: Context, name: str, count: int) -> None:
    assert count_of(context.graph, name) == count, count_of(context.graph, name)


@then('every result has the thread "{name}", and so has its source')
def every_result_has_the_thread(context: Context, name: str) -> None:
    for result in context.results:
        assert result.status == "ok", result
        assert (result.thread_id, result.source.thread_id) == (name, name), result


@when('{count:d} messages go to an async function, with the thread "{name}" in their config')
def step_count_messages_go_to_an_async_function_with_the_thread(
    context: Context, count: int, name: str
) -> None:
    for future in by_call(context, count, HELLO, context.work.answer, config=on(name)):
        future.result(LIMIT)


@then("no more than 1 of them was ever on at once")
def step_no_more_than_1_of_them_was_ever_on_at_once(context: Context) -> None:
    assert context.work.peak == 1, context.work.peak


# -- refused ------------------------------------------------------------------------------------


@when('the graph gets a message by "{call}"')
def the_graph_gets_a_message(context: Context, call: str) -> None:
    names = {
        "task": context.bridge.create_future_task,
        "invoke": context.bridge.invoke,
        "stream": context.bridge.stream,
        "last": lambda source: source.pipe(ops.last()).run(),
        "rx": rx,
        "HELLO": HELLO,
        "graph": context.graph,
        "Message": StreamMessage,
        "UUID": UUID,
        "on": on,
    }
    context.error = error_of(lambda: eval(call, names))


@when(
    "a message goes to a graph with a checkpointer whose config_factories name the thread, and "
    "whose node raises ValueError"
)
def step_a_message_goes_to_a_graph_whose_config_factories_name_the_thread(context: Context) -> None:
    def failing(state: MessagesState) -> MessagesState:
        raise ValueError("of the node")

    graph = StateGraph(MessagesState).add_node(failing).add_edge(START, "failing")
    compiled = graph.compile(InMemorySaver())
    bound = RunnableBinding(bound=compiled, config_factories=[lambda _: on("t")])
    future = context.bridge.create_future_task(bound, {"messages": []})
    context.error = error_of(lambda: future.result(LIMIT))


@when('a stream on the threads "b", "a" goes through invoke with the thread "b" in its config')
def step_a_stream_on_the_threads_b_a_goes_through_invoke_with_the(context: Context) -> None:
    context.subscriber = Subscriber()
    stage = context.bridge.invoke(context.graph, config=on("b"))
    items = [StreamMessage(HELLO, name) for name in "ba"]
    context.subscriber.subscribe(rx.from_iterable(items).pipe(stage))


@then('the stream ends with {name} that names "{first}" and "{second}"')
def step_the_stream_ends_with_name_that_names_first_and_second(
    context: Context, name: str, first: str, second: str
) -> None:
    error = context.subscriber.wait_for_end().error
    assert type(error).__name__ == name, repr(error)
    assert repr(first) in str(error) and repr(second) in str(error), error


@when('a message on the thread "{name}" goes to the graph with config={config}')
def step_a_message_on_the_thread_name_goes_to_the_graph_with(
    context: Context, name: str, config: str
) -> None:
    message = StreamMessage(HELLO, name)
    context.bridge.create_future_task(context.graph, message, config=eval(config)).result(LIMIT)
