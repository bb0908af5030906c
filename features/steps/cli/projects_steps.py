"""Steps of projects.feature and settings.feature: LangGraph projects, options from elsewhere."""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context
from click.shell_completion import ShellComplete

from rxlanggraph.cli import _commands
from support.cli import command


@given('the environment variable "{name}" is "{value}"')
def step_the_environment_variable_name_is_value(context: Context, name: str, value: str) -> None:
    patcher = mock.patch.dict(os.environ, {name: value})
    patcher.start()
    context.add_cleanup(patcher.stop)


@given("python-dotenv is not installed")
def step_python_dotenv_is_not_installed(context: Context) -> None:
    patcher = mock.patch.dict(sys.modules, {"dotenv": None})
    patcher.start()
    context.add_cleanup(patcher.stop)


@when('I run in "{folder}" the command "{line}"')
def step_i_run_in_folder_the_command_line(context: Context, folder: str, line: str) -> None:
    context.ended = command.run_here(line, context.folder, context.stdin, folder)


@then('the output says "{text}"')
def step_the_output_says_text(context: Context, text: str) -> None:
    assert text in context.ended.out, context.ended


@then('the output as JSON has "{text}" at "{path}"')
def step_the_output_as_json_has_text_at_path(context: Context, text: str, path: str) -> None:
    value: Any = json.loads(context.ended.out)
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    assert value == text, context.ended


@then('standard error is one line that says "{one}", "{two}" and "{three}"')
def step_standard_error_is_one_line_that_says_one_two_and_three(
    context: Context, one: str, two: str, three: str
) -> None:
    (line,) = context.ended.err.splitlines()
    for text in (one, two, three):
        assert text in line, line


@then('standard error says "{one}" once and then "{other}" once')
def step_standard_error_says_one_once_and_then_other_once(
    context: Context, one: str, other: str
) -> None:
    said = [line for line in context.ended.err.splitlines() if line in {one, other}]
    assert said == [one, other], context.ended


@then('the words "{words}" are completed with "{found}"')
def step_the_words_words_are_completed_with_found(context: Context, words: str, found: str) -> None:
    _, *arguments, incomplete = words.split()
    completer = ShellComplete(_commands, {}, "rxlanggraph", "_RXLANGGRAPH_COMPLETE")
    with command.as_if_new(context.folder):
        items = completer.get_completions(arguments, incomplete)
    assert [item.value for item in items] == found.split(), items
