"""Bridges that are not closed: dropped by their program, or by its end."""

from __future__ import annotations

import gc

from behave import then, when
from behave.runner import Context

from support.concurrency import exits


@when("this program ends without closing its bridge: {what}")
@when("this program ends without waiting for its bridge: {what}")
def step_this_program_ends_without_closing_its_bridge_what(context: Context, what: str) -> None:
    context.ended = exits.run(what)


@then("it ends by itself with status 0, and prints only what it was told to print")
def step_it_ends_by_itself_with_status_0_and_prints_only_what_it(context: Context) -> None:
    ended = context.ended
    assert (ended.returncode, ended.stderr) == (0, ""), (ended.returncode, ended.stderr)
    assert set(ended.stdout.splitlines()) <= {"cleaned up"}, ended.stdout


@then('it has printed "{words}"')
def step_it_has_printed_words(context: Context, words: str) -> None:
    assert words in context.ended.stdout, (context.ended.stdout, context.ended.stderr)


@then('it has printed "{words}" {count:d} times')
def step_it_has_printed_words_times(context: Context, words: str, count: int) -> None:
    ended = context.ended
    assert (ended.returncode, ended.stderr) == (0, ""), (ended.returncode, ended.stderr)
    assert ended.stdout.splitlines() == [words] * count, ended.stdout


@then("it has left within {seconds:d} seconds, for a second or two each would be more than that")
def step_it_has_left_within_seconds(context: Context, seconds: int) -> None:
    assert float(context.ended.stdout) < seconds, context.ended


# -- dropping --------------------------------------------------------------------------------------


@when("the bridge is dropped")
def step_the_bridge_is_dropped(context: Context) -> None:
    context.name = context.bridge.name
    if any(not future.done() for future in context.futures):
        context.work.began.wait_for(1)
    else:
        context.futures.clear()
    context.forget_bridge()
    gc.collect()


@when("the futures are dropped too")
def step_the_futures_are_dropped_too(context: Context) -> None:
    context.futures.clear()
    gc.collect()
