"""Runs that are tried again: over what they saved, and at the end of the bridge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from tenacity import (
    AsyncRetrying,
    retry_always,
    retry_if_not_exception_type,
    retry_if_result,
    stop_after_attempt,
)

from support.bridge.bridges import answer
from support.bridge.failing_graphs import (
    GRAPHS,
    Asking,
    FailingSaver,
    Steps,
    three_steps,
    waiting_at_first,
)
from support.bridge.savers import open_sqlite
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Log

ON_THREAD: Any = {"configurable": {"thread_id": "t"}}


def retries(count: int) -> AsyncRetrying:
    """As ``retry=count``, without the waits."""
    return AsyncRetrying(stop=stop_after_attempt(count + 1), reraise=True)


# -- savers ----------------------------------------------------------------------------------------


def open_saver(context: Context, where: str) -> Any:
    return InMemorySaver() if where == "in memory" else open_sqlite(context)


@given("a graph of 3 steps whose 2nd fails {count:d} times, with a saver {where}")
def step_a_graph_of_3_steps_whose_2nd_fails_count_times_with_a(
    context: Context, count: int, where: str
) -> None:
    context.steps = Steps(count)
    context.saver = open_saver(context, where)
    context.graph = three_steps(context.steps, context.saver)


def send(context: Context, text: str, graph: Any = None, **options: Any) -> None:
    options = {"thread_id": "t", "retry": retries(2), "errors": "emit", **options}
    content = {"said": [text]}
    graph = context.graph if graph is None else graph
    context.futures = [context.bridge.create_future_task(graph, content, **options)]
    answer(context)


@when('"{text}" is sent on a thread by plain "ainvoke" with retries')
def sent_by_ainvoke(context: Context, text: str) -> None:
    run(retries(2)(context.graph.ainvoke, {"said": [text]}, ON_THREAD))


@when('"{text}" is sent on a thread with retry=2 and durability "{durability}"')
def sent_with_durability(context: Context, text: str, durability: str) -> None:
    send(context, text, context.graph.bind(durability=durability))


@when('the 2nd step is to fail {count:d} times, and "{text}" is sent on the same thread')
def step_the_2nd_step_is_to_fail_count_times_and_text_is_sent_on(
    context: Context, count: int, text: str
) -> None:
    context.steps.failures = count
    send(context, text)


@when('"{text}" is sent with retry=2 to {kind}, which fails {count:d} times, with a saver {where}')
def step_text_is_sent_with_retry_2_to_kind_which_fails_count_times(
    context: Context, text: str, kind: str, count: int, where: str
) -> None:
    context.steps = Steps(count)
    context.graph = GRAPHS[kind](context.steps, open_saver(context, where))
    send(context, text)


@when('"{text}" is sent with retry=1 to a graph whose 2nd step waits at first, with a timeout')
def sent_with_a_timeout(context: Context, text: str) -> None:
    context.steps = Steps()
    context.graph = waiting_at_first(context.steps)
    send(context, text, retry=retries(1), timeout=2)


@when('"{text}" is sent with retry=2 to a graph whose saver fails at {what}')
def step_text_is_sent_with_retry_2_to_a_graph_whose_saver_fails_at(
    context: Context, text: str, what: str
) -> None:
    context.steps = Steps()
    context.graph = three_steps(context.steps, FailingSaver(what))
    send(context, text)


@when("a graph without a saver, whose step fails once, gets a message on a thread with retry=2")
def step_a_graph_without_a_saver_gets_a_message_on_a_thread(context: Context) -> None:
    context.steps = Steps(1)
    context.graph = three_steps(context.steps, None)
    send(context, "hi")


@when(
    '"{before}" is sent on a thread, and then "{text}" with retry=2, for which its saver fails at '
    "{what}"
)
def step_before_is_sent_and_then_text_for_which_its_saver_fails(
    context: Context, before: str, text: str, what: str
) -> None:
    context.steps, saver = Steps(), FailingSaver("nothing")
    context.graph = three_steps(context.steps, saver)
    send(context, before)
    answer(context)
    saver.fails_at = {what}
    send(context, text)
    assert answer(context).status == "ok"
    assert not saver.fails_at


@when(
    "the 2nd step is to fail {count:d} times, "
    'and "{text}" is sent from the first checkpoint of that thread'
)
def step_the_2nd_step_is_to_fail_count_times_and_text_is_sent_from(
    context: Context, count: int, text: str
) -> None:
    *_, first = context.graph.get_state_history(ON_THREAD)
    context.steps.failures = count
    send(context, text, config=first.config)


@when('"{text}" is sent on a thread with a policy that wants it twice')
def step_text_is_sent_on_a_thread_with_a_policy_that_wants_it(context: Context, text: str) -> None:
    twice = retry_if_result(lambda state: state["said"].count(text) < 2)
    send(context, text, retry=AsyncRetrying(retry=twice, stop=stop_after_attempt(3)))


def said(context: Context) -> list[str]:
    async def look(_: object) -> Any:
        return await context.graph.aget_state(ON_THREAD)

    if "bridge" not in context:
        return run(look(None)).values["said"]  # type: ignore[no-any-return]
    state = context.bridge.create_future_task(look, None).result(LIMIT).content
    return state.values["said"]  # type: ignore[no-any-return]


@then("the run is ok")
def the_run_is_ok(context: Context) -> None:
    result = answer(context)
    assert result.status == "ok", result.error


@then('the thread has "{text}" once, and only the failing step ran more than once')
def step_the_thread_has_text_once_and_only_the_failing_step_ran(
    context: Context, text: str
) -> None:
    assert said(context) == [text, "before", "flaky", "after"], said(context)
    assert context.steps.ran == {"before": 1, "flaky": 3, "after": 1}, context.steps.ran


@then('the thread has "{first}" once, and "{second}" once after it')
def step_the_thread_has_first_once_and_second_once_after_it(
    context: Context, first: str, second: str
) -> None:
    steps = ["before", "flaky", "after"]
    assert said(context) == [first, *steps, second, *steps], said(context)


@then("no step that had ended ran again: {names}")
def no_step_ran_again(context: Context, names: str) -> None:
    ran = context.steps.ran
    assert {ran[name] for name in names.split(", ")} == {1}, ran
    assert ran["flaky"] > 1, ran


@then('the thread has "{text}" {count:Times}')
def step_the_thread_has_text_count(context: Context, text: str, count: int) -> None:
    assert said(context).count(text) == count, said(context)


@then('the newest branch of the thread has "{text}" once')
def newest_branch(context: Context, text: str) -> None:
    assert said(context) == [text, "before", "flaky", "after"], said(context)
    assert context.steps.ran["before"] == 2, context.steps.ran  # of either message


# -- answers ------------------------------------------------------------------------------------


@given("a graph of one step with 2 questions, with a saver {where}, that waits at the first")
def a_graph_with_questions(context: Context, where: str) -> None:
    context.asking = Asking()
    context.graph = context.asking.two_questions(open_saver(context, where))
    future = context.bridge.create_future_task(context.graph, {"got": []}, thread_id="t")
    (context.question,) = future.result(LIMIT).content["__interrupt__"]


def answer_with(context: Context, command: Command, where: str) -> None:
    context.asking.fails.append(where)
    context.futures = [
        context.bridge.create_future_task(
            context.graph, command, thread_id="t", retry=retries(2), errors="emit"
        )
    ]
    answer(context)


@when(
    'the answer "yes" is sent as {form} with retry=2, and the step fails once {where} its question'
)
def the_answer_is_sent(context: Context, form: str, where: str) -> None:
    resume: Any = {context.question.id: "yes"} if form == "a map of answers" else "yes"
    answer_with(context, Command(resume=resume), where)


@when(
    'the answer "yes" is sent with an update with retry=2, '
    "and the step fails once {where} its question"
)
def the_answer_is_sent_with_an_update(context: Context, where: str) -> None:
    answer_with(context, Command(resume="yes", update={"notes": ["noted"]}), where)


@then('the step waits at the second question, and has got "yes" for the first alone')
def the_step_waits_at_the_second(context: Context) -> None:
    result = answer(context)
    assert result.status == "interrupted", result.error
    (question,) = result.content["__interrupt__"]
    assert question.value == "second?" and context.asking.fails == [], result
    command = Command(resume="no")
    future = context.bridge.create_future_task(context.graph, command, thread_id="t")
    context.state = future.result(LIMIT).content
    assert context.state["got"] == ["yes", "no"], context.state


@then("the update was made once")
def the_update_was_made_once(context: Context) -> None:
    assert context.state["notes"] == ["noted"], context.state


@given("a graph of two steps at once that ask, and wait")
def a_graph_of_two_that_ask(context: Context) -> None:
    context.asking = Asking()
    context.graph = context.asking.two_steps_at_once(InMemorySaver())
    future = context.bridge.create_future_task(context.graph, {"got": []}, thread_id="t")
    context.questions = future.result(LIMIT).content["__interrupt__"]
    context.asking.asked = True
    context.asking.fails.append("after")


@when("both are answered with retry=2, and one step fails once after its question")
def both_are_answered(context: Context) -> None:
    resume = {question.id: question.value.strip("?") for question in context.questions}
    context.futures = [
        context.bridge.create_future_task(
            context.graph, Command(resume=resume), thread_id="t", retry=retries(2), errors="emit"
        )
    ]


@then("both have got their answers, once each")
def both_have_got_their_answers(context: Context) -> None:
    result = answer(context)
    assert result.status == "interrupted", result.error
    (question,) = result.content["__interrupt__"]
    assert question.value == "left again?" and context.asking.fails == [], result
    future = context.bridge.create_future_task(
        context.graph, Command(resume="again"), thread_id="t"
    )
    got = future.result(LIMIT).content["got"]
    assert sorted(map(list, got)) == [["left", "left", "again"], ["right", "right"]], got


# -- the end ------------------------------------------------------------------------------------

POLICIES = {
    "AsyncRetrying": AsyncRetrying,
    "retry_always": retry_always,
    "retry_if_not_exception_type": retry_if_not_exception_type,
}
RAISED: dict[str, type[BaseException]] = {
    "CancelledError": asyncio.CancelledError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
}


@when("a run that makes an error of its cancelling is sent with retry={policy}, and {end} comes")
def a_run_that_makes_an_error(context: Context, policy: str, end: str) -> None:
    context.began = Log()

    async def work(_: object) -> None:
        context.began.add(1)
        try:
            await context.work.gate.wait_async()
        except asyncio.CancelledError:
            raise LookupError("not now") from None

    future = context.bridge.create_future_task(work, None, retry=eval(policy, POLICIES))
    context.futures.append(future)
    context.began.wait_for(1)
    ends: dict[str, Callable[[], object]] = {
        "cancel": future.cancel,
        "cleanup_tasks": lambda: context.bridge.cleanup_tasks(LIMIT),
        "close": lambda: context.bridge.close(0),
        "the loop's end": context.lent and context.lent.end,
    }
    ends[end]()


@then("it was tried once, and the registry is idle")
def tried_once_and_idle(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    assert len(context.began) == 1, context.began


@when("a run that raises {name} is sent with retry={policy}")
def a_run_that_raises(context: Context, name: str, policy: str) -> None:
    context.began = Log()

    async def work(_: object) -> None:
        context.began.add(1)
        if len(context.began) > 3:
            raise AssertionError("it was tried again")
        raise RAISED[name]

    retry = eval(policy, POLICIES).copy(stop=stop_after_attempt(3), reraise=True)
    context.futures.append(context.bridge.create_future_task(work, None, retry=retry))


@then("it was tried once, and the future raises {name}")
def tried_once_and_raises(context: Context, name: str) -> None:
    try:
        context.futures[-1].result(LIMIT)
    except BaseException as error:
        assert type(error).__name__ == name, repr(error)
    else:
        raise AssertionError("it has a result")
    assert len(context.began) == 1, context.began


@when("a run fails that was in flight when close began, with retry=5")
def step_a_run_fails_that_was_in_flight_when_close_began_with(context: Context) -> None:
    context.began = Log()

    async def work(_: object) -> None:
        context.began.add(1)
        await context.work.gate.wait_async()
        raise ValueError("too late")

    context.futures.append(context.bridge.create_future_task(work, None, retry=retries(5)))
    context.began.wait_for(1)
    closing = asyncio.run_coroutine_threadsafe(context.bridge.aclose(LIMIT), context.lent.loop)
    context.lent.run(asyncio.sleep(0))  # aclose has taken its first step, and waits
    context.work.gate.open()
    closing.result(LIMIT)


@when("a run outlasts its timeout and the time to end, and then fails, with retry=5")
def step_a_run_outlasts_its_timeout_and_the_time_to_end_and_then(context: Context) -> None:
    context.began = Log()

    async def work(_: object) -> None:
        context.began.add(1)
        while not context.work.gate.is_open:
            try:
                await context.work.gate.wait_async()
            except asyncio.CancelledError:
                continue
        raise ValueError("too late")

    future = context.bridge.create_future_task(work, None, retry=retries(5), timeout=0.02)
    context.futures.append(future)
    future.exception(LIMIT)
    context.work.gate.open()
    assert context.bridge.registry.wait_idle(LIMIT)
