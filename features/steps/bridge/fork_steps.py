"""A bridge, and what else has threads, in the child of a fork."""

from __future__ import annotations

from behave import then, when
from behave.runner import Context

from support.concurrency import forks


@when("this program forks: {what}")
def this_program_forks(context: Context, what: str) -> None:
    context.ended = forks.run(what)


@when("children of one program each make one of these calls")
def children_each_make_one_of_these_calls(context: Context) -> None:
    context.ended = forks.run_in_children(row["call"] for row in context.table)


@then('each child prints "{words}", and "{remedy}"')
def each_child_prints(context: Context, words: str, remedy: str) -> None:
    _ends_well(context)
    assert context.ended.stdout
    for line in context.ended.stdout.splitlines():
        assert line.startswith(words), line
        assert remedy in line, line


@when("children of one program end after one of these calls each")
def children_end_after_one_of_these_calls(context: Context) -> None:
    context.ended = forks.end_children(row["call"] for row in context.table)
    context.rows = len(context.table.rows)


@then("each ends by itself with status 0, and prints nothing")
def step_each_ends_by_itself_with_status_0_and_prints_nothing(context: Context) -> None:
    _ends_well(context)
    assert context.ended.stdout == "the child's status is 0\n" * context.rows, context.ended.stdout


@then('its child prints "{words}", and "{remedy}"')
def its_child_prints(context: Context, words: str, remedy: str) -> None:
    _ends_well(context)
    assert context.ended.stdout.startswith(words), context.ended.stdout
    assert remedy in context.ended.stdout, context.ended.stdout


@then('its child does not print "{words}"')
def its_child_does_not_print(context: Context, words: str) -> None:
    _ends_well(context)
    assert words not in context.ended.stdout, context.ended.stdout


@then('it ends by itself, and prints "{first}" and then "{second}"')
def step_it_ends_by_itself_and_prints_first_and_then_second(
    context: Context, first: str, second: str
) -> None:
    _ends_well(context)
    assert context.ended.stdout.splitlines()[-2:] == [first, second], context.ended.stdout


@then('it ends by itself, and prints "{line}"')
def step_it_ends_by_itself_and_prints_line(context: Context, line: str) -> None:
    _ends_well(context)
    assert line in context.ended.stdout.splitlines(), context.ended.stdout


def _ends_well(context: Context) -> None:
    ended = context.ended
    assert (ended.returncode, ended.stderr) == (0, ""), (ended.returncode, ended.stderr)
    assert "hung" not in ended.stdout, ended.stdout
