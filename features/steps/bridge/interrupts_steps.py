"""Graphs that ask: their results, the answers, and what else comes to their threads."""

from __future__ import annotations

import asyncio
import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from reactivex import operators as ops
from tenacity import AsyncRetrying, retry_always, retry_if_result, stop_after_attempt

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge.graphs.interrupts import questions_of
from rxlanggraph.bridge.graphs.pending import PendingInterrupt
from rxlanggraph.errors import (
    BridgeClosedError,
    InvalidArgumentError,
    InvalidTypeError,
    PendingInterruptError,
    StaleResumeError,
)
from support.bridge.asking import (
    ASKING,
    CountingSaver,
    Said,
    beside_a_question,
    gated,
    in_turn,
    slow_to_take,
    with_other_state,
)
from support.bridge.bridges import expire, on_loop
from support.bridge.failing_graphs import Asked, Asking
from support.bridge.savers import open_sqlite
from support.bridge.streams import Subscriber
from support.cli.command import run_python
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads

ON_THREAD: Any = {"configurable": {"thread_id": "t"}}
POLICY = AsyncRetrying(retry=retry_always, stop=stop_after_attempt(3))


def saver_for(context: Context, where: str) -> Any:
    return InMemorySaver() if where == "in memory" else open_sqlite(context)


def through(context: Context, entry: str, content: Any, **options: Any) -> StreamMessage:
    """The result of a message that goes through ``entry``, on the thread unless it has one."""
    bridge: RxPyLangGraphBridge = context.bridge
    message = content
    if not isinstance(content, StreamMessage):
        message = StreamMessage(content, options.pop("thread_id", "t"))
    options = {"errors": "emit", **options}
    if entry == "create_future_task":
        result = bridge.create_future_task(context.graph, message, **options).result(LIMIT)
    elif entry in {"invoke", "stream"}:
        operator = getattr(bridge, entry)(context.graph, **options)
        result = rx.of(message).pipe(operator, ops.last()).run()
    else:

        async def last() -> StreamMessage:
            return [each async for each in bridge.astream(context.graph, message, **options)][-1]

        result = asyncio.run(last())
    assert isinstance(result, StreamMessage)
    return result


def send(context: Context, content: Any, **options: Any) -> StreamMessage:
    return through(context, "create_future_task", content, **options)


def saved(context: Context, thread_id: str = "t") -> Any:
    """The latest checkpoint of a thread."""
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}

    async def read(_: object) -> Any:
        return await context.graph.checkpointer.aget_tuple(config)

    return context.bridge.create_future_task(read, None).result(LIMIT).content


def pending(context: Context) -> list[Any]:
    return [question.interrupt.value for question in questions_of(saved(context)).values()]


def listed(text: str) -> list[str]:
    return [each for each in text.strip('"').split(", ") if each]


# -- plain LangGraph -------------------------------------------------------------------------------


@given('a thread of a graph that asks "first?", by plain LangGraph')
def step_a_thread_of_a_graph_that_asks_first_by_plain_langgraph(context: Context) -> None:
    context.graph = in_turn(InMemorySaver())
    run(context.graph.ainvoke({"said": ["hello"]}, ON_THREAD))
    context.asked = context.graph.get_state(ON_THREAD).interrupts


@when('it is answered with "yes" and with "no" at once, by plain LangGraph')
def step_it_is_answered_with_yes_and_with_no_at_once_by_plain(context: Context) -> None:
    async def answer() -> list[Any]:
        answers = (Command(resume=each) for each in ("yes", "no"))
        calls = (context.graph.ainvoke(each, ON_THREAD) for each in answers)
        return await asyncio.gather(*calls, return_exceptions=True)

    context.outcomes = run(answer())


@then("one of the two was taken, and the other was refused")
def step_one_of_the_two_was_taken_and_the_other_was_refused(context: Context) -> None:
    refused = [each for each in context.outcomes if isinstance(each, BaseException)]
    assert len(refused) == 1, context.outcomes


@when("new input comes to it, by plain LangGraph")
def step_new_input_comes_to_it_by_plain_langgraph(context: Context) -> None:
    run(context.graph.ainvoke({"said": ["again"]}, ON_THREAD))


@then("the graph waits for an answer to the same question")
def step_the_graph_waits_for_an_answer_to_the_same_question(context: Context) -> None:
    waits = context.graph.get_state(ON_THREAD).interrupts
    assert waits == context.asked, waits


@when('it is answered with "yes" and then continued with None, by plain LangGraph')
def step_it_is_answered_with_yes_and_then_continued_with_none_by(context: Context) -> None:
    run(context.graph.ainvoke(Command(resume="yes"), ON_THREAD))
    run(context.graph.ainvoke(None, ON_THREAD))


# -- the result ------------------------------------------------------------------------------------


@given("a graph that stops in {place}, saved {saver}")
def step_a_graph_that_stops_in_place_saved(context: Context, place: str, saver: str) -> None:
    context.graph = ASKING[place](saver_for(context, saver))


