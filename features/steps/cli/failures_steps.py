"""Steps of failures.feature: what the command tells of failures."""

from __future__ import annotations

import fnmatch
import json

from behave import then
from behave.runner import Context

from rxlanggraph.cli.failure_groups import normalized


def _errors_in(context: Context, name: str) -> dict[int, dict[str, str]]:
    lines = (context.folder / name).read_text().splitlines()
    return {record["line"]: record["error"] or {} for record in map(json.loads, lines)}


@then('no error in "{name}" has a traceback')
def step_no_error_in_name_has_a_traceback(context: Context, name: str) -> None:
    assert not any("traceback" in error for error in _errors_in(context, name).values())


@then('the traceback of line {line:d} in "{name}" has "{texts}"')
def step_the_traceback_of_line_line_in_name_has_texts(
    context: Context, line: int, name: str, texts: str
) -> None:
    traceback = _errors_in(context, name)[line]["traceback"]
    assert all(text in traceback for text in texts.split(" and ")), traceback


@then('the output has a row "{row}"')
def step_the_output_has_a_row_row(context: Context, row: str) -> None:
    rows = [" ".join(line.split()) for line in context.ended.out.splitlines()]
    assert fnmatch.filter(rows, row), context.ended  # * stands for what Python's versions word


@then("the output as JSON has these groups, beside invalid lines")
def step_the_output_as_json_has_these_groups_beside_invalid_lines(context: Context) -> None:
    def as_data(cell: str) -> object:
        return json.loads(cell) if cell[0] in "[0123456789" else cell

    groups = json.loads(context.ended.out)["groups"]
    found = [group for group in groups if group["status"] != "invalid"]
    expected = [dict(zip(row.headings, map(as_data, row), strict=True)) for row in context.table]
    key = lambda group: group["type"]  # noqa: E731
    assert sorted(found, key=key) == sorted(expected, key=key), found


@then('the message "{text}" is grouped as "{normal}"')
def step_the_message_text_is_grouped_as_normal(context: Context, text: str, normal: str) -> None:
    assert normalized(text) == normal, normalized(text)
