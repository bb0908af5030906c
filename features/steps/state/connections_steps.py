from __future__ import annotations

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import StateUnavailableError
from support.concurrency.tasks import run
from support.servers import servers
from support.servers.dying_connections import (
    Outcome,
    count_through_resets,
    expected,
    open_through_death,
    use_through_deaths,
)
from support.state.encodings import NAMES, names_come_back
from support.state.refused_values import FORBID, set_forbidden
from support.state.sql_openings import open_at


@given("an empty store in {backend}")
def step_an_empty_store_in_backend(context: Context, backend: str) -> None:
    context.url = servers.fresh_url(context, backend)


@when("each method of a state is called while its connection dies {moment}, by {end}")
def step_each_method_of_a_state_is_called_while_its_connection(
    context: Context, moment: str, end: str
) -> None:
    context.outcome = run(use_through_deaths(context.url, moment, end))


@when(
    "two calls are made after a reset of all connections, noticed for 0 to {last:d} steps of the"
    " loop"
)
def step_two_calls_are_made_after_a_reset_of_all_connections(context: Context, last: int) -> None:
    context.counted = run(count_through_resets(context.url, last + 1))


@then("the calls have counted to {count:d}")
def have_counted(context: Context, count: int) -> None:
    assert sorted(context.counted) == [*range(1, count + 1)], context.counted


@when("a state is opened there while its connection dies {moment}, by {end}")
def step_a_state_is_opened_there_while_its_connection_dies_moment(
    context: Context, moment: str, end: str
) -> None:
    context.error = run(open_through_death(context.url, moment, end))


@when('tasks with names of any characters are claimed over "{option}"')
def step_tasks_with_names_of_any_characters_are_claimed_over(context: Context, option: str) -> None:
    context.names = run(names_come_back(with_option(context.url, option)))


@then("all of their names are as they were")
def names_are_as_they_were(context: Context) -> None:
    assert context.names == [(name, name, name) for name in NAMES], context.names


@when('a state is opened over "{option}"')
def step_a_state_is_opened_over_option(context: Context, option: str) -> None:
    context.error = run(open_at(with_option(context.url, option)))


@given("a store that refuses one key, in {backend}")
def step_a_store_that_refuses_one_key_in_backend(context: Context, backend: str) -> None:
    context.url = servers.fresh_url(context, backend)
    assert run(open_at(context.url)) is None
    FORBID[backend](context.url)


@when("that key is set, while {others:d} others are set")
def step_that_key_is_set_while_others_others_are_set(context: Context, others: int) -> None:
    context.error, context.there = run(set_forbidden(context.url, others))


@then("the {count:d} others are there")
def others_are_there(context: Context, count: int) -> None:
    assert context.there == count, context.there


@then("each call was answered, as if nothing had happened")
def each_was_answered(context: Context) -> None:
    outcome: Outcome = context.outcome
    assert not outcome.errors, outcome.errors
    assert_as_expected(outcome)


@then("each call was answered as if nothing had happened, or has told that it is in doubt")
def each_was_answered_or_in_doubt(context: Context) -> None:
    outcome: Outcome = context.outcome
    for name, error in outcome.errors.items():
        assert isinstance(error, StateUnavailableError), (name, error)
        assert error.in_doubt, (name, error)
    assert_as_expected(outcome)


@then("the next call was answered")
def next_call_was_answered(context: Context) -> None:
    assert context.outcome.afterwards == (None, 0), context.outcome


def with_option(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"


def assert_as_expected(outcome: Outcome) -> None:
    for name, answer in outcome.answers.items():
        assert answer == expected(name), (name, answer)