@given("a graph that stops in {place}, bound to stream_mode={mode}")
def step_a_graph_that_stops_in_place_bound_to_stream_mode(
    context: Context, place: str, mode: str
) -> None:
    context.graph = ASKING[place](InMemorySaver()).bind(stream_mode=json.loads(mode))


@given("a graph that stops in {place}, not saved")
def step_a_graph_that_stops_in_place_not_saved(context: Context, place: str) -> None:
    context.graph = ASKING[place](None)


@when("it is started on a thread through {entry}")
def step_it_is_started_on_a_thread_through_entry(context: Context, entry: str) -> None:
    context.result = through(context, entry, {"said": ["hello"]})


@then("its result is interrupted without an error, and asks {questions}")
def step_its_result_is_interrupted_without_an_error_and_asks(
    context: Context, questions: str
) -> None:
    result = context.result
    assert (result.status, result.error) == ("interrupted", None), result
    assert sorted(each.value for each in result.interrupts) == listed(questions), result
    assert result.raise_for_status() is result and result.thread_id == "t"


@then('its content is what "ainvoke" gives')
def step_its_content_is_what_ainvoke_gives(context: Context) -> None:
    async def call(content: Any) -> Any:
        return await context.graph.ainvoke(content, {"configurable": {"thread_id": "other"}})

    future = context.bridge.create_future_task(call, {"said": ["hello"]})
    expected, found = dict(future.result(LIMIT).content), dict(context.result.content)
    asked = [each.value for each in expected.pop("__interrupt__", ())]
    in_content = found.pop("__interrupt__", ())
    assert found == expected, (found, expected)
    assert tuple(in_content) == context.result.interrupts
    assert sorted(asked) == sorted(each.value for each in in_content), (asked, in_content)


@when('all of that is answered with "yes" through {entry}')
def step_all_of_that_is_answered_with_yes_through_entry(context: Context, entry: str) -> None:
    interrupts = context.result.interrupts
    content = Command(resume={each.id: "yes" for each in interrupts}) if interrupts else None
    context.result = through(context, entry, content)


@then("its result is ok, and it has said {said}")
def step_its_result_is_ok_and_it_has_said(context: Context, said: str) -> None:
    assert context.result.status == "ok", context.result
    assert context.result.interrupts == ()
    got = [each for each in context.result.content["said"] if each != "hello"]
    assert got == listed(said), got


@given('a graph that says "done", with a breakpoint set {how}')
def step_a_graph_that_says_done_with_a_breakpoint_set(context: Context, how: str) -> None:
    def say(_: Said) -> Said:
        return {"said": ["done"]}

    builder: Any = StateGraph(Said).add_node("say", say).add_edge(START, "say")
    context.graph, context.options = builder.compile(InMemorySaver()), {}
    if how == "by bind(interrupt_before=)":
        context.graph = context.graph.bind(interrupt_before=["say"])
    elif "interrupt_after" in how:
        context.options = {"interrupt_after": "*"}
    else:
        context.options = {"interrupt_before": ["say"]}
    if how.endswith("retry=2"):
        context.options["retry"] = 2


@given('a graph that fails once behind its breakpoint, and says "done", in {wrapper}')
def step_a_graph_that_fails_once_behind_its_breakpoint(context: Context, wrapper: str) -> None:
    failures = iter([ConnectionError("the first call")])

    def say(_: Said) -> Said:
        for failure in failures:
            raise failure
        return {"said": ["done"]}

    builder: Any = StateGraph(Said).add_node("say", say).add_edge(START, "say")
    graph = builder.compile(InMemorySaver(), interrupt_before=["say"])
    context.options = {}
    if wrapper == "with_retry":
        context.graph = graph.with_retry(wait_exponential_jitter=False)
    else:
        context.graph = graph.with_fallbacks([graph])


@when("it is started on a thread, and continued with None")
def step_it_is_started_on_a_thread_and_continued_with_none(context: Context) -> None:
    contents: list[Any] = [{"said": ["hello"]}, None]
    context.results = [send(context, content, **context.options) for content in contents]


@then("the first result is interrupted, without questions, and the second is ok")
def step_the_first_result_is_interrupted_without_questions_and_the(context: Context) -> None:
    first, second = context.results
    assert (first.status, first.error, first.interrupts) == ("interrupted", None, ()), first
    assert (second.status, second.content["said"]) == ("ok", ["hello", "done"]), second


@when("it is started with a policy that looks at results")
def step_it_is_started_with_a_policy_that_looks_at_results(context: Context) -> None:
    context.seen = []
    policy = AsyncRetrying(retry=retry_if_result(context.seen.append))
    context.result = send(context, {"said": ["hello"]}, retry=policy, **context.options)


@then('the policy has seen what "ainvoke" gives')
def step_the_policy_has_seen_what_ainvoke_gives(context: Context) -> None:
    assert context.result.status == "interrupted", context.result
    assert context.seen == [{"said": ["hello"]}] == [context.result.content], context.seen


