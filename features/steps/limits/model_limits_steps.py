"""Steps for the limits of models."""

from __future__ import annotations

import asyncio
import contextlib
import email.message
import gc
import itertools
import math
import random
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httpx
import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from pydantic import BaseModel, ValidationError
from tenacity import AsyncRetrying, stop_after_attempt, wait_random_exponential

from rxlanggraph import RunTimeoutError, RxPyLangGraphBridge, StreamMessage, errors
from rxlanggraph.limits import Limits, ModelCall, ModelLimit, is_transient
from rxlanggraph.limits.gate import ProviderRefusal
from rxlanggraph.limits.limiter import ticket_for
from rxlanggraph.limits.signals import status_of
from rxlanggraph.limits.windows import Window
from rxlanggraph.testing import VirtualBridge
from support.bridge.bridges import expire, make_bridge
from support.concurrency import forks
from support.concurrency.waiting import LIMIT, Gate
from support.limits.models import ProviderError, ProviderModel
from support.limits.nodes import NODES, Text, graph_of_node
from support.limits.provider import EPOCH, Bucket, FixedWindow, Provider, SlidingWindow

KINDS = {"a sliding window": SlidingWindow, "fixed windows": FixedWindow, "a bucket": Bucket}
SHORT = "10 20"  # a question of 10 tokens, and as many of the answer


def send(context: Context, model: ProviderModel, texts: list[str], **options: Any) -> list[Any]:
    """The results of messages to a node that calls ``model``, in virtual time."""
    messages = [StreamMessage({"text": text}) for text in texts]
    graph = options.pop("graph", None) or NODES["an async node"](model)
    results: list[Any] = []
    stream = rx.from_iterable(messages).pipe(
        context.bridge.invoke(graph, errors="emit", **options),
        rx.operators.do_action(results.append),
    )
    context.bridge.run(stream)
    return results


def model(context: Context, **options: Any) -> ProviderModel:
    return ProviderModel(url=context.provider.url, **options)


def virtual(
    context: Context,
    limit: ModelLimit | None,
    max_concurrency: int = 32,
    **options: Any,
) -> None:
    def time() -> float:
        return EPOCH + float(context.bridge.time())

    context.limits = None if limit is None else Limits(limit, time=time, **options)
    context.bridge = VirtualBridge(max_concurrency=max_concurrency, limits=context.limits)
    context.add_cleanup(context.bridge.close)
    context.provider.now = context.bridge.time


def idle(context: Context) -> None:
    for key, figures in context.limits.statistics().items():
        assert (figures.in_flight, figures.waiting) == (0, 0), (key, figures)


# -- given -------------------------------------------------------------------------------------


@given("a provider that allows {number:d} {what} a minute, counted by {counting}")
def step_a_provider_that_allows(context: Context, number: int, what: str, counting: str) -> None:
    context.limit = {what: number}
    context.provider = Provider(lambda: 0.0, kind=KINDS[counting], **context.limit)
    context.add_cleanup(context.provider.close)


@given("a bridge in virtual time that knows this limit")
def step_a_bridge_in_virtual_time_that_knows_this_limit(context: Context) -> None:
    # Numbers of tokens are part of the question: one does not know them before.
    virtual(context, ModelLimit(**context.limit), 16)


@given("a bridge in virtual time that allows {number:d} call at once")
@given("a bridge in virtual time that allows {number:d} calls at once")
def step_a_bridge_in_virtual_time_that_allows_calls_at_once(context: Context, number: int) -> None:
    virtual(context, ModelLimit(concurrency=number))


@given("a bridge in virtual time that allows {number:d} tokens a minute")
def step_a_bridge_in_virtual_time_that_allows_tokens(context: Context, number: int) -> None:
    virtual(context, ModelLimit(tokens=number))


@given("a bridge in virtual time that allows each tenant 1 request a minute")
def step_a_bridge_in_virtual_time_that_allows_each_tenant_1(context: Context) -> None:
    def tenant(call: ModelCall) -> str | None:
        assert call.model == "small" and call.messages and call.message.content["text"] == SHORT
        return call.message.metadata.get("tenant")

    virtual(context, ModelLimit(requests=1), key=tenant)


