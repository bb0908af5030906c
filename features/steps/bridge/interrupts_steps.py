"""Graphs that ask: their results, the answers, and what else comes to their threads."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from reactivex import operators as ops
from tenacity import AsyncRetrying, retry_always, retry_if_result, stop_after_attempt

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge.interrupts import questions_of
from rxlanggraph.errors import InvalidArgumentError, PendingInterruptError, StaleResumeError
from support.bridge.asking import ASKING, CountingSaver, Said, gated, in_turn
from support.bridge.bridges import on_loop
from support.bridge.savers import open_sqlite
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Gate, Log

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
    futures = [
        context.bridge.create_future_task(
            context.graph,
            answer_as(context.asked, forms[number % len(forms)], f"answer {number}"),
            errors="emit",
        )
        for number in range(count)
    ]
    context.results = [future.result(LIMIT) for future in futures]


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
        (StreamMessage("hello"), None, "send None to continue from a breakpoint"),
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
        for name, timeout in (("a", None), ("b", 0.05))
    )
    context.saver.entered.wait_for(2)
    cancelled.cancel()
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
    context.futures = [
        context.bridge.create_future_task(
            context.graph, Command(resume="yes"), thread_id="t", errors="emit"
        )
        for _ in range(count)
    ]
    for future in context.futures[::2]:
        future.cancel()


@then("the bridge remembers no answer")
def step_the_bridge_remembers_no_answer(context: Context) -> None:
    taken = [each for each in context.futures[1::2] if each.result(LIMIT).status != "rejected"]
    assert len(taken) <= 1, taken  # the first one may be cancelled half-way
    assert context.bridge.registry.wait_idle(LIMIT)
    on_loop(context)
    assert context.bridge._engine._answers.waiting == {}