@when('it is started through invoke with errors="raise", "emit" and "skip"')
def step_it_is_started_through_invoke_with_errors_raise_emit_and_skip(context: Context) -> None:
    def emitted(policy: Any) -> list[StreamMessage]:
        operator = context.bridge.invoke(context.graph, errors=policy)
        message = StreamMessage({"said": ["hello"]}, thread_id=policy)
        found: list[StreamMessage] = rx.of(message).pipe(operator, ops.to_list()).run()
        return found

    context.emitted = [emitted(policy) for policy in ("raise", "emit", "skip")]


@then("each stream has emitted the interrupted result, and completed")
def step_each_stream_has_emitted_the_interrupted_result_and_completed(context: Context) -> None:
    statuses = [[each.status for each in emitted] for emitted in context.emitted]
    assert statuses == [["interrupted"]] * 3, statuses


@then("the registry counts {count:d} succeeded")
def step_the_registry_counts_succeeded(context: Context, count: int) -> None:
    statistics = context.bridge.statistics()
    assert (statistics.succeeded, statistics.failed) == (count, 0), statistics


@then("a pickle of its result, and a replaced copy, have its questions")
def step_a_pickle_of_its_result_and_a_replaced_copy_have_its_questions(context: Context) -> None:
    result = context.result
    copies = [pickle.loads(pickle.dumps(result)), result.replace(metadata={"a": 1})]
    for copy in copies:
        assert copy.interrupts == result.interrupts != (), copy
        assert copy.status == "interrupted" and "interrupts=" in repr(copy)
    assert copies[0] == result != copies[1]


# -- answers ---------------------------------------------------------------------------------------


@given('a thread on which a graph asks "first?", "second?" and "third?" in turn, saved {saver}')
def step_a_thread_on_which_a_graph_asks_first_second_and_third(
    context: Context, saver: str
) -> None:
    context.graph = in_turn(saver_for(context, saver))
    context.asked = send(context, {"said": ["hello"]})
    assert context.asked.status == "interrupted", context.asked


def answer_as(asked: StreamMessage, form: str, value: str = "yes") -> StreamMessage:
    if form == "reply":
        return asked.reply(value)
    by_id = form == "Command(resume={id: value})"
    resume: Any = {asked.interrupts[0].id: value} if by_id else value
    return StreamMessage(Command(resume=resume), "t")


FORMS = ("Command(resume=value)", "Command(resume={id: value})", "reply")


@when("it is answered {count:d} times at once, as {form}")
def step_it_is_answered_times_at_once_as_form(context: Context, count: int, form: str) -> None:
    forms = FORMS if form == "a mixture of these" else (form,)
    bridge: RxPyLangGraphBridge = context.bridge

    async def give(_: object) -> Any:  # in one step of the loop: none ends before all are given
        return [
            bridge.create_future_task(
                context.graph,
                answer_as(context.asked, forms[number % len(forms)], f"answer {number}"),
                errors="emit",
            )
            for number in range(count)
        ]

    futures = bridge.create_future_task(give, None).result(LIMIT).content
    context.results = [future.result(LIMIT) for future in futures]


@when("{count:d} threads reply to it at once")
def step_threads_reply_to_it_at_once(context: Context, count: int) -> None:
    context.results = in_threads(
        count, lambda number: send(context, context.asked.reply(f"answer {number}"))
    )


@then("one answer was taken, and each other was rejected with a StaleResumeError")
def step_one_answer_was_taken_and_each_other_was_rejected(context: Context) -> None:
    taken, *others = sorted(context.results, key=lambda result: result.status == "rejected")
    assert taken.status == "interrupted", taken
    assert len(others) >= 1
    for other in others:
        assert other.status == "rejected", other
        assert isinstance(other.error, StaleResumeError), other.error


@then('the graph waits for an answer to "second?", and none of the others was kept for it')
def step_the_graph_waits_for_an_answer_to_second_and_none(context: Context) -> None:
    assert pending(context) == ["second?"]
    assert send(context, None).interrupts[0].value == "second?"
    done = send(context, send(context, send(context, None).reply("b")).reply("c"))
    taken = next(each for each in context.results if each.status == "interrupted")
    value = taken.source.content.resume
    value = value if isinstance(value, str) else next(iter(value.values()))
    said = ["hello", f"first? {value}", "second? b", "third? c"]
    assert done.content["said"] == said, done


@when('the answer "yes" is given as {form}, and then {what}')
def step_the_answer_yes_is_given_as_form_and_then(context: Context, form: str, what: str) -> None:
    if form.endswith("by plain LangGraph"):

        async def call(content: Any) -> Any:
            return await context.graph.ainvoke(content, ON_THREAD)

        command = Command(resume="yes")
        context.bridge.create_future_task(call, command).result(LIMIT)
        form = FORMS[0]
    else:
        result = send(context, answer_as(context.asked, form))
        assert result.interrupts[0].value == "second?", result
    if what.startswith("the same answer again"):
        retry = POLICY if what.endswith("retried") else None
        again = send(context, answer_as(context.asked, form), retry=retry)
        assert isinstance(again.error, StaleResumeError), again
    elif what == "None":
        assert send(context, None).interrupts[0].value == "second?"
    else:
        asked = send(context, None)
        assert send(context, asked.reply("yes")).status == "interrupted"


