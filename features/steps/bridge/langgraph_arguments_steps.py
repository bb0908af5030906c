"""LangGraph's own arguments of a call, through the bridge and without it."""

from __future__ import annotations

from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.config import get_config
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from reactivex import operators as ops

from rxlanggraph import StreamMessage
from support.bridge.graphs import State, one_node
from support.bridge.langgraph_cases import CASES, Case, comparable
from support.concurrency.raising import error_of
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT

ON_THREAD: Any = {"configurable": {"thread_id": "thread"}}


def state_of(graph: Any, case: Case) -> Any:
    if not case.checkpointed:
        return None
    state = graph.get_state(ON_THREAD)
    return comparable(state.values), state.next


def by_ainvoke(case: Case) -> Any:
    graph = case.make()
    config = ON_THREAD if case.checkpointed else None

    async def call_all() -> list[Any]:
        return [
            await graph.ainvoke(content, config, **arguments) for content, arguments in case.calls
        ]

    return comparable(run(call_all())), state_of(graph, case)


def through_bridge(context: Context, case: Case, entry: str) -> Any:
    graph, results = case.make(), []
    for content, arguments in case.calls:
        message = StreamMessage(content, "thread" if case.checkpointed else None)
        if entry == "invoke":
            result = rx.just(message).pipe(context.bridge.invoke(graph, **arguments)).run()
        else:
            future = context.bridge.create_future_task(graph, message, **arguments)
            result = future.result(LIMIT)
        results.append(result.content)
    return comparable(results), state_of(graph, case)


@when('a graph that shows "{name}" is called by "ainvoke", and by {entry}')
def step_a_graph_that_shows_name_is_called(context: Context, name: str, entry: str) -> None:
    context.alone = by_ainvoke(CASES[name])
    context.bridged = through_bridge(context, CASES[name], entry)


@then("the results are the same")
def step_the_results_are_the_same(context: Context) -> None:
    assert context.bridged == context.alone, f"{context.bridged} != {context.alone}"


@given("a graph of the nodes first and second")
def step_a_graph_of_the_nodes_first_and_second(context: Context) -> None:
    builder = StateGraph(State).add_sequence([("first", seen), ("second", seen)])
    context.graph = builder.add_edge(START, "first").compile()


# -- for each message ------------------------------------------------------------------------------


def seen(state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
    config = get_config()
    thread = config["configurable"].get("thread_id")
    return {"value": (state["value"], runtime.context, config.get("tags"), thread)}


FUNCTIONS: dict[str, Any] = {
    "context": lambda message: f"context {message.content['value']}",
    "config": lambda message: {
        "tags": [f"tag {message.content['value']}"],
        "configurable": {"thread_id": f"thread {message.content['value']}"},
    },
    "timeout": lambda message: None if message.content["value"] else 0.01,
}


@when("two messages go by {entry}, with a function of the message for context and for config")
def step_two_messages_go_by_entry_with_a_function_of_the_message(
    context: Context, entry: str
) -> None:
    chosen = {name: FUNCTIONS[name] for name in ("context", "config")}
    graph = one_node(seen)
    messages = [{"value": 1}, {"value": 2}]
    if entry == "invoke":
        operator = context.bridge.invoke(graph, **chosen, ordered=True)
        context.results = rx.from_iterable(messages).pipe(operator, ops.to_list()).run()
    else:
        create = context.bridge.create_future_task
        context.results = [create(graph, each, **chosen).result(LIMIT) for each in messages]


@then("each was called with its own context, tags and thread")
def step_each_was_called_with_its_own(context: Context) -> None:
    found = [(*result.content["value"], result.thread_id) for result in context.results]
    assert found == [
        (n, f"context {n}", [f"tag {n}"], f"thread {n}", f"thread {n}") for n in (1, 2)
    ], found


@when("two messages go to a waiting graph by {entry}, with a timeout for one of them alone")
def step_two_messages_go_with_a_timeout_for_one(context: Context, entry: str) -> None:
    async def wait_or_answer(content: Any) -> Any:
        if not content["value"]:
            await context.work.gate.wait_async()
        return content

    messages = [{"value": 0}, {"value": 1}]
    options = {"timeout": FUNCTIONS["timeout"], "errors": "emit"}
    if entry == "invoke":
        operator = context.bridge.invoke(wait_or_answer, **options, ordered=True)
        context.results = rx.from_iterable(messages).pipe(operator, ops.to_list()).run()
    else:
        create = context.bridge.create_future_task
        runs = [create(wait_or_answer, each, **options) for each in messages]
        context.results = [each.result(LIMIT) for each in runs]


@then("that one timed out, and the other was answered")
def step_that_one_timed_out(context: Context) -> None:
    assert [result.status for result in context.results] == ["timed_out", "ok"]


@when("{what} of a message raises ZeroDivisionError, by {entry}")
def step_what_of_a_message_raises_zerodivisionerror_by_entry(
    context: Context, what: str, entry: str
) -> None:
    context.error = _error_by(context, entry, {what.removeprefix("the "): lambda message: 1 // 0})


@when("{what} of a message is given by an async function, by {entry}")
def step_what_of_a_message_is_given_by_an_async_function(
    context: Context, what: str, entry: str
) -> None:
    async def given(message: Any) -> None:
        raise AssertionError("nothing is to await it")

    context.error = _error_by(context, entry, {what.removeprefix("the "): given})


def _error_by(context: Context, entry: str, options: dict[str, Any]) -> BaseException:
    graph = one_node(lambda state: state)
    if entry == "invoke":
        operator = context.bridge.invoke(graph, **options)
        return error_of(rx.just({"value": 1}).pipe(operator).run)
    create = context.bridge.create_future_task
    return error_of(lambda: create(graph, {"value": 1}, **options))


@when("a function of content, context gets a context, by {entry}")
def step_a_function_gets_a_context(context: Context, entry: str) -> None:
    async def function(content: Any, context: Any) -> Any:
        return content, context

    if entry == "invoke":
        operator = context.bridge.invoke(function, context="shop")
        context.result = rx.just(1).pipe(operator).run()
    else:
        context.result = context.bridge.create_future_task(function, 1, context="shop").result()


@then("it has returned the content and the context")
def step_it_has_returned_the_content_and_the_context(context: Context) -> None:
    assert context.result.content == (1, "shop")
