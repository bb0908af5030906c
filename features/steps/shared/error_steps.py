"""What a call has raised. The step that makes the call keeps the error in ``context.error``."""

from __future__ import annotations

import re
import traceback

from behave import then
from behave.runner import Context

from rxlanggraph.errors import StateUnavailableError
from support.concurrency.raising import check_error


@then("{error:w} is raised")
def step_error_is_raised(context: Context, error: str) -> None:
    check_error(context.error, error)


@then('{error:w} is raised, which says "{words}"')
def step_error_is_raised_which_says_words(context: Context, error: str, words: str) -> None:
    check_error(context.error, error, words)


@then("no other error is in its traceback")
def step_no_other_error_is_in_its_traceback(context: Context) -> None:
    lines = traceback.format_exception(context.error)
    assert "".join(lines).count("Traceback") == 1, "".join(lines)


@then("{error:w} is raised, a subclass of {base:w}")
def step_error_is_raised_a_subclass_of_base(context: Context, error: str, base: str) -> None:
    check_error(context.error, error)
    assert base in {each.__name__ for each in type(context.error).__mro__}, repr(context.error)


@then('{error:w} is raised, with a note that says "{words}"')
def step_error_is_raised_with_a_note_that_says_words(
    context: Context, error: str, words: str
) -> None:
    check_error(context.error, error)
    assert words in context.error.__notes__[0], context.error.__notes__


@then("{error:w} is raised by each of the {count:d} calls")
def step_error_is_raised_by_each_of_the_count_calls(
    context: Context, error: str, count: int
) -> None:
    assert len(context.errors) == count, context.errors
    for each in context.errors:
        check_error(each, error)


@then('the error says "{words}"')
def step_the_error_says_words(context: Context, words: str) -> None:
    assert words in str(context.error), context.error


@then("the error leaves {what} doubt whether the call had an effect")
def step_the_error_leaves_what_doubt_whether_the_call_had_an_effect(
    context: Context, what: str
) -> None:
    assert isinstance(context.error, StateUnavailableError), repr(context.error)
    assert context.error.in_doubt is {"a": True, "no": False}[what], repr(context.error)


@then("neither the error nor its causes show {secrets}")
def step_neither_the_error_nor_its_causes_show_secrets(context: Context, secrets: str) -> None:
    shown = "".join(traceback.format_exception(context.error))
    # Indented lines quote the code, and with it the step's own words. Addresses have any digits.
    told = "\n".join(line for line in shown.splitlines() if not line.startswith("  "))
    told = re.sub("0x[0-9a-f]+", "", told)
    assert context.error is not None
    assert not [secret for secret in secrets.split(", ") if secret in told], told