@then('the graph waits for an answer to "{question}"')
def step_the_graph_waits_for_an_answer_to_question(context: Context, question: str) -> None:
    if hasattr(context, "bridge"):
        assert pending(context) == [question]
    else:
        waits = context.graph.get_state(ON_THREAD).interrupts
        assert [each.value for each in waits] == [question], waits


@given("a run that has not asked its question yet")
def step_a_run_that_has_not_asked_its_question_yet(context: Context) -> None:
    entered, context.gate = Log(), Gate()
    context.graph = gated(InMemorySaver(), entered, context.gate)
    message = StreamMessage({"said": ["hello"]}, "t")
    context.future = context.bridge.create_future_task(context.graph, message)
    entered.wait_for(1)


@when("an answer without an id is given, and then the run asks")
def step_an_answer_without_an_id_is_given_and_then_the_run_asks(context: Context) -> None:
    answer = StreamMessage(Command(resume="early"), "t")
    future = context.bridge.create_future_task(context.graph, answer, errors="emit")
    context.gate.open()
    context.asked, context.result = context.future.result(LIMIT), future.result(LIMIT)


@then(
    "the answer was rejected with a StaleResumeError, and the question is still answered by a reply"
)
def step_the_answer_was_rejected_with_a_staleresumeerror_and_the_question(
    context: Context,
) -> None:
    assert context.result.status == "rejected", context.result
    assert isinstance(context.result.error, StaleResumeError)
    result = send(context, context.asked.reply("late"))
    assert result.interrupts[0].value == "second?", result
    assert send(context, result.reply("b")).content["said"][1:] == ["first? late", "second? b"]


@when("new input comes to it, and an answer without an id right behind that")
def step_new_input_comes_to_it_and_an_answer_without_an_id(context: Context) -> None:
    contents = [{"said": ["more"]}, Command(resume="yes")]
    futures = [
        context.bridge.create_future_task(context.graph, content, thread_id="t", errors="emit")
        for content in contents
    ]
    context.results = [future.result(LIMIT) for future in futures]


@then("the input was rejected with a PendingInterruptError, and the answer was taken")
def step_the_input_was_rejected_with_a_pendinginterrupterror_and_the(context: Context) -> None:
    refused, taken = context.results
    assert isinstance(refused.error, PendingInterruptError), refused
    assert [each.value for each in refused.error.interrupts] == ["first?"]
    assert taken.interrupts[0].value == "second?", taken


@when("it is started on a thread, and its questions are answered one by one")
def step_it_is_started_on_a_thread_and_its_questions_are_answered(context: Context) -> None:
    asked = send(context, {"said": ["hello"]})
    context.order = [each.value for each in asked.interrupts]
    context.results = [
        send(context, asked.reply("yes", interrupt.id)) for interrupt in asked.interrupts
    ]


@then("after the first reply it asks the other question alone, and after the second it is done")
def step_after_the_first_reply_it_asks_the_other_question_alone(context: Context) -> None:
    first, second = context.results
    assert [each.value for each in first.interrupts] == context.order[1:], first
    assert second.status == "ok", second
    assert sorted(second.content["said"]) == ["hello", "left? yes", "right? yes"], second


@when("it is started on a thread, and answered without an id")
def step_it_is_started_on_a_thread_and_answered_without_an_id(context: Context) -> None:
    send(context, {"said": ["hello"]})
    context.result = send(context, Command(resume="yes"))


@then("the answer is an error that asks for the interrupt id, and both questions are still pending")
def step_the_answer_is_an_error_that_asks_for_the_interrupt_id(context: Context) -> None:
    assert context.result.status == "error", context.result
    assert "interrupt id" in str(context.result.error)
    assert sorted(pending(context)) == ["left?", "right?"]


@when("a message with the first result as its source answers twice")
def step_a_message_with_the_first_result_as_its_source_answers_twice(context: Context) -> None:
    answer = StreamMessage(Command(resume="yes"), "t", source=context.asked)
    context.results = [send(context, answer), send(context, answer)]


@given("a graph {where}, saved {saver}, that fails once its first question of two is answered")
def step_a_graph_saved_that_fails_once_its_first_question_of_two(
    context: Context, where: str, saver: str
) -> None:
    context.asking, kept = Asking(), saver_for(context, saver)
    context.options = {"retry": 1} if where.endswith("retried once") else {}
    depth = {"with a subgraph": 1, "with a subgraph in one": 2}.get(where, 0)
    context.graph = context.asking.two_questions(None if depth else kept)
    for level in range(depth, 0, -1):
        builder: Any = StateGraph(Asked).add_node("sub", context.graph).add_edge(START, "sub")
        context.graph = builder.compile(kept if level == 1 else None)


@when('its first question is answered with "yes", and after that has failed with "no"')
def step_its_first_question_is_answered_with_yes_and_after_that(context: Context) -> None:
    asked = send(context, {"got": []})
    context.asking.fails.append("after")
    failed = send(context, asked.reply("yes"))
    assert failed.status == "error", failed
    if context.options:
        context.asking.fails.append("after")
    context.result = send(context, asked.reply("no"), **context.options)


