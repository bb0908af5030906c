"""Steps for what runs have used of models."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langchain_core.caches import InMemoryCache

from rxlanggraph import RxPyLangGraphBridge, StreamMessage, errors
from rxlanggraph.limits import Limits, ModelLimit, Price, Spent, Usage
from support.bridge.bridges import make_bridge
from support.concurrency.waiting import LIMIT
from support.limits.models import ProviderModel
from support.limits.nodes import NODES, Text, graph_of_node

PRICES: dict[str, Price | dict[str, float]] = {
    "small": Price(2, 10),
    "large": {"input": 20, "output": 100},
}
SHORT = "10 20"


def model(context: Context, **options: Any) -> ProviderModel:
    return ProviderModel(url=context.provider.url, **options)


@given(
    'an open bridge that counts usage, where a million tokens of "small" cost 2 and 10, '
    'and of "large" 20 and 100'
)
def step_an_open_bridge_that_counts_usage(context: Context) -> None:
    context.usage = Usage(PRICES)
    context.limits = Limits(ModelLimit(tokens=10**9))
    make_bridge(context, usage=context.usage, limits=context.limits)


@when(
    'in {node}, 3 messages on 2 threads call "small" with 1000 tokens and 500 more, '
    'and one without a thread "large" with 10 and 20 more'
)
def step_in_node_3_messages_on_2_threads_call(context: Context, node: str) -> None:
    small, large = (NODES[node](model(context, model=name)) for name in ("small", "large"))
    context.messages = [
        StreamMessage({"text": "1000 1500"}, thread_id=thread) for thread in ("a", "b", "a")
    ]
    context.messages.append(StreamMessage({"text": "10 30"}))
    graphs = [small, small, small, large]
    runs = [
        context.bridge.create_future_task(graph, message)
        for graph, message in zip(graphs, context.messages, strict=True)
    ]
    context.results = [run.result(LIMIT) for run in runs]


@then("the usage is this")
def step_the_usage_is_this(context: Context) -> None:
    usage: Usage = context.usage
    places: dict[str, Callable[[], Spent]] = {
        "in total": usage.total,
        "model small": lambda: usage.by_model()["small"],
        "model large": lambda: usage.by_model()["large"],
        "thread a": lambda: usage.by_thread()["a"],
        "thread b": lambda: usage.by_thread()["b"],
        "no thread": lambda: usage.by_thread()[None],
        "first message": lambda: usage.of(context.messages[0]),
    }
    assert usage.of(context.results[0]) == usage.of(context.messages[0])
    for row in context.table:
        found = places[row["of"]]()
        expected = Spent(int(row["calls"]), int(row["input"]), int(row["output"]), cost=found.cost)
        assert found == expected, (row["of"], found)
        assert abs(found.cost - float(row["cost"])) < 1e-9, (row["of"], found)


@when("a node calls the model, fails, and is retried; and one whose model answers 500")
def step_a_node_calls_the_model_fails_and_is_retried(context: Context) -> None:
    asked, failed = model(context), []

    async def node(state: Text) -> dict[str, str]:
        await asked.ainvoke(state["text"])
        if not failed:
            failed.append(1)
            raise OSError
        return {}

    context.messages = [StreamMessage({"text": SHORT}) for _ in range(2)]
    first, second = context.messages
    context.bridge.create_future_task(graph_of_node(node), first, retry=1).result(LIMIT)
    context.provider.script["small"] = deque([(500, {})])
    graph = NODES["an async node"](asked)
    failed_run = context.bridge.create_future_task(graph, second, errors="emit")
    assert failed_run.result(LIMIT).status == "error"


@then("2 calls are counted for the first, and none for the second")
def step_2_calls_are_counted_for_the_first(context: Context) -> None:
    first, second = map(context.usage.of, context.messages)
    assert (first.calls, first.tokens) == (2, 40) and second == Spent(), (first, second)


@then(
    "of 1000 tokens, 600 from the cache and 100 to it, and 10 of the answer, "
    "at 10, 30, 1 and 12, the cost is {cost:g}"
)
def step_of_1000_tokens_600_from_the_cache(context: Context, cost: float) -> None:
    usage = Usage({"m": {"input": 10, "output": 30, "cache_read": 1, "cache_write": 12}})
    details = {"cache_read": 600, "cache_creation": 100}
    tokens = {"input_tokens": 1000, "output_tokens": 10, "input_token_details": details}
    usage.add(StreamMessage(1), ("m",), tokens)
    assert abs(usage.total().cost - cost) < 1e-9, usage


@then("usage that is told of {what} has 1 call without a price and costs nothing")
def step_usage_that_is_told_of(context: Context, what: str) -> None:
    usage = Usage(PRICES)
    told: dict[str, tuple[str, Any]] = {
        "a model that has no price": ("other", {"input_tokens": 5, "output_tokens": 5}),
        "an answer that tells nothing": ("small", None),
        "an answer that tells nonsense": ("other", {"input_tokens": "x", "output_tokens": None}),
    }
    name, tokens = told[what]
    usage.add(StreamMessage(1), (name,), tokens)
    total = usage.total()
    assert (total.calls, total.unpriced, total.cost) == (1, 1, 0), total


@then('a price for "large-2026-01" applies to the model "large" that answers as "large-2026-01"')
def step_a_price_applies_to_the_model_that_answers_as(context: Context) -> None:
    usage = Usage({"large-2026-01": Price(1, 1)})
    usage.add(
        StreamMessage(1), ("large", "large-2026-01"), {"input_tokens": 10**6, "output_tokens": 0}
    )
    assert usage.by_model()["large"].cost == 1


@when("the same question is asked twice, with LangChain's cache")
def step_the_same_question_is_asked_twice(context: Context) -> None:
    graph = NODES["an async node"](model(context, cache=InMemoryCache()))
    for _ in range(2):
        context.bridge.create_future_task(graph, {"text": SHORT}).result(LIMIT)


@then("1 call is counted, and the provider was called once")
def step_1_call_is_counted_and_the_provider_was_called_once(context: Context) -> None:
    assert context.usage.total().calls == len(context.provider.log) == 1
    assert context.limits.statistics()["small"].tokens == 20


@when(
    "a node sends a message that calls the model to its bridge, "
    "and another one to a bridge without usage"
)
def step_a_node_sends_a_message_that_calls_the_model(context: Context) -> None:
    inner = NODES["an async node"](model(context))
    context.messages = [StreamMessage({"text": SHORT}) for _ in range(2)]
    with RxPyLangGraphBridge() as other:

        async def node(state: Text) -> dict[str, str]:
            await context.bridge.create_future_task(inner, context.messages[1])
            await other.create_future_task(inner, state)
            return {}

        run = context.bridge.create_future_task(graph_of_node(node), context.messages[0])
        run.result(LIMIT)


@then(
    "the usage of the node's message is nothing, that of the message is 1 call, "
    "and in total it is 1 call"
)
def step_the_usage_of_the_nodes_message_is_nothing(context: Context) -> None:
    outer, sent = map(context.usage.of, context.messages)
    assert (outer.calls, sent.calls, context.usage.total().calls) == (0, 1, 1), (outer, sent)
    assert len(context.provider.log) == 2


@then(
    "usage that keeps 10 of 1000 messages on 1000 threads has 10 of each, and a total of 1000 calls"
)
def step_usage_that_keeps_10_of_1000_messages(context: Context) -> None:
    usage = Usage(keep=10)
    messages = [StreamMessage(number, thread_id=str(number)) for number in range(1000)]
    for message in messages:
        usage.add(message, ("small",), {"input_tokens": 1, "output_tokens": 1})
    assert list(usage.by_thread()) == [str(number) for number in range(990, 1000)]
    assert [usage.of(message).calls for message in messages] == [0] * 990 + [1] * 10
    assert usage.total().calls == usage.by_model()["small"].calls == 1000


WRONG: dict[str, Any] = {
    "a list": [],
    "a number for a model": {"m": 5},
    "without output": {"m": {"input": 1}},
    "with another field": {"m": {"input": 1, "output": 1, "inputs": 1}},
    "negative": {"m": {"input": -1, "output": 1}},
    "not a number": {"m": {"input": float("nan"), "output": 1}},
    "text": {"m": {"input": "1", "output": 1}},
    "for a number": {5: {"input": 1, "output": 1}},
}


@then("prices that are {what} raise {error}")
def step_prices_that_are_raise(context: Context, what: str, error: str) -> None:
    expected = getattr(errors, error)
    try:
        Usage(WRONG[what])
    except expected:
        return
    raise AssertionError(f"{what} was accepted")