@given("a bridge in virtual time whose function of the key returns 7")
def step_a_bridge_in_virtual_time_whose_function_of_the_key(context: Context) -> None:
    seven: Any = 7
    virtual(context, ModelLimit(requests=1), key=lambda _: seven)


@given("a bridge in virtual time whose calls are retried {count:d} times")
def step_a_bridge_in_virtual_time_whose_calls_are_retried(context: Context, count: int) -> None:
    virtual(context, None, 16)
    random.seed(1)
    context.retry = AsyncRetrying(
        stop=stop_after_attempt(count + 1), wait=wait_random_exponential(max=60)
    )


@given("an open bridge whose model may be called once an hour")
def step_an_open_bridge_whose_model_may_be_called_once_an_hour(context: Context) -> None:
    context.limits = Limits(ModelLimit(requests=1, per=3600))
    make_bridge(context, limits=context.limits)


# -- throughput --------------------------------------------------------------------------------


@when("600 messages call its model in {node}, 16 at a time")
def step_600_messages_call_its_model(context: Context, node: str) -> None:
    rnd = random.Random(1)
    # The model is asked for answers of any length, without saying so.
    sizes = [rnd.randint(200, 2000) for _ in range(600)]
    texts = [f"100 {size}" for size in sizes]
    asked = model(context, seconds=2.0)
    results = send(
        context, asked, texts, graph=NODES[node](asked), retry=getattr(context, "retry", None)
    )
    assert [each.error for each in results if each.status != "ok"] == []
    ((what, number),) = context.limit.items()
    used = 600 if what == "requests" else sum(sizes)
    # A burst at the beginning of each minute.
    context.needed = (math.ceil(used / number) - 1) * 60.0


@then("all are answered, in at most 1/0.95 of the time that the provider needs")
def step_all_are_answered_in_at_most(context: Context) -> None:
    statuses = context.provider.statuses()
    context.refused = statuses.count(429) / len(statuses)
    took = context.provider.times()[-1]
    assert statuses.count(200) == 600, statuses
    assert took <= (context.needed + 2) / 0.95, (took, context.needed)


@then("less than 1% of the calls were refused")
def step_less_than_1_of_the_calls_were_refused(context: Context) -> None:
    assert context.refused < 0.01, context.refused


# -- what a provider says ----------------------------------------------------------------------


@when('it answers a call with {status:d} and "{headers}", and calls of two models follow')
def step_it_answers_a_call_with(context: Context, status: int, headers: str) -> None:
    pairs = (each.split(": ", 1) for each in headers.split("; "))
    context.provider.script["small"] = deque([(status, dict(pairs))])
    small, other = model(context), model(context, model="other")

    async def node(state: Text) -> dict[str, str]:
        try:
            await small.ainvoke(SHORT)
        except ProviderError as error:
            assert error.status_code == status
        await asyncio.gather(small.ainvoke(SHORT), other.ainvoke(SHORT))
        return {}

    (result,) = send(context, small, [SHORT], graph=graph_of_node(node))
    result.raise_for_status()


@then("the next call of that model is {seconds:g} s later, and that of the other one at once")
def step_the_next_call_of_that_model_is_later(context: Context, seconds: float) -> None:
    first, second = context.provider.times("small")
    assert abs(second - first - seconds) < 0.01, (first, second)
    assert context.provider.times("other") == [first]
    idle(context)


@when("it answers 5 calls in a row with 429 and no headers")
def step_it_answers_5_calls_in_a_row_with_429(context: Context) -> None:
    context.provider.script["small"] = deque([(429, {})] * 5)
    results = send(context, model(context), [SHORT], retry=context.limits.retrying(6))
    assert results[0].status == "ok", results


@then("each pause is random, between half of and all of twice the one before, from 1 s on")
def step_each_pause_is_random(context: Context) -> None:
    times = context.provider.times()
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert len(pauses) == 5
    for number, pause in enumerate(pauses):
        # The retry's own wait, which is random too, may end after the pause.
        assert 2.0**number / 2 <= pause + 1e-6, pauses
        assert pause <= 2.0**number + 1e-6, pauses