@then('it asks the second question, and has got "no" for the first alone')
def step_it_asks_the_second_question_and_has_got_no_for_the(context: Context) -> None:
    assert [each.value for each in context.result.interrupts] == ["second?"], context.result
    done = send(context, context.result.reply("last"))
    assert done.content["got"] == ["no", "last"], done


@given("a thread of a graph where {state}")
def step_a_thread_of_a_graph_where_state(context: Context, state: str) -> None:
    place = "a breakpoint before a node" if state.endswith("breakpoint") else "one node"
    context.graph = ASKING[place](InMemorySaver())
    if state != "nothing was ever said":
        result = send(context, {"said": ["hello"]})
        if state == "the graph has ended":
            result = send(context, result.reply("yes"))
            assert result.status == "ok", result
    context.before = saved(context)


@when('it is answered with Command(resume="yes")')
def step_it_is_answered_with_command_resume_yes(context: Context) -> None:
    context.result = send(context, Command(resume="yes"))


@then("the answer was rejected with a StaleResumeError, and the thread has no answer")
def step_the_answer_was_rejected_and_the_thread_has_no_answer(context: Context) -> None:
    assert context.result.status == "rejected", context.result
    assert isinstance(context.result.error, StaleResumeError)
    assert saved(context) == context.before, saved(context)


@then("reply without an id, with an unknown id, and on a message that asks nothing are refused")
def step_reply_without_an_id_with_an_unknown_id_and_on(context: Context) -> None:
    asks = context.result
    first, second = (each.id for each in asks.interrupts)
    refusals: list[tuple[StreamMessage, Any, str]] = [
        (asks, None, first),
        (asks, "0" * 32, second),
        (StreamMessage("hello"), None, "asks nothing; reply to results with interrupts"),
    ]
    for message, interrupt_id, remedy in refusals:
        try:
            message.reply("yes", interrupt_id)
        except InvalidArgumentError as error:
            assert remedy in str(error), error
        else:
            raise AssertionError(f"{message} has a reply to {interrupt_id}")


# -- new input -------------------------------------------------------------------------------------

CONTENTS: dict[str, Any] = {
    "a dictionary": {"said": ["more"]},
    "Command(update)": Command(update={"said": ["more"]}),
    "None": None,
}


@when("{content} comes to it with on_pending={policy}, by {entry}")
def step_content_comes_to_it_with_on_pending_by_entry(
    context: Context, content: str, policy: str, entry: str
) -> None:
    context.result = through(context, entry, CONTENTS[content], on_pending=policy)


@then("it is {outcome}, and the question is {question}")
def step_it_is_outcome_and_the_question_is(context: Context, outcome: str, question: str) -> None:
    assert context.result.status == outcome, context.result
    if outcome == "rejected":
        assert isinstance(context.result.error, PendingInterruptError), context.result
    answer = send(context, context.asked.reply("yes"))
    if question == "pending":
        assert answer.interrupts[0].value == "second?", answer
    else:
        assert isinstance(answer.error, StaleResumeError), answer


@when("new input goes back to the checkpoint before the question, named by {place}")
def step_new_input_goes_back_to_the_checkpoint_before_the_question(
    context: Context, place: str
) -> None:
    context.result = send(context, CONTENTS["a dictionary"])
    history = list(context.graph.get_state_history(ON_THREAD))
    earlier = history[-1].config["configurable"]
    config = {"configurable": {key: earlier[key] for key in ("checkpoint_ns", "checkpoint_id")}}
    options: dict[str, Any] = {"thread_id": "t", "errors": "emit"}
    if place == "the message's config":
        task = context.bridge.create_future_task(
            context.graph, CONTENTS["a dictionary"], config=config, **options
        )
    else:
        bound = context.graph.with_config(config)
        task = context.bridge.create_future_task(bound, CONTENTS["a dictionary"], **options)
    context.again = task.result(LIMIT)


@then("the graph asks anew, where it was refused without that")
def step_the_graph_asks_anew(context: Context) -> None:
    assert context.result.status == "rejected", context.result
    assert context.again.status == "interrupted", context.again
    assert [each.value for each in context.again.interrupts] == ["first?"], context.again


@when('new input, and then a reply, go to it through invoke with errors="{policy}"')
def step_new_input_and_then_a_reply_go_to_it_through_invoke_with_errors(
    context: Context, policy: Any
) -> None:
    messages = [StreamMessage({"said": ["more"]}, "t"), context.asked.reply("yes")]
    context.subscriber = Subscriber()
    context.subscriber.subscribe(
        rx.from_iterable(messages).pipe(context.bridge.invoke(context.graph, errors=policy))
    )
    context.subscriber.wait_for_end()


@then("the stream ends with a PendingInterruptError")
def step_the_stream_ends_with_a_pendinginterrupterror(context: Context) -> None:
    assert isinstance(context.subscriber.error, PendingInterruptError), context.subscriber.error


@then("the stream emits {statuses}, and completes")
def step_the_stream_emits_and_completes(context: Context, statuses: str) -> None:
    found = [result.status for result in context.subscriber.items]
    assert found == statuses.split(", "), found
    assert context.subscriber.ends == ["completed"], context.subscriber.ends


