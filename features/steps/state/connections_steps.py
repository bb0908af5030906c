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
def given_empty_store(context: Context, backend: str) -> None:
    context.url = servers.fresh_url(context, backend)


@when("each method of a state is called while its connection dies {moment}, by {end}")
def call_while_connection_dies(context: Context, moment: str, end: str) -> None:
    context.outcome = run(use_through_deaths(context.url, moment, end))


@when(
    "two calls are made after a reset of all connections, noticed for 0 to {last:d} steps of the"
    " loop"
)
def count_through_resets_of_idle_connections(context: Context, last: int) -> None:
    context.counted = run(count_through_resets(context.url, last + 1))


@then("the calls have counted to {count:d}")
def have_counted(context: Context, count: int) -> None:
    assert sorted(context.counted) == [*range(1, count + 1)], context.counted


@when("a state is opened there while its connection dies {moment}, by {end}")
def open_while_connection_dies(context: Context, moment: str, end: str) -> None:
    context.error = run(open_through_death(context.url, moment, end))


@when('tasks with names of any characters are claimed over "{option}"')
def claim_over_option(context: Context, option: str) -> None:
    context.names = run(names_come_back(with_option(context.url, option)))


@then("all of their names are as they were")
def names_are_as_they_were(context: Context) -> None:
    assert context.names == [(name, name, name) for name in NAMES], context.names


@when('a state is opened over "{option}"')
def open_over_option(context: Context, option: str) -> None:
    context.error = run(open_at(with_option(context.url, option)))


@given("a store that refuses one key, in {backend}")
def given_forbidden_key(context: Context, backend: str) -> None:
    context.url = servers.fresh_url(context, backend)
    assert run(open_at(context.url)) is None
    FORBID[backend](context.url)


@when("that key is set, while {others:d} others are set")
def set_forbidden_beside_others(context: Context, others: int) -> None:
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