@when("8 calls at once are refused, and 40 messages follow")
def step_8_calls_at_once_are_refused(context: Context) -> None:
    context.provider.script["small"] = deque([(429, {"retry-after": "10"})] * 8)
    asked = model(context, seconds=1.0)
    send(context, asked, [SHORT] * 48)


@then("there were 4 calls at once, and then 5, 6, 7 and 8, each after as many answers")
def step_there_were_4_calls_at_once(context: Context) -> None:
    by_time: dict[float, int] = {}
    for time in context.provider.times()[8:]:
        by_time[round(time)] = by_time.get(round(time), 0) + 1
    assert list(by_time.values()) == [4, 5, 6, 7, 8, 8, 2], by_time


@when("the estimate for each of 20 calls is 3000 tokens, and they use 1000")
def step_the_estimate_for_each_of_20_calls_is(context: Context) -> None:
    # The first guess of an answer is 500.
    virtual(context, ModelLimit(tokens=10000), count_tokens=lambda _: 2500)
    send(context, model(context), ["500 1000"] * 20)


@then("7 are made at once, where the estimates alone would allow 3, and none is refused")
def step_7_are_made_at_once(context: Context) -> None:
    times = context.provider.times()
    assert len(times) == 20 and context.provider.statuses() == [200] * 20
    assert times[6] == 0 and times[7] > 60, times
    assert context.limits.statistics()["small"].tokens == 20000


@when("3 calls of 5000 tokens are made")
def step_3_calls_of_5000_tokens_are_made(context: Context) -> None:
    send(context, model(context), ["1 5000"] * 3)


@then("they are made a minute apart")
def step_they_are_made_a_minute_apart(context: Context) -> None:
    first, second, third = context.provider.times()
    assert 60 <= second - first <= 63 and 60 <= third - second <= 63, (first, second, third)


@when("two tenants send 3 messages each, and 5 messages have no tenant")
def step_two_tenants_send_3_messages_each(context: Context) -> None:
    tenants = ["a", "b"] * 3 + [None] * 5
    messages = [
        StreamMessage({"text": SHORT}, metadata={"tenant": tenant} if tenant else {})
        for tenant in tenants
    ]
    graph = NODES["an async node"](model(context))
    context.ends = {}

    def note(result: StreamMessage) -> None:
        result.raise_for_status()
        tenant = result.source.metadata.get("tenant")
        context.ends.setdefault(tenant, []).append(context.bridge.time())

    context.bridge.run(
        rx.from_iterable(messages).pipe(context.bridge.invoke(graph), rx.operators.do_action(note))
    )


@then("those of each tenant are answered a minute apart, and those without one at once")
def step_those_of_each_tenant_are_answered_a_minute_apart(context: Context) -> None:
    assert context.ends.pop(None) == [0.0] * 5
    for times in context.ends.values():
        assert [round(time / 61.2) for time in times] == [0, 1, 2], context.ends
    assert context.ends.keys() == {"a", "b"}


# -- retries -----------------------------------------------------------------------------------


@when("a message is sent with 3 attempts, and its model answers {status:d} each time")
def step_a_message_is_sent_with_3_attempts(context: Context, status: int) -> None:
    context.provider.script["small"] = deque([(status, {})] * 3)
    results = send(context, model(context), [SHORT], retry=context.limits.retrying(3))
    assert results[0].error.status_code == status


@when("a message is sent with 3 attempts for 404 alone, and its model answers {status:d} each time")
def step_a_message_is_sent_with_3_attempts_for_404_alone(context: Context, status: int) -> None:
    context.provider.script["small"] = deque([(status, {})] * 3)
    retry = context.limits.retrying(3, transient=lambda error: status_of(error) == 404)
    send(context, model(context), [SHORT], retry=retry)


@then("it was called {count:d} times")
def step_it_was_called_times(context: Context, count: int) -> None:
    assert len(context.provider.log) == count, context.provider.log


@when("a message is sent with 3 attempts, and its model asks to wait 90 s, and then answers")
def step_a_message_is_sent_its_model_asks_to_wait(context: Context) -> None:
    context.provider.script["small"] = deque([(500, {"retry-after": "90"})])
    context.results = send(context, model(context), [SHORT], retry=context.limits.retrying(3))


