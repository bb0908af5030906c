"""Results that pass through stages, beside messages that are worked on there."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, TypedDict

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from reactivex import operators as ops

from rxlanggraph import StreamMessage
from rxlanggraph.agent import AgentPool, BaseAgent
from support.bridge.bridges import answer, listen
from support.bridge.streams import Subscriber
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Log, thread

ON_THREAD = {"configurable": {"thread_id": "order-1"}}


# -- an order that waits ---------------------------------------------------------------------------


class Order(TypedDict, total=False):
    item: str
    released: bool


@given("an order that waits at an interrupt for its approval")
def an_order_waits(context: Context) -> None:
    def ask(_: Order) -> Order:
        return {}

    def release(_: Order) -> Order:
        return {"released": True}

    builder = StateGraph(Order).add_node(ask).add_node(release)
    builder.add_edge(START, "ask").add_edge("ask", "release").add_edge("release", END)
    context.orders = builder.compile(InMemorySaver(), interrupt_before=["release"])
    context.orders.invoke({"item": "tea"}, ON_THREAD)
    assert context.orders.get_state(ON_THREAD).next == ("release",)


async def approve(_: object) -> object:
    raise PermissionError("not approved")


@when('its approval fails, and its result goes on to the order\'s graph by plain "ainvoke"')
def approval_goes_on_by_ainvoke(context: Context) -> None:
    async def pipeline() -> None:
        content = None
        with contextlib.suppress(PermissionError):  # the stream is to live on
            content = await approve("order-1")
        await context.orders.ainvoke(content, ON_THREAD)

    run(pipeline())


@when("its approval fails, and its result goes on to the order's graph by invoke")
def approval_goes_on_by_invoke(context: Context) -> None:
    request = StreamMessage("order-1", thread_id="order-1")
    context.results = (
        rx.of(request)
        .pipe(
            context.bridge.invoke(approve, errors="emit"),
            context.bridge.invoke(context.orders, errors="emit"),
            ops.to_list(),
        )
        .run()
    )


@then("the order has not been released")
def step_the_order_has_not_been_released(context: Context) -> None:
    state = context.orders.get_state(ON_THREAD)
    assert state.next == ("release",) and "released" not in state.values, state


@then("the result of the approval arrives at the end of the pipeline")
def approval_arrives(context: Context) -> None:
    (result,) = context.results
    assert (result.status, type(result.error)) == ("error", PermissionError), result
    assert result.source.content == "order-1", result


# -- statuses and policies -------------------------------------------------------------------------


class Answering:
    """A graph that tells what it ran on."""

    def __init__(self) -> None:
        self.got = Log()

    async def __call__(self, content: Any) -> Any:
        self.got.add(content)
        await asyncio.sleep(0)
        return content


def result_of(status: Any, number: int = 0, **fields: Any) -> StreamMessage:
    """What a stage before this one would have emitted."""
    error = None if status in {"ok", "interrupted"} else LookupError(f"{status} {number}")
    source = StreamMessage(number)
    fields = {"error": error, "duration": 0.5, **fields}
    return StreamMessage(None if error else number, source=source, status=status, **fields)


def through(context: Context, items: list[Any], **options: Any) -> Subscriber:
    context.graph = Answering()
    context.subscriber = Subscriber()
    stage = context.bridge.invoke(context.graph, **options)
    context.subscriber.subscribe(rx.from_iterable(items).pipe(stage))
    return context.subscriber.wait_for_end()


@when('a result that was {status} goes through invoke with errors="{policy}", among others')
def result_goes_through(context: Context, status: str, policy: str) -> None:
    context.records = listen(context, "rxlanggraph")
    context.result = result_of(status)
    through(context, [1, context.result, result_of("ok", 2)], errors=policy, ordered=True)


@then("the stream ends with its error, and the graph ran on none but the others")
def stream_ends_with_its_error(context: Context) -> None:
    assert context.subscriber.error is context.result.error, context.subscriber.error
    assert [result.content for result in context.subscriber.items] == [1]
    assert context.bridge.registry.wait_idle(LIMIT)
    assert {*context.graph.got} <= {1, 2}


@then("that very result is emitted, and the graph ran on none but the others")
def very_result_is_emitted(context: Context) -> None:
    first, passed, last = context.subscriber.items
    assert passed is context.result, passed
    assert (first.content, last.content) == (1, 2)
    assert context.subscriber.ends == ["completed"]
    assert sorted(context.graph.got) == [1, 2] and context.records == []


@then("it is logged with its error, and the graph ran on none but the others")
def step_it_is_logged_with_its_error_and_the_graph_ran_on_none_but(context: Context) -> None:
    assert [result.content for result in context.subscriber.items] == [1, 2]
    assert context.subscriber.ends == ["completed"]
    (record,) = context.records
    assert record.exc_info[1] is context.result.error, record
    assert sorted(context.graph.got) == [1, 2]


@when('a message made with the status {status} goes through invoke with errors="raise"')
def step_a_message_made_with_the_status_status_goes_through_invoke(
    context: Context, status: Any
) -> None:
    through(context, [StreamMessage(1, status=status)], errors="raise")


@then("the stream has ended with a {name}")
def stream_has_ended_with(context: Context, name: str) -> None:
    assert context.subscriber.items == [] and list(context.graph.got) == []
    assert type(context.subscriber.error).__name__ == name, context.subscriber.error


# -- futures ---------------------------------------------------------------------------------------


@when('create_future_task gets a result that was {status}, with errors="{policy}"')
def step_create_future_task_gets_a_result_that_was_status_with(
    context: Context, status: str, policy: Any
) -> None:
    context.graph, context.result = Answering(), result_of(status)
    context.futures = [
        context.bridge.create_future_task(
            context.graph, context.result, thread_id="another", errors=policy
        )
    ]


@then("the future raises its error, and nothing ran")
def future_raises_its_error(context: Context) -> None:
    assert context.futures[0].exception(LIMIT) is context.result.error
    assert list(context.graph.got) == []


@then("the future returns that result, and nothing ran")
def future_returns_that_result(context: Context) -> None:
    assert answer(context) is context.result
    assert list(context.graph.got) == []


@then("the future is cancelled, and nothing ran")
def future_is_cancelled(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.futures[0].cancelled()
    assert list(context.graph.got) == []


# -- order and bounds ------------------------------------------------------------------------------


def every_third_failed(count: int) -> list[StreamMessage]:
    return [result_of("ok" if number % 3 else "error", number) for number in range(count)]


@when("{count:d} results of which every third failed go through invoke with ordered=True")
def step_count_results_of_which_every_third_failed_go_through(context: Context, count: int) -> None:
    context.sent = every_third_failed(count)
    through(context, context.sent, errors="emit", ordered=True)


@then("they are emitted in their order, and the graph ran on the others alone")
def emitted_in_order(context: Context) -> None:
    got = context.subscriber.items
    assert len(got) == len(context.sent)
    for number, (sent, result) in enumerate(zip(context.sent, got, strict=True)):
        if number % 3:
            assert result.source.id == sent.id and result.content == number, result
        else:
            assert result is sent, result
    assert sorted(context.graph.got) == [n for n in range(len(got)) if n % 3]


@when("a failed result follows a message that still runs on its thread, into the same invoke")
def failed_result_follows(context: Context) -> None:
    context.result = result_of("error", thread_id="t")
    context.subscriber = Subscriber()
    stage = context.bridge.invoke(context.work.wait, errors="emit")
    items = [StreamMessage({"value": 0}, "t"), context.result]
    context.subscriber.subscribe(rx.from_iterable(items).pipe(stage))
    context.work.began.wait_for(1)


@then("the result is emitted after that run's, once the gate opens")
def step_the_result_is_emitted_after_that_runs_once_the_gate_opens(context: Context) -> None:
    # A message without a thread, sent after it and answered, shows that the loop has seen it.
    context.bridge.create_future_task(context.work.answer, {"value": 1}).result(LIMIT)
    assert context.subscriber.items == []
    context.work.gate.open()
    first, second = context.subscriber.wait_for_end().items
    assert first.status == "ok" and second is context.result, (first, second)


@when("a failed result goes through invoke with a thread_id function of the content")
def step_a_failed_result_goes_through_invoke_with_a_thread_id(context: Context) -> None:
    context.asked = []

    def choose(item: Any) -> str:
        context.asked.append(item.content)
        return f"thread-{item.content['user']}"

    context.result = result_of("error", thread_id="before")
    good = [StreamMessage({"user": user}) for user in "ab"]
    through(context, [good[0], context.result, good[1]], errors="emit", thread_id=choose)


@then("the function was asked about the others alone, and the result kept its thread")
def step_the_function_was_asked_about_the_others_alone_and_the(context: Context) -> None:
    assert context.asked == [{"user": "a"}, {"user": "b"}], context.asked
    (failed,) = [result for result in context.subscriber.items if result.status == "error"]
    assert failed is context.result and failed.thread_id == "before"


@when("{count:d} failed results go through invoke, from a thread of their own")
def failed_results_from_a_thread(context: Context, count: int) -> None:
    sent = [result_of("error", number) for number in range(count)]
    thread(lambda: through(context, sent, errors="emit")).result(LIMIT)


@then("all {count:d} are emitted, and the bridge answers the next message")
def all_are_emitted(context: Context, count: int) -> None:
    assert len(context.subscriber.items) == count
    assert list(context.graph.got) == []
    assert context.bridge.create_future_task(context.graph, 1).result(LIMIT).content == 1


# -- agents ----------------------------------------------------------------------------------------


@when("failed and good results go through invoke of {kind}")
def step_failed_and_good_results_go_through_invoke_of_kind(context: Context, kind: str) -> None:
    context.requests = Log()

    async def llm(messages: Any) -> str:
        context.requests.add(messages[-1].content)
        return "yes"

    def make(name: str) -> BaseAgent:
        return BaseAgent(name, llm=llm)

    graph = make("clerk") if kind == "an agent" else AgentPool(make)
    context.sent = [
        result_of("error", thread_id="t"),
        StreamMessage("is there tea?", "t", source=StreamMessage(1)),
        result_of("timed_out", thread_id="t"),
    ]
    stage = context.bridge.invoke(graph, errors="emit", ordered=True)
    context.results = rx.from_iterable(context.sent).pipe(stage, ops.to_list()).run()


@then("it has answered the good ones alone, and the failed ones came through")
def step_it_has_answered_the_good_ones_alone_and_the_failed_ones(context: Context) -> None:
    first, second, third = context.results
    assert first is context.sent[0] and third is context.sent[2], context.results
    assert (second.status, second.content) == ("ok", "yes"), second
    assert list(context.requests) == ["is there tea?"], list(context.requests)
