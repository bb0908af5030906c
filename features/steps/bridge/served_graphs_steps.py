"""Graphs of a LangGraph server, through the bridge and by LangGraph's own client alone."""

from __future__ import annotations

from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from reactivex import operators as ops

from rxlanggraph import StreamMessage
from support.bridge.asking import ASKING, Said
from support.bridge.served import served
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT

HELLO: Any = {"said": ["hello"]}


@given("a server's graph that stops in {place}")
def step_a_servers_graph_that_stops_in_place(context: Context, place: str) -> None:
    context.graph = served(ASKING[place](InMemorySaver()))


@given("a server's graph of the nodes first and second")
def step_a_servers_graph_of_the_nodes_first_and_second(context: Context) -> None:
    def saying(name: str) -> Any:
        return name, lambda _: {"said": [name]}

    builder: Any = StateGraph(Said).add_sequence([saying("first"), saying("second")])
    context.graph = served(builder.add_edge(START, "first").compile(InMemorySaver()))


@when('it is called with interrupt_before=["second"]')
def step_it_is_called_with_interrupt_before_second(context: Context) -> None:
    call = context.bridge.create_future_task
    context.results = [
        call(context.graph, StreamMessage(content, "t"), interrupt_before=stops).result(LIMIT)
        for content, stops in ((HELLO, ["second"]), (None, None))
    ]


@then("it has stopped there, and None continues it")
def step_it_has_stopped_there_and_none_continues_it(context: Context) -> None:
    assert [(each.status, each.content["said"]) for each in context.results] == [
        ("interrupted", ["hello", "first"]),
        ("ok", ["hello", "first", "second"]),
    ], context.results


@when('it is streamed by "astream", and through stream, in the modes {modes}')
def step_it_is_streamed_by_astream_and_through_stream(context: Context, modes: str) -> None:
    asked = modes.split(", ")

    async def alone() -> list[Any]:
        config = {"configurable": {"thread_id": "alone"}}
        return [tuple(c)[:2] async for c in context.graph.astream(HELLO, config, stream_mode=asked)]

    context.alone = run(alone())
    message = StreamMessage(HELLO, "t")
    streamed = context.bridge.stream(context.graph, stream_mode=asked)
    context.streamed = rx.just(message).pipe(streamed, ops.to_list()).run()


@then("the same chunks have come, and then the result")
def step_the_same_chunks_have_come_and_then_the_result(context: Context) -> None:
    *chunks, result = context.streamed
    assert [(each.mode, each.content) for each in chunks] == context.alone, context.streamed
    assert result.content == {"said": ["hello", "first", "second"]}, result
