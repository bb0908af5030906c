from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

import reactivex
from behave import given, then, when
from behave.runner import Context
from langgraph.graph import StateGraph
from reactivex import operators as ops
from tenacity import AsyncRetrying, Retrying, retry_if_exception_type, stop_after_attempt

from rxlanggraph import RxPyLangGraphBridge, StreamMessage, TimeLimits, operators
from support.bridge.bridges import answer, arguments, failure_of, make_bridge, send
from support.bridge.graphs import State, graph_of
from support.concurrency.raising import check_error, error_of
from support.concurrency.waiting import LIMIT

# -- bridges and messages --------------------------------------------------------------------------


@given("an open bridge on {home:Home} loop")
def step_an_open_bridge_on_home_loop(context: Context, home: str) -> None:
    make_bridge(context, home=home)


@given("an open bridge on {home:Home} loop with {options}")
def step_an_open_bridge_on_home_loop_with_options(
    context: Context, home: str, options: str
) -> None:
    make_bridge(context, home=home, **arguments(options))


@given("a message goes to {kind:Kind}")
@when("a message goes to {kind:Kind}")
def step_a_message_goes_to_kind(context: Context, kind: str) -> None:
    send(context, kind, [0])


@when("a message goes to {kind:Kind} with {options}")
def step_a_message_goes_to_kind_with_options(context: Context, kind: str, options: str) -> None:
    send(context, kind, [0], **arguments(options))


@when("{count:d} messages go to {kind:Kind}")
def step_count_messages_go_to_kind(context: Context, count: int, kind: str) -> None:
    send(context, kind, range(count))


@when("they have all begun")
def step_they_have_all_begun(context: Context) -> None:
    context.work.began.wait_for(len(context.futures))


@when("the gate opens")
def step_the_gate_opens(context: Context) -> None:
    context.work.gate.open()


@when("a message with an id, a thread and metadata goes to {kind:Kind}")
def step_a_message_with_an_id_a_thread_and_metadata_goes_to_kind(
    context: Context, kind: str
) -> None:
    context.message = StreamMessage({"value": 7}, "thread-1", {"line": 3}, id="message-1")
    graph = graph_of(context.work, kind)
    context.futures.append(context.bridge.create_future_task(graph, context.message))


@when("a stream of 1 message goes to {kind:Kind}")
def step_a_stream_of_1_message_goes_to_kind(context: Context, kind: str) -> None:
    operator = context.bridge.invoke(graph_of(context.work, kind))
    context.future = reactivex.of({"value": 0}).pipe(operator, ops.to_future(Future))


@then("the stream fails with {name}")
def step_the_stream_fails_with_name(context: Context, name: str) -> None:
    error = context.future.exception(LIMIT)
    assert type(error).__name__ == name, error


@then("the result is ok, answers that message, and carries its thread and metadata")
def step_the_result_is_ok_answers_that_message_and_carries_its(context: Context) -> None:
    result, message = answer(context), context.message
    assert result.content == {"value": 7}, result
    assert (result.status, result.error, result.source) == ("ok", None, message), result
    assert (result.thread_id, result.metadata) == ("thread-1", {"line": 3}), result
    assert result.duration is not None and 0 <= result.duration < LIMIT, result
    assert result.id > "" and result.id != message.id, result
    assert result.raise_for_status() is result


@then("every future has a result")
def step_every_future_has_a_result(context: Context) -> None:
    for future in context.futures:
        assert future.result(LIMIT).status == "ok", future


@then('the future raises {name}, "{words:Text}"')
def step_the_future_raises_name_words(context: Context, name: str, words: str) -> None:
    error = failure_of(context)
    check_error(error, name, words)
    assert bool(words) == bool(str(error)), error


@then('the future has a result with the status {status}, and {name} "{words}"')
def step_the_future_has_a_result_with_the_status_status_and_name(
    context: Context, status: str, name: str, words: str
) -> None:
    result = answer(context)
    assert (result.status, type(result.error).__name__) == (status, name), result
    assert words in str(result.error), result


@then("the error names the message and the graph")
def step_the_error_names_the_message_and_the_graph(context: Context) -> None:
    (run,) = context.futures
    text = str(failure_of(context))
    assert run.message.id in text and run.options.adapter.name in text, text


# -- misuse ----------------------------------------------------------------------------------------


async def nothing() -> None:
    """For a coroutine to be made of."""


def closed_coroutine() -> object:
    coroutine = nothing()
    coroutine.close()
    return coroutine


async def generated(content: object) -> AsyncIterator[object]:
    yield content


@when('the code under test calls "{call}"')
def step_the_code_under_test_calls_call(context: Context, call: str) -> None:
    names = {
        "bridge": getattr(context, "bridge", None),
        "Bridge": RxPyLangGraphBridge,
        "Message": StreamMessage,
        "Retrying": Retrying,
        "TimeLimits": TimeLimits,
        "operators": operators,
        "closed_coroutine": closed_coroutine,
        "generated": generated,
        "pickle": pickle,
        "nan": float("nan"),
        "infinity": float("inf"),
        "uncompiled": StateGraph(State),
        "graph": getattr(context, "graph", None),
    }
    context.error = error_of(lambda: eval(call, names))


@then("nothing was ever submitted to the bridge")
def step_nothing_was_ever_submitted_to_the_bridge(context: Context) -> None:
    assert context.bridge.statistics().submitted == 0


# -- retrying --------------------------------------------------------------------------------------


class OlderRetrying(AsyncRetrying):
    """As before tenacity 9.2, which other packages do not allow: policies cannot be disabled."""

    def copy(self, *_: Any, **__: Any) -> AsyncRetrying:
        return self


def of_tenacity_9_1() -> AsyncRetrying:
    retrying = OlderRetrying(stop=stop_after_attempt(3))
    vars(retrying).pop("enabled", None)
    return retrying


RETRYING = {
    "AsyncRetrying": AsyncRetrying,
    "of_tenacity_9_1": of_tenacity_9_1,
    "retry_if_exception_type": retry_if_exception_type,
    "stop_after_attempt": stop_after_attempt,
}


def failing_first(times: int) -> Any:
    attempts: dict[int, int] = {}

    async def run(content: dict[str, int]) -> int:
        attempts[content["value"]] = attempt = attempts.get(content["value"], 0) + 1
        if attempt <= times:
            raise ValueError(f"attempt {attempt}")
        return attempt

    run.attempts = attempts
    return run


@when("a run that fails {times:d} times and then succeeds is sent with retry={retry}")
def step_a_run_that_fails_times_times_and_then_succeeds_is_sent(
    context: Context, times: int, retry: str
) -> None:
    context.run = failing_first(times)
    context.futures.append(
        context.bridge.create_future_task(context.run, {"value": 0}, retry=eval(retry, RETRYING))
    )


@when("{count:d} runs that each fail 2 times are sent with one AsyncRetrying of 3 attempts")
def step_count_runs_that_each_fail_2_times_are_sent_with_one(context: Context, count: int) -> None:
    run, retry = failing_first(2), AsyncRetrying(stop=stop_after_attempt(3))
    context.futures += [
        context.bridge.create_future_task(run, {"value": value}, retry=retry)
        for value in range(count)
    ]


@then("it was tried {times:d} times")
def step_it_was_tried_times_times(context: Context, times: int) -> None:
    error = context.futures[-1].exception(LIMIT)
    assert context.run.attempts[0] == times, (context.run.attempts, error)