@when("new input comes to it with a policy that retries everything")
def step_new_input_comes_to_it_with_a_policy_that_retries_everything(context: Context) -> None:
    context.tries = []
    policy = POLICY.copy(before=context.tries.append)
    context.future = context.bridge.create_future_task(
        context.graph, {"said": ["more"]}, thread_id="t", retry=policy
    )


@then("it was tried once, and the future raises a PendingInterruptError that names the question")
def step_it_was_tried_once_and_the_future_raises_a_pendinginterrupterror(
    context: Context,
) -> None:
    error = context.future.exception(LIMIT)
    assert isinstance(error, PendingInterruptError), error
    (question,) = context.asked.interrupts
    for words in ("'t'", "first?", question.id, "Command(resume=", "on_pending='discard'"):
        assert words in str(error), error
    assert error.interrupts == (question,)
    assert len(context.tries) == 1, context.tries


@when('a message is sent with on_pending="ask"')
def step_a_message_is_sent_with_on_pending_ask(context: Context) -> None:
    try:
        context.bridge.create_future_task(ASKING["one node"](None), {}, on_pending="ask")
    except Exception as error:
        context.error = error


# -- what it costs ---------------------------------------------------------------------------------


@given("a graph that does not ask, whose saver {does}")
def step_a_graph_that_does_not_ask_whose_saver(context: Context, does: str) -> None:
    def say(_: Said) -> Said:
        return {"said": ["done"]}

    builder: Any = StateGraph(Said).add_node("say", say).add_edge(START, "say")
    context.saver = CountingSaver()
    context.graph = builder.compile(context.saver)
    if does == "hangs":
        context.saver.gate = Gate()
        context.add_cleanup(context.saver.gate.open)


@when('{message} is sent, and "ainvoke" does the same')
def step_message_is_sent_and_ainvoke_does_the_same(context: Context, message: str) -> None:
    options = {"on_pending": "discard"} if "discard" in message else {}
    assert send(context, {"said": ["hello"]}, **options).status == "ok"
    by_bridge, context.saver.reads = context.saver.reads, 0
    run(context.graph.ainvoke({"said": ["hello"]}, {"configurable": {"thread_id": "other"}}))
    context.more = by_bridge - context.saver.reads


@then("the bridge has read the latest checkpoint {count:d} times more often")
def step_the_bridge_has_read_the_latest_checkpoint_times_more_often(
    context: Context, count: int
) -> None:
    assert context.more == count, context.more


@when("a message is sent while the saver fails once, without a retry and with one")
def step_a_message_is_sent_while_the_saver_fails_once_without_a(context: Context) -> None:
    context.results = []
    for retry in (None, 1):
        context.saver.failures = 1
        context.results.append(send(context, {"said": ["hello"]}, retry=retry))


@then("the first is an error, and the second is ok")
def step_the_first_is_an_error_and_the_second_is_ok(context: Context) -> None:
    first, second = context.results
    assert first.status == "error" and isinstance(first.error, ConnectionError), first
    assert second.status == "ok", second


@when("a message is cancelled, and another times out, while their threads are read")
def step_a_message_is_cancelled_and_another_times_out_while_their(context: Context) -> None:
    cancelled, timed_out = (
        context.bridge.create_future_task(
            context.graph, {"said": []}, thread_id=name, errors="emit", timeout=timeout
        )
        for name, timeout in (("a", None), ("b", LIMIT))
    )
    context.saver.entered.wait_for(2)
    cancelled.cancel()
    expire(timed_out)
    context.futures = [cancelled, timed_out]


@then("both have ended so, and the registry is idle")
def step_both_have_ended_so_and_the_registry_is_idle(context: Context) -> None:
    cancelled, timed_out = context.futures
    assert timed_out.result(LIMIT).status == "timed_out"
    assert cancelled.cancelled()
    assert context.bridge.registry.wait_idle(LIMIT)


@when("{count:d} answers without an id are given, and every other one is cancelled at once")
def step_answers_without_an_id_are_given_and_every_other_one_is(
    context: Context, count: int
) -> None:
    bridge: RxPyLangGraphBridge = context.bridge

    async def give(_: object) -> Any:
        futures = [
            bridge.create_future_task(
                context.graph, Command(resume="yes"), thread_id="t", errors="emit"
            )
            for _ in range(count)
        ]
        for future in futures[::2]:
            future.cancel()
        return futures

    context.futures = bridge.create_future_task(give, None).result(LIMIT).content


@then("the bridge remembers no answer")
def step_the_bridge_remembers_no_answer(context: Context) -> None:
    taken = [each for each in context.futures[1::2] if each.result(LIMIT).status != "rejected"]
    assert len(taken) <= 1, taken  # the first one may be cancelled half-way
    assert context.bridge.registry.wait_idle(LIMIT)
    on_loop(context)
    assert context.bridge._engine._answers.waiting == {}


# -- the list of questions -------------------------------------------------------------------------


def pending_listed(context: Context, thread_id: str | None = None) -> tuple[PendingInterrupt, ...]:
    bridge: RxPyLangGraphBridge = context.bridge
    return asyncio.run(bridge.pending_interrupts(context.graph, thread_id))


