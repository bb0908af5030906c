from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import errors
from rxlanggraph.agent.conversation.mcp_text import extract_text
from support.agent.mcp_agents import IMAGE, Mail, Naive, Obedient, noting
from support.agent.mcp_forms import FORMS
from support.concurrency.mcp_virtual import in_virtual_time

# -- what a message may be -------------------------------------------------------------------------


@when("the text is taken out of {form}")
def step_the_text_is_taken_out_of_form(context: Context, form: str) -> None:
    noting(context, lambda: extract_text(FORMS[form]()))


@then('the text is "{expected}"')
def step_the_text_is_expected(context: Context, expected: str) -> None:
    assert context.error is None, context.error
    assert context.result == expected.replace("; ", "\n"), context.result


@then('the sender has an AgentMessageError that says "{why}", and what would be read')
def step_the_sender_has_an_agentmessageerror_that_says_why_and_what(
    context: Context, why: str
) -> None:
    check_refusal(context.error, why)
    assert "send a string" in str(context.error) or "UTF-8" in why, context.error


@then('the sender has an AgentMessageError that says "{why}"')
def step_the_sender_has_an_agentmessageerror_that_says_why(context: Context, why: str) -> None:
    check_refusal(context.error, why)


def check_refusal(error: object, why: str) -> None:
    assert type(error) is errors.AgentMessageError, repr(error)
    assert why in str(error), error


# -- one that hangs --------------------------------------------------------------------------------

RECIPIENTS: dict[str, Callable[..., Any]] = {"BaseAgent": Obedient, "naive agent": Naive}


@given("a {kind} that has {seconds:d} virtual seconds for a message")
def step_a_kind_that_has_seconds_virtual_seconds_for_a_message(
    context: Context, kind: str, seconds: int
) -> None:
    context.recipient = RECIPIENTS[kind](timeout=seconds)


@given("{count:d} BaseAgents that hang on a message")
def step_count_baseagents_that_hang_on_a_message(context: Context, count: int) -> None:
    context.others = [Obedient(f"hanging-{number}") for number in range(count)]
    context.recipient = Obedient()


def exchange(
    context: Context, *contents: Any, limits: Sequence[float | None] = (), cancelled: str = ""
) -> None:
    """Send the messages at once, the first ones with these deadlines, and wait for the answers.

    Once one is being worked on, the sender of ``cancelled`` gives up.
    """

    async def send() -> dict[str, Any]:
        mail = Mail(context.recipient)
        for content, limit in itertools.zip_longest(contents, limits):
            mail.send(content, limit)
        if cancelled:
            await context.recipient.work.begun.wait()
            mail.senders[cancelled].cancel()
        await mail.wait_answered()
        return mail.got

    context.got = in_virtual_time(send())


@when('it is sent "{message}" with {seconds:d} seconds, and "{others}" behind it')
def step_it_is_sent_message_with_seconds_seconds_and_others_behind(
    context: Context, message: str, seconds: int, others: str
) -> None:
    exchange(context, message, *others.split(", "), limits=[seconds])


@when('it is sent "{first}", and "{late}" with {seconds:d} seconds behind it')
def step_it_is_sent_first_and_late_with_seconds_seconds_behind_it(
    context: Context, first: str, late: str, seconds: int
) -> None:
    exchange(context, first, late, limits=[None, seconds])


@when('it is sent "{first}", and an image behind it')
def step_it_is_sent_first_and_an_image_behind_it(context: Context, first: str) -> None:
    exchange(context, first, IMAGE)


@when('it is sent "{first}" and "{second}", and the sender of "{one}" gives up')
def step_it_is_sent_first_and_second_and_the_sender_of_one_gives_up(
    context: Context, first: str, second: str, one: str
) -> None:
    exchange(context, first, second, cancelled=one)


@when('it is sent "{message}"')
def step_it_is_sent_message(context: Context, message: str) -> None:
    exchange(context, message)


@when('another BaseAgent is sent "{message}"')
def step_another_baseagent_is_sent_message(context: Context, message: str) -> None:
    async def send() -> dict[str, Any]:
        hanging = [Mail(agent) for agent in context.others]
        for mail in hanging:
            mail.send("hang")
        for agent in context.others:
            await agent.work.begun.wait()
        mail = Mail(context.recipient)
        mail.send(message)
        await mail.wait_answered()
        for one in hanging:
            await one.wait_answered()
        return mail.got

    context.got = in_virtual_time(send())


@then("the sender has a RunTimeoutError after {seconds:d} virtual seconds")
def step_the_sender_has_a_runtimeouterror_after_seconds_virtual(
    context: Context, seconds: int
) -> None:
    (name,) = context.got or ["no caller has an answer after an hour"]
    check_got(context, name, errors.RunTimeoutError, seconds)


@then('the sender of "{name}" has a RunTimeoutError after {seconds:d} virtual seconds')
def step_the_sender_of_name_has_a_runtimeouterror_after_seconds(
    context: Context, name: str, seconds: int
) -> None:
    check_got(context, name, errors.RunTimeoutError, seconds)


@then("the sender of the image has an AgentMessageError after {seconds:d} virtual seconds")
def step_the_sender_of_the_image_has_an_agentmessageerror_after(
    context: Context, seconds: int
) -> None:
    check_got(context, "the image", errors.AgentMessageError, seconds)


def check_got(context: Context, name: str, error: type[Exception], seconds: float) -> None:
    assert name in context.got, f"{name!r} has no answer after an hour; answered: {context.got}"
    got, when_ = context.got[name]
    assert type(got) is error, repr(got)
    assert when_ == seconds, when_


@then('"{others}" are answered after {seconds:d} virtual seconds, in this order')
def step_others_are_answered_after_seconds_virtual_seconds_in_this(
    context: Context, others: str, seconds: int
) -> None:
    names = others.split(", ")
    answered = {name: got for name, got in context.got.items() if name != "hang"}
    assert answered == {name: (name, seconds) for name in names}, context.got
    begun = [entry for entry in context.recipient.work.told if entry.startswith("begin")]
    assert begun == [f"begin {name}" for name in ("hang", *names)], begun


@then('the sender of "{name}" has its answer after {seconds:d} virtual seconds')
def step_the_sender_of_name_has_its_answer_after_seconds_virtual(
    context: Context, name: str, seconds: int
) -> None:
    answer, when_ = context.got[name]
    assert isinstance(answer, str), repr(answer)
    assert when_ == seconds, when_


@then("it has answered after {seconds:d} virtual seconds")
def step_it_has_answered_after_seconds_virtual_seconds(context: Context, seconds: int) -> None:
    assert context.got == {"one": ("one", seconds)}, context.got


@then('"{name}" was never begun')
def step_name_was_never_begun(context: Context, name: str) -> None:
    assert f"begin {name}" not in context.recipient.work.told, context.recipient.work.told


@then('nothing of "{name}" goes on')
def step_nothing_of_name_goes_on(context: Context, name: str) -> None:
    told = context.recipient.work.told
    assert told.count(f"begin {name}") == told.count(f"end {name}"), told
    assert name not in context.got, context.got