@then("it was called at 0 s and at 90 s, and has its answer")
def step_it_was_called_at_0_s_and_at_90_s(context: Context) -> None:
    assert context.provider.times() == [0.0, 90.0], context.provider.times()
    assert context.results[0].status == "ok"


@when("300 messages are sent with 4 attempts, and the provider answers 500 to all calls")
def step_300_messages_are_sent_with_4_attempts(context: Context) -> None:
    context.provider.script["small"] = deque([(500, {})] * 1200)
    results = send(context, model(context), [SHORT] * 300, retry=context.limits.retrying(4))
    assert {each.status for each in results} == {"error"} and len(results) == 300


@then("there were at most {count:d} calls")
def step_there_were_at_most_calls(context: Context, count: int) -> None:
    assert 310 <= len(context.provider.log) <= count, len(context.provider.log)


def _urllib_error(status: int) -> Exception:
    from urllib.error import HTTPError

    error = HTTPError("http://x", status, "", email.message.Message(), None)
    error.close()
    return error


def _httpx_error(status: int) -> Exception:
    request = httpx.Request("GET", "http://x")
    response = httpx.Response(status, request=request)
    return httpx.HTTPStatusError("", request=request, response=response)


def _botocore_error(status: int) -> Exception:
    error: Any = Exception("ClientError")
    error.response = {"ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}
    return error  # type: ignore[no-any-return]


def _with(**attributes: Any) -> Exception:
    error = Exception()
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def _caused_by(error: Exception) -> Exception:
    outer = RuntimeError("the node failed")
    outer.__cause__ = error
    return outer


def _circle() -> Exception:
    error = RuntimeError()
    other = RuntimeError()
    error.__cause__, other.__cause__ = other, error
    return error


def _invalid() -> Exception:
    class Strict(BaseModel):
        number: int

    try:
        Strict(number="x")  # type: ignore[arg-type]
    except ValidationError as error:
        return error
    raise AssertionError


ERRORS: dict[str, Callable[[], BaseException]] = {
    "urllib's 429": lambda: _urllib_error(429),
    "urllib's 404": lambda: _urllib_error(404),
    "httpx's 503": lambda: _httpx_error(503),
    "httpx's refused connection": lambda: httpx.ConnectError("refused"),
    "httpx's timeout": lambda: httpx.ReadTimeout("slow"),
    "a botocore error with 429": lambda: _botocore_error(429),
    "a botocore error with 400": lambda: _botocore_error(400),
    "a Google error with code 503": lambda: _with(code=503),
    "an error caused by a 529": lambda: _caused_by(_with(status_code=529)),
    "a quota without money": lambda: _with(status_code=429, code="insufficient_quota"),
    "a TimeoutError": TimeoutError,
    "a RunTimeoutError": lambda: RunTimeoutError("late", limit="attempt"),
    "a pydantic ValidationError": _invalid,
    "a ValueError": ValueError,
    "an error that causes itself": _circle,
}


@then("an exception that is {error} is {kind}")
def step_an_exception_that_is(context: Context, error: str, kind: str) -> None:
    assert is_transient(ERRORS[error]()) is (kind == "transient")


# -- the end of a call -------------------------------------------------------------------------


def _given_up(asked: ProviderModel) -> Any:
    async def node(state: Text) -> dict[str, str]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                await asked.ainvoke(state["text"])
        await asyncio.sleep(1000)
        return {}

    return graph_of_node(node)


def _task_given_up(asked: ProviderModel) -> Any:
    async def node(state: Text) -> dict[str, str]:
        task = asyncio.create_task(asked.ainvoke(state["text"]))
        await asyncio.sleep(10)
        task.cancel()
        del task
        await asyncio.sleep(1000)
        return {}

    return graph_of_node(node)


def _stream_left(asked: ProviderModel) -> Any:
    async def node(state: Text) -> dict[str, str]:
        async for _ in asked.astream(state["text"]):
            break
        await asyncio.sleep(1000)
        return {}

    return graph_of_node(node)


def _stream_kept(asked: ProviderModel, kept: list[AsyncIterator[Any]]) -> Any:
    async def node(state: Text) -> dict[str, str]:
        kept.append(asked.astream(state["text"]))
        await anext(kept[0])
        return {}

    return graph_of_node(node)


@when("{what} is followed by another call, 10 s after it began")
def step_what_is_followed_by_another_call(context: Context, what: str) -> None:
    slow = model(context, seconds=10.0 if "stream" in what or "fails" in what else 500.0)
    if "fails" in what:
        context.provider.script["small"] = deque([(500, {})])
    kept: list[AsyncIterator[Any]] = []  # neither read to its end, nor closed
    makers: dict[str, Callable[[ProviderModel], Any]] = {
        "a stream that its node keeps as it ends": partial(_stream_kept, kept=kept),
        "a call that its node gives up": _given_up,
        "a stream that its node leaves": _stream_left,
        "a task that its node gives up": _task_given_up,
    }
    graph = makers.get(what, NODES["an async node"])(slow)
    timeout = 10.0 if "times out" in what else None
    bridge, quick = context.bridge, NODES["an async node"](model(context))

    async def main() -> None:
        first = bridge.create_future_task(graph, {"text": SHORT}, timeout=timeout, errors="emit")
        second = bridge.create_future_task(quick, {"text": SHORT})
        await asyncio.sleep(10)
        if what == "a cancelled run":
            first.cancel()
        assert (await second).status == "ok"
        context.took = bridge.time()
        first.cancel()
        for each in kept:
            await each.aclose()  # type: ignore[attr-defined]  # LangChain's are generators

    bridge.run(main())


@then("that other call was made after 10 s, and no call is under way in the end")
def step_that_other_call_was_made_after_10_s(context: Context) -> None:
    assert context.took == 10.0, context.took
    context.bridge.close(0)
    idle(context)


@when("a run waits for its call in {node}, and is {ended}")
def step_a_run_waits_for_its_call(context: Context, node: str, ended: str) -> None:
    graph = NODES[node](model(context))
    bridge = context.bridge
    bridge.create_future_task(graph, {"text": SHORT}).result(LIMIT)
    # What waits: told by the function of the key, in the thread that is about to wait.
    waits = Gate()
    context.limits._key = lambda call: waits.open() or call.model
    timeout = LIMIT if ended == "out of time" else None
    context.run = bridge.create_future_task(graph, {"text": SHORT}, timeout=timeout)
    waits.wait()
    if ended == "out of time":
        expire(context.run)
    elif ended == "cancelled":
        context.run.cancel()
    elif ended == "cleaned up":
        assert not bridge.cleanup_tasks(LIMIT).stuck
    elif ended == "ended with its bridge":
        bridge.close(0, cancel_timeout=LIMIT)


@then("nothing waits for the model any more, and the run has ended")
def step_nothing_waits_for_the_model_any_more(context: Context) -> None:
    try:
        context.run.exception(LIMIT)
    except BaseException as error:
        assert type(error).__name__ == "CancelledError", error
    assert context.bridge.registry.wait_idle(LIMIT)
    idle(context)
    assert len(context.provider.log) == 1


# -- nothing waits for itself --------------------------------------------------------------------


@when("5 messages are sent to {what}")
def step_5_messages_are_sent_to(context: Context, what: str) -> None:
    asked = model(context)
    if what.startswith("a node that sends"):
        inner = NODES["an async node"](asked)

        async def node(state: Text) -> dict[str, str]:
            await context.bridge.create_future_task(inner, state)
            return {}

        graph = graph_of_node(node)
    else:
        graph = NODES[what](asked)
    context.results = send(context, asked, [SHORT] * 5, graph=graph)


@then("all are answered, and no call is under way in the end")
def step_all_are_answered_and_no_call_is_under_way(context: Context) -> None:
    assert [each.error for each in context.results if each.status != "ok"] == []
    assert len(context.results) == 5
    idle(context)


@when("two bridges on their own loops share a limit of 1 call at once, for 40 calls")
def step_two_bridges_share_a_limit(context: Context) -> None:
    context.limits = Limits(ModelLimit(concurrency=1))
    under_way: list[int] = []
    context.most = 0

    class Counted(ProviderModel):
        def _ask(self, messages: Any) -> Any:
            under_way.append(1)
            context.most = max(context.most, len(under_way))
            try:
                return super()._ask(messages)
            finally:
                under_way.pop()

    asked = Counted(url=context.provider.url)
    with (
        RxPyLangGraphBridge(limits=context.limits) as first,
        RxPyLangGraphBridge(limits=context.limits) as second,
    ):
        runs = [
            bridge.create_future_task(NODES[node](asked), {"text": SHORT})
            for _ in range(10)
            for bridge in (first, second)
            for node in ("an async node", "a sync node")
        ]
        context.results = [run.result(LIMIT) for run in runs]


@then("all are answered, and never more than one was under way")
def step_all_are_answered_and_never_more_than_one(context: Context) -> None:
    assert len(context.results) == 40 and context.most == 1, context.most
    idle(context)


# -- what others bring ---------------------------------------------------------------------------


class Hostile(Exception):
    def __getattr__(self, name: str) -> Any:
        if name in {"status_code", "status", "code", "headers"}:
            raise LookupError(name)
        raise AttributeError(name)


@when("a model raises {what}, in an async node and in a sync node")
def step_a_model_raises(context: Context, what: str) -> None:
    errors_by_name: dict[str, Exception] = {
        "an error whose attributes raise": Hostile("hostile"),
        "an error whose headers are a number": _with(status_code=429, headers=7),
        "an error whose status is a text": _with(status_code="429", code="429"),
    }
    context.error = errors_by_name[what]

    class Raising(ProviderModel):
        def _ask(self, messages: Any) -> Any:
            raise context.error

        async def _agenerate(self, *_: Any, **__: Any) -> Any:
            raise context.error

    asked = Raising(url=context.provider.url)
    context.results = [
        send(context, asked, [SHORT], graph=NODES[node](asked))[0]
        for node in ("an async node", "a sync node")
    ]


@then("the message has failed with that, both times, and no call is under way")
def step_the_message_has_failed_with_that_both_times(context: Context) -> None:
    assert [each.error for each in context.results] == [context.error] * 2, context.results
    idle(context)


class ClockError(Exception):
    """What a clock has raised."""


@given("a bridge in virtual time that allows 1 call at once, with a clock that raises")
def step_a_bridge_in_virtual_time_with_a_clock_that_raises(context: Context) -> None:
    def time() -> float:
        raise ClockError

    virtual(context, ModelLimit(concurrency=1))
    context.limits.time = time


@when("a message calls a model that is {ended}, in an async node and in a sync node")
def step_a_message_calls_a_model_that_is(context: Context, ended: str) -> None:
    asked = model(context)
    if ended == "refused":
        context.provider.script["small"] = deque([(429, {"retry-after": "5"})] * 2)
    context.results = [
        send(context, asked, [SHORT], graph=NODES[node](asked))[0]
        for node in ("an async node", "a sync node")
    ]


@then("both messages have failed with the exception of the clock, and no call is under way")
def step_both_messages_have_failed_with_the_exception_of_the_clock(context: Context) -> None:
    assert [type(each.error) for each in context.results] == [ClockError] * 2, context.results
    idle(context)


@when("40 calls ask for answers of at most {most:d} tokens, and get 500")
def step_40_calls_ask_for_answers_of_at_most(context: Context, most: int) -> None:
    asked = model(context)

    async def node(state: Text) -> dict[str, str]:
        await asked.ainvoke(state["text"], max_tokens=most)
        return {}

    send(context, asked, ["10 510"] * 40, graph=graph_of_node(node))


@then("none is refused")
def step_none_is_refused(context: Context) -> None:
    assert context.provider.statuses() == [200] * 40, context.provider.statuses()


@given("a bridge in virtual time whose function counts {what} tokens")
def step_a_bridge_in_virtual_time_whose_function_counts(context: Context, what: str) -> None:
    number: Any = {"negative": -1, "half": 0.5, "no": None}[what]
    virtual(context, ModelLimit(**context.limit), count_tokens=lambda _: number)


@when("a message is sent to an async node that calls the model")
def step_a_message_is_sent_to_an_async_node_that_calls(context: Context) -> None:
    context.results = send(context, model(context), [SHORT])


@then("it fails with an InvalidArgumentError, and the model was not called")
def step_it_fails_with_an_and_the_model_was_not_called(context: Context) -> None:
    (result,) = context.results
    assert isinstance(result.error, errors.InvalidArgumentError), result
    assert context.provider.log == []
    idle(context)


@when("a run waits for its call, and the process forks")
def step_a_run_waits_for_its_call_and_the_process_forks(context: Context) -> None:
    context.told = forks.run("a call waits for its model").stdout.splitlines()


@then("in the child, the limits know of no calls")
def step_in_the_child_the_limits_know_of_no_calls(context: Context) -> None:
    assert context.told == ["{}", "1"], context.told


class Content(dict[str, str]):
    """A dictionary that a weak reference may refer to."""


@when("20 messages are answered, while the garbage collector is off")
def step_20_messages_are_answered_while_the_collector_is_off(context: Context) -> None:
    asked, failing = model(context), itertools.chain([True] * 5, itertools.repeat(False))

    async def node(state: Text) -> dict[str, str]:
        await asked.ainvoke(state["text"])
        if next(failing):
            # Not the model: LangChain keeps its exceptions in circles.
            raise ProviderError(500, {})
        return {}

    kept: list[weakref.ref[Any]] = []
    gc.collect()
    gc.disable()
    context.add_cleanup(gc.enable)
    contents = [Content(text=SHORT) for _ in range(20)]
    kept += map(weakref.ref, contents)
    graph = graph_of_node(node)
    runs = [
        context.bridge.create_future_task(graph, contents.pop(), errors="emit") for _ in range(20)
    ]
    for run in runs:
        error = run.result(LIMIT).error
        if error is not None:
            kept.append(weakref.ref(error))
    del run, runs, error
    assert context.bridge.registry.wait_idle(LIMIT)
    for _ in range(2):  # the loop may not have left yet what has ended the last run
        turned = Gate()
        context.bridge._engine.inbox.loop.call_soon_threadsafe(turned.open)
        turned.wait()
    context.kept = kept


@then("no message or exception of theirs is left")
def step_no_message_or_exception_of_theirs_is_left(context: Context) -> None:
    left = [type(each()).__name__ for each in context.kept if each() is not None]
    assert len(context.kept) == 25 and left == [], left


@given("a bridge in virtual time that allows 1 call at once, and 2000 runs")
def step_a_bridge_in_virtual_time_that_allows_1_call_at_once(context: Context) -> None:
    virtual(context, ModelLimit(concurrency=1), 2000)


@when("2000 messages wait for a model that takes forever, and are cancelled")
def step_2000_messages_wait_for_a_model(context: Context) -> None:
    asked = model(context, seconds=1e9)

    async def function(content: Text) -> None:
        await asked.ainvoke(content["text"])

    async def main() -> None:
        runs = [context.bridge.create_future_task(function, {"text": SHORT}) for _ in range(2000)]
        await asyncio.sleep(1)
        figures = context.limits.statistics()["small"]
        assert (figures.in_flight, figures.waiting) == (1, 1_999), figures
        for run in reversed(runs):
            run.cancel()

    context.bridge.run(main())
    assert not context.bridge.cleanup_tasks(LIMIT).stuck


@then("no call is under way, and none waits")
def step_no_call_is_under_way_and_none_waits(context: Context) -> None:
    idle(context)


# -- the window --------------------------------------------------------------------------------


@then("random requests and corrections keep to a sliding window")
def step_random_requests_and_corrections_keep(context: Context) -> None:
    from support.limits.window_histories import check_window  # imports hypothesis

    check_window()


@then("random requests to a bucket keep to a sliding window")
def step_random_requests_to_a_bucket_keep(context: Context) -> None:
    from support.limits.window_histories import check_bucket  # imports hypothesis

    check_bucket()


@when("a window of one request in 60 s is used at 3600 s, and again at 5 s")
def step_a_window_of_one_request_is_used(context: Context) -> None:
    window = Window(1, None, 60.0)
    context.delays = [window.reserve(0, time)[1] for time in (3600.0, 5.0, 6.0)]


@then("there was room for both, and at 6 s one has to wait for a minute")
def step_there_was_room_for_both(context: Context) -> None:
    first, second, third = context.delays
    assert (first, second) == (0.0, 0.0) and 59 <= third <= 62, context.delays


# -- arguments ---------------------------------------------------------------------------------

WRONG: dict[str, Callable[[], object]] = {
    "no requests": lambda: ModelLimit(requests=0),
    "half a request": lambda: ModelLimit(requests=0.5),  # type: ignore[arg-type]
    "an interval of 0 s": lambda: ModelLimit(requests=1, per=0),
    "a number instead of limits": lambda: Limits(5),  # type: ignore[arg-type]
    "an empty mapping": lambda: Limits({}),
    "a key that is not a function": lambda: Limits(ModelLimit(), key="x"),  # type: ignore[arg-type]
    "a file name as a state": lambda: Limits(ModelLimit(), state="a.sqlite"),  # type: ignore[arg-type]
    "no attempts": lambda: Limits(ModelLimit()).retrying(0),
    "a limit for the bridge": lambda: RxPyLangGraphBridge(limits=ModelLimit()),  # type: ignore[arg-type]
}


@then("limits with {what} raise {error}")
def step_limits_with_what_raise(context: Context, what: str, error: str) -> None:
    try:
        WRONG[what]()
    except getattr(errors, error):
        return
    raise AssertionError(f"{what} was accepted")


@then("in an async node and in a sync node, a message fails with an InvalidTypeError, uncalled")
def step_in_an_async_node_and_in_a_sync_node_a_message_fails(context: Context) -> None:
    for node in ("an async node", "a sync node"):
        (result,) = send(context, model(context), [SHORT], graph=NODES[node](model(context)))
        assert isinstance(result.error, errors.InvalidTypeError), result
    assert context.provider.log == []


@when("calls of {count:d} keys ask for their limits")
def step_calls_of_count_keys_ask_for_their_limits(context: Context, count: int) -> None:
    context.limits = Limits(ModelLimit(concurrency=1), key=lambda call: call.model)
    for number in range(count):
        call = ModelCall(f"model {number}", [], {}, {}, StreamMessage(number))
        assert context.limits.gate_of(call) is not None


@then("there are figures of {count:d} keys, and none of the first key")
def step_there_are_figures_of_count_keys_and_none_of_the_first(
    context: Context, count: int
) -> None:
    figures = context.limits.statistics()
    assert len(figures) == count and "model 0" not in figures, len(figures)


class HandClock:
    """A clock that is set by hand."""

    time = 0.0

    def now(self) -> float:
        return self.time

    def gate(self) -> Any:
        raise AssertionError("nothing waits by this clock")


def call_and_refuse(context: Context, count: int, name: str) -> None:
    for number in range(count):
        call = ModelCall(f"{name} {number}", [], {}, {}, StreamMessage(number))
        gate = context.limits.gate_of(call)
        ticket = ticket_for(call, gate.limit, None, context.clock, None, inner=False)
        gate.enter_nowait(ticket)
        gate.failed(ticket, 0, ProviderRefusal(1.0, insists=True))


@when("calls of {count:d} keys are made, and refused for a second")
def step_calls_of_keys_are_made_and_refused_for_a_second(context: Context, count: int) -> None:
    context.limits, context.clock = Limits(ModelLimit(requests=1)), HandClock()
    call_and_refuse(context, count, "first")


@when("a minute has passed, and calls of {count:d} other keys are made")
def step_a_minute_has_passed_and_calls_of_other_keys_are_made(context: Context, count: int) -> None:
    context.clock.time += 62
    call_and_refuse(context, count, "other")


@then("there are figures of {count:d} keys, as all of them count")
def step_there_are_figures_of_keys_as_all_of_them_count(context: Context, count: int) -> None:
    assert len(context.limits.statistics()) == count, len(context.limits.statistics())


@then("there are figures of {count:d} keys, and none of the first ones")
def step_there_are_figures_of_keys_and_none_of_the_first_ones(context: Context, count: int) -> None:
    figures = context.limits.statistics()
    first = [key for key in figures if key.startswith("first")]
    assert len(figures) == count and first == [], (len(figures), len(first))