@given("threads that wait, that have ended, and that stopped at a breakpoint, saved {saver}")
def step_threads_that_wait_that_have_ended_and_that_stopped_at_a(
    context: Context, saver: str
) -> None:
    kept = saver_for(context, saver)
    threads = [
        ("in a subgraph", "a subgraph"),
        ("at breakpoint", "a breakpoint before a node"),
        ("both", "nodes side by side"),
        ("ended", "one node"),
        ("one", "one node"),
    ]
    context.results = {}
    for thread_id, place in threads:
        context.graph = ASKING[place](kept)
        result = send(context, {"said": ["hello"]}, thread_id=thread_id)
        if thread_id == "ended":
            result = send(context, result.reply("yes"))
        context.results[thread_id] = result


@when("the pending questions are listed")
def step_the_pending_questions_are_listed(context: Context) -> None:
    context.found = pending_listed(context)


@then("those of the threads that wait are there, the oldest first, with their ages")
def step_those_of_the_threads_that_wait_are_there_the_oldest_first(context: Context) -> None:
    found = [(each.thread_id, each.interrupt) for each in context.found]
    expected = [
        (thread_id, interrupt)
        for thread_id, result in context.results.items()
        for interrupt in result.interrupts
    ]
    assert [thread_id for thread_id, _ in found] == ["in a subgraph", "both", "both", "one"]
    assert sorted(found, key=repr) == sorted(expected, key=repr), found
    assert all(0 <= each.age < LIMIT for each in context.found), context.found


@then("an answer made from the list is taken, and that question is listed no more")
def step_an_answer_made_from_the_list_is_taken_and_that_question(context: Context) -> None:
    listed_last = context.found[-1]
    result = send(context, listed_last.reply("from the list"))
    assert result.status == "ok" and result.thread_id == "one", result
    assert result.content["said"] == ["hello", "first? from the list"], result
    now = [each.thread_id for each in pending_listed(context)]
    assert now == ["in a subgraph", "both", "both"], now


@then("the list of one thread has its questions alone")
def step_the_list_of_one_thread_has_its_questions_alone(context: Context) -> None:
    for thread_id, result in context.results.items():
        found = pending_listed(context, thread_id)
        # Nodes that ask at once: LangGraph saves their questions in the order of their ends.
        assert sorted((each.interrupt for each in found), key=repr) == sorted(
            result.interrupts, key=repr
        ), found
    assert pending_listed(context, "unknown") == ()


@then(
    "a list is refused for a graph without a checkpointer, a thread that is not a string, "
    "and a closed bridge"
)
def step_a_list_is_refused_for_a_graph_without_a_checkpointer_a_thread(
    context: Context,
) -> None:
    closed = RxPyLangGraphBridge()
    closed.close()
    calls = [
        (context.bridge.pending_interrupts(ASKING["one node"](None)), InvalidArgumentError),
        (context.bridge.pending_interrupts(None), InvalidArgumentError),
        (context.bridge.pending_interrupts(context.graph, 7), InvalidTypeError),
        (context.bridge.expire_interrupts(context.graph, -1), InvalidArgumentError),
        (closed.pending_interrupts(context.graph), BridgeClosedError),
    ]
    for call, error in calls:
        try:
            found = asyncio.run(call)
        except error:
            continue
        raise AssertionError(f"{error.__name__} was not raised: {found}")


@given("a run that waits, and a message that waits behind it on its thread")
def step_a_run_that_waits_and_a_message_that_waits_behind_it(context: Context) -> None:
    entered, gate = Log(), Gate()

    async def wait(_: object) -> None:
        entered.add("waiting")
        await gate.wait_async()

    for _ in range(2):
        context.bridge.create_future_task(wait, None, thread_id="busy")
    entered.wait_for(1)
    context.add_cleanup(gate.open)


@then("the pending questions are listed, on the loop of the bridge too")
def step_the_pending_questions_are_listed_on_the_loop_of_the_bridge(context: Context) -> None:
    assert [each.interrupt.value for each in pending_listed(context)] == ["first?"]
    loop = context.bridge._engine.host.loop
    call = context.bridge.pending_interrupts(context.graph, "t")
    found = asyncio.run_coroutine_threadsafe(call, loop).result(LIMIT)
    assert [each.interrupt.value for each in found] == ["first?"], found


@when("another process asks a question on a thread in SQLite, and ends")
def step_another_process_asks_a_question_on_a_thread_in_sqlite_and_ends(
    context: Context,
) -> None:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    path = str(Path(folder.name) / "threads.sqlite")
    program = f"from support.bridge.asking import ask_and_end; ask_and_end({path!r})"
    child = run_python("-c", program)
    assert child.stdout.startswith("interrupted "), (child.stdout, child.stderr)
    context.asked_id = child.stdout.split()[1]
    opening = AsyncSqliteSaver.from_conn_string(path)

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        async def on_loop(_: object) -> Any:
            return await function(*arguments)

        return context.bridge.create_future_task(on_loop, None).result(LIMIT).content

    context.graph = in_turn(call(opening.__aenter__))
    context.add_cleanup(call, opening.__aexit__, None, None, None)


