from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

from behave import then, when
from behave.runner import Context
from langchain_core.messages import AIMessage

from rxlanggraph.agent import Memory, Message, from_langchain, to_langchain
from support.agent.agent_talk import NAMES, calling
from support.concurrency.raising import error_of


@when("a message is made by {call}")
def step_a_message_is_made_by_call(context: Context, call: str) -> None:
    context.message = None

    def make() -> None:
        context.message = eval(call, dict(NAMES))

    context.error = error_of(make)


@then("the error is short enough to be read")
def step_the_error_is_short_enough_to_be_read(context: Context) -> None:
    assert len(str(context.error)) < 500, len(str(context.error))


@then('it has the role {role:w} and the content "{content:Text}"')
def step_it_has_the_role_role_and_the_content_content(
    context: Context, role: str, content: str
) -> None:
    assert context.error is None, context.error
    assert (context.message.role, context.message.content) == (role, content), context.message


@when("LangChain's {message} becomes a message, and LangChain's again")
def step_langchains_message_becomes_a_message_and_langchains_again(
    context: Context, message: str
) -> None:
    context.before = eval(message, dict(NAMES))
    (context.after,) = to_langchain(from_langchain([context.before]))


@when("{message} becomes LangChain's, and a message again")
def step_message_becomes_langchains_and_a_message_again(context: Context, message: str) -> None:
    context.before = eval(message, dict(NAMES))
    (context.after,) = from_langchain(to_langchain([context.before]))


@then("it is as it was")
def step_it_is_as_it_was(context: Context) -> None:
    assert context.after == context.before, (context.after, context.before)
    assert type(context.after) is type(context.before) and context.after is not context.before


@when("an assistant's message with a call of OpenAI's and a broken one becomes LangChain's")
def step_an_assistants_message_with_a_call_of_openais_and_a_broken(context: Context) -> None:
    calls = [
        {"id": each, "type": "function", "function": {"name": "t", "arguments": arguments}}
        for each, arguments in (("good", '{"a": 1}'), ("broken", '{"a":'))
    ]
    context.memory = Memory()
    context.memory.add(Message("assistant", None, tool_calls=calls))
    assert list(context.memory.get_messages()[0].tool_calls) == calls


@then("it has one tool call with its arguments, and one invalid one")
def step_it_has_one_tool_call_with_its_arguments_and_one_invalid(context: Context) -> None:
    (message,) = context.memory.to_langchain()
    (good,), (broken,) = message.tool_calls, message.invalid_tool_calls
    assert (good["id"], good["name"], good["args"]) == ("good", "t", {"a": 1}), good
    assert (broken["id"], broken["args"]) == ("broken", '{"a":'), broken


@then("neither the list it was made from, nor a LangChain message made from it, changes it")
def step_neither_the_list_it_was_made_from_nor_a_langchain_message(context: Context) -> None:
    block: dict[str, Any] = {"type": "text", "text": "x"}
    call: dict[str, Any] = {"name": "t", "args": {"a": 1}, "id": "c"}
    message = context.message = Message("assistant", [block], tool_calls=[call])
    untouched = copy.deepcopy(message)
    block["text"], call["args"]["a"] = "y", 2
    (converted,) = to_langchain([message])
    converted.content[0]["text"] = "z"
    converted.tool_calls[0]["args"]["a"] = 3
    source = AIMessage("x", additional_kwargs={"a": [1]})
    (kept,) = from_langchain([source])
    source.additional_kwargs["a"].append(2)
    assert message == untouched, message
    assert kept.extra == {"additional_kwargs": {"a": [1]}}, kept.extra


@then("no field of it can be set")
def step_no_field_of_it_can_be_set(context: Context) -> None:
    for field in dataclasses.fields(Message):
        error = error_of(lambda name=field.name: setattr(context.message, name, "x"))  # type: ignore[misc]
        assert isinstance(error, AttributeError), (field.name, error)


@then("a message with tool calls survives {way}")
def step_a_message_with_tool_calls_survives_way(context: Context, way: str) -> None:
    ways: dict[str, Callable[[Message], Any]] = {
        "pickle": lambda message: pickle.loads(pickle.dumps(message)),
        "deepcopy": copy.deepcopy,
    }
    message = calling("a", "b")
    through = ways[way](message)
    assert through == message and through is not message
    assert hash(through) == hash(message) and len({through, message, calling("a", "b")}) == 2
