"""LangGraph's features, streamed through the bridge and without it."""

from __future__ import annotations

from typing import Any, TypedDict

import reactivex as rx
from behave import then, when
from behave.runner import Context
from langgraph.graph import START, StateGraph
from reactivex import operators as ops

from support.bridge.chunks import alone, through_stream
from support.bridge.langgraph_cases import CASES
from support.concurrency.raising import error_of
from support.concurrency.tasks import run

# One alone, and what comes in between of the others.
MODES = (
    ["updates"],
    ["values"],
    ["custom", "tasks", "tools"],
    ["values", "updates", "custom", "messages", "tasks"],
    ["debug", "checkpoints"],
)
# Their nodes end in any order.
AT_ONCE = {
    "parallel nodes and a deferred one",
    "Send to many",
    "questions at once, and no answer",
}
# With these LangGraph makes chat models stream, and the fake one cannot stream calls of tools.
STREAMING = {"messages", "tools"}
SILENT = {"create_react_agent with a tool", "create_agent with a tool"}


@when('a graph that shows "{name}" is streamed by "astream", and through stream')
def step_a_graph_that_shows_name_is_streamed(context: Context, name: str) -> None:
    context.compared = []
    for modes in MODES:
        asked = [mode for mode in modes if mode not in STREAMING or name not in SILENT]
        for subgraphs in (False, True):
            bare = alone(CASES[name], asked, subgraphs)
            ours = through_stream(context.bridge, CASES[name], asked, subgraphs)
            if name in AT_ONCE:
                bare, ours = (
                    ([sorted(each) for each in chunks], results) for chunks, results in (bare, ours)
                )
            context.compared.append((asked, subgraphs, bare, ours))


@then("the chunks are the same in each mode, with subgraphs and without, and so is the result")
def step_the_chunks_are_the_same_in_each_mode(context: Context) -> None:
    for modes, subgraphs, bare, ours in context.compared:
        assert ours == bare, f"{modes}, subgraphs={subgraphs}:\n{ours}\n{bare}"


@when(
    'a graph and a function behind it, as a sequence, are streamed by "astream", and through stream'
)
def step_a_graph_and_a_function_behind_it_as_a_sequence(context: Context) -> None:
    case = CASES["a graph in a sequence"]
    context.error = error_of(lambda: alone(case, ["updates"], False))
    context.streamed = (
        rx.just({"n": 1}).pipe(context.bridge.stream(case.make()), ops.to_list()).run()
    )
    context.result = run(case.make().ainvoke({"n": 1}))


@then('"astream" has failed, for the function got a chunk')
def step_astream_has_failed(context: Context) -> None:
    assert isinstance(context.error, TypeError | KeyError), repr(context.error)


@then('through stream came the chunks of the graph, and what "ainvoke" returns')
def step_through_stream_came_the_chunks_of_the_graph(context: Context) -> None:
    *chunks, result = context.streamed
    assert [each.content["more"]["n"] for each in chunks] == [2, 3, 4, 5]
    assert result.content == context.result == 5


class Whole(TypedDict):
    """What a graph works with."""

    question: str
    answer: str


class Part(TypedDict):
    """What it returns of that."""

    answer: str


@when("a graph with an output schema of its own is streamed")
def step_a_graph_with_an_output_schema_of_its_own_is_streamed(context: Context) -> None:
    builder = StateGraph(Whole, output_schema=Part)
    builder.add_node("node", lambda state: {"answer": state["question"].upper()})
    graph = builder.add_edge(START, "node").compile()
    question: Any = {"question": "a"}

    async def read() -> list[Any]:
        stream = context.bridge.astream(graph, question, stream_mode="values")
        return [item async for item in stream]

    context.items, context.expected = run(read()), graph.invoke(question)


@then('its chunks have the whole state, and its result has what "ainvoke" returns')
def step_its_chunks_have_the_whole_state(context: Context) -> None:
    *chunks, result = context.items
    assert chunks[-1].content == {"question": "a", "answer": "A"}, chunks
    assert result.content == context.expected == {"answer": "A"}, result