@then("the question is listed, and a reply to it is taken")
def step_the_question_is_listed_and_a_reply_to_it_is_taken(context: Context) -> None:
    (context.question,) = pending_listed(context)
    assert (context.question.thread_id, context.question.interrupt.id) == ("t", context.asked_id)
    result = send(context, context.question.reply("yes"))
    assert [each.value for each in result.interrupts] == ["second?"], result


@then("a second reply to it is rejected with a StaleResumeError")
def step_a_second_reply_to_it_is_rejected_with_a_staleresumeerror(context: Context) -> None:
    result = send(context, context.question.reply("again"))
    assert isinstance(result.error, StaleResumeError), result


def expired(context: Context, older_than: float, graph: Any = None) -> Any:
    bridge: RxPyLangGraphBridge = context.bridge
    return asyncio.run(bridge.expire_interrupts(graph or context.graph, older_than))


@when("questions expire that are older than an hour, and then all")
def step_questions_expire_that_are_older_than_an_hour_and_then_all(context: Context) -> None:
    context.before = [each for each in pending_listed(context) if each.thread_id == "one"]
    context.dropped = [expired(context, 3600), expired(context, 0)]


@then("the first time none is dropped, and the second time all are, and none is listed")
def step_the_first_time_none_is_dropped_and_the_second_time_all_are(context: Context) -> None:
    first, second = context.dropped
    assert first == (), first
    assert [each.interrupt for each in second] == [each.interrupt for each in context.before]
    assert pending_listed(context, "one") == ()


@then("an answer to a dropped question is rejected, and its thread takes new input, with its state")
def step_an_answer_to_a_dropped_question_is_rejected_and_its_thread(context: Context) -> None:
    late = send(context, context.before[0].reply("late"))
    assert isinstance(late.error, StaleResumeError), late
    result = send(context, {"said": ["new"]}, thread_id="one")
    assert (result.status, result.content["said"]) == ("interrupted", ["hello", "new"]), result


@given("a thread on which one node has ended, and another beside it asks")
def step_a_thread_on_which_one_node_has_ended_and_another_beside_it(context: Context) -> None:
    context.graph = beside_a_question(InMemorySaver())
    assert send(context, {"said": ["hello"]}).status == "interrupted"


@when("its question expires")
def step_its_question_expires(context: Context) -> None:
    (dropped,) = expired(context, 0)
    assert dropped.interrupt.value == "first?", dropped


@then("the thread has what the first node returned")
def step_the_thread_has_what_the_first_node_returned(context: Context) -> None:
    values = saved(context).checkpoint["channel_values"]
    assert values["said"] == ["hello", "done"], values


@given("two graphs with different states that share a checkpointer, and ask")
def step_two_graphs_with_different_states_that_share_a_checkpointer(context: Context) -> None:
    saver = InMemorySaver()
    other, context.graph = with_other_state(saver), in_turn(saver)
    send(context, {"said": ["hello"]}, thread_id="first")
    context.first, context.graph = context.graph, other
    context.asked = send(context, {"notes": "kept"})
    assert context.asked.status == "interrupted", context.asked


@when("the questions of the first graph expire")
def step_the_questions_of_the_first_graph_expire(context: Context) -> None:
    dropped = expired(context, 0, context.first)
    assert [each.thread_id for each in dropped] == ["first"], dropped


@then("the question of the second graph is pending, and its thread has its state")
def step_the_question_of_the_second_graph_is_pending_and_its_thread(context: Context) -> None:
    result = send(context, context.asked.reply("yes"))
    assert (result.status, result.content) == ("ok", {"notes": "kept, yes"}), result


@given("a run that works on an answer")
def step_a_run_that_works_on_an_answer(context: Context) -> None:
    entered, context.gate = Log(), Gate()
    context.add_cleanup(context.gate.open)
    context.graph = slow_to_take(InMemorySaver(), entered, context.gate)
    asked = send(context, {"said": ["hello"]})
    context.future = context.bridge.create_future_task(context.graph, asked.reply("yes"))
    entered.wait_for(1)
    assert [each.interrupt.value for each in pending_listed(context)] == ["first?"]


@when("its thread's questions expire, and then the run ends")
def step_its_threads_questions_expire_and_then_the_run_ends(context: Context) -> None:
    bridge: RxPyLangGraphBridge = context.bridge

    async def expire() -> Any:
        dropping = asyncio.ensure_future(bridge.expire_interrupts(context.graph, 0))
        names: list[str | None] = []
        while "expire_interrupts" not in names and not dropping.done():
            await asyncio.sleep(0)
            names = [each.name for each in bridge.registry.snapshot()]
        await bridge.pending_interrupts(context.graph)  # time enough for what does not wait
        context.gate.open()
        return await dropping

    context.dropped = asyncio.run(expire())


@then("no question was dropped, and the answer was taken")
def step_no_question_was_dropped_and_the_answer_was_taken(context: Context) -> None:
    assert context.dropped == (), context.dropped
    result = context.future.result(LIMIT)
    assert result.content["said"] == ["hello", "first? yes"], result
