"""A chat model that refuses what OpenAI, Anthropic or Gemini would refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult

__all__ = ["RULES", "Provider", "Refused", "provider"]


class Refused(Exception):
    """What a provider answers with status 400."""


# -- rules -----------------------------------------------------------------------------------------


def openai(messages: Sequence[BaseMessage]) -> None:
    """Each call is answered, and directly behind it; no result stands alone."""
    open_calls: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in open_calls:
                raise Refused("a tool message must follow a message with 'tool_calls'")
            open_calls.discard(message.tool_call_id)
            continue
        if open_calls:
            raise Refused(f"tool_calls without a response: {open_calls}")
        open_calls = set(calls_of(message))
    if open_calls:
        raise Refused(f"tool_calls without a response: {open_calls}")


def anthropic(messages: Sequence[BaseMessage]) -> None:
    """As above, with blocks too; the user speaks first, and nothing is empty."""
    spoken = without_system(messages)
    if not spoken or role_of(spoken[0]) != "user":
        raise Refused("the first message must have the role 'user'")
    turns = merged(spoken)
    if results_in(turns[0]):
        raise Refused("a tool_result without its tool_use in the message before")
    for before, after in pairwise(turns):
        calls, results = calls_in(before), results_in(after)
        if calls != results:
            raise Refused(f"tool_use {calls} and tool_result {results} do not match")
    if calls_in(turns[-1]):
        raise Refused("tool_use without its tool_result")
    for turn in turns:
        if not any(message.content or calls_of(message) for message in turn):
            raise Refused("messages must have content")


def gemini(messages: Sequence[BaseMessage]) -> None:
    """A call comes behind the user or behind results; as many results as calls, directly."""
    spoken = without_system(messages)
    if not spoken or role_of(spoken[0]) != "user":
        raise Refused("contents must begin with the user's")
    turns = merged(spoken)
    for before, after in pairwise([[], *turns]):
        if calls_in(after) and not (before and role_of(before[0]) == "user"):
            raise Refused("a function call must come behind a user's turn or a response")
        if len(calls_in(before)) != len(results_in(after)):
            raise Refused("as many responses as calls are needed")
    if role_of(turns[-1][0]) != "user":
        raise Refused("the last turn must be the user's, or a response")


RULES: dict[str, Callable[[Sequence[BaseMessage]], None]] = {
    "OpenAI": openai,
    "Anthropic": anthropic,
    "Gemini": gemini,
}


def without_system(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return [message for message in messages if not isinstance(message, SystemMessage)]


def role_of(message: BaseMessage) -> str:
    return "user" if isinstance(message, HumanMessage | ToolMessage) else "assistant"


def merged(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    """As the adapters send them: what one role says without a break is one turn."""
    turns: list[list[BaseMessage]] = []
    for message in messages:
        if turns and role_of(turns[-1][0]) == role_of(message):
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


def blocks_of(message: BaseMessage) -> list[dict[str, Any]]:
    return [block for block in message.content if isinstance(block, dict)]


def calls_of(message: BaseMessage) -> list[str]:
    made = isinstance(message, AIMessage) and [*message.tool_calls, *message.invalid_tool_calls]
    calls = [str(call["id"]) for call in made or ()]
    blocks = [block["id"] for block in blocks_of(message) if block.get("type") == "tool_use"]
    return [*calls, *(each for each in blocks if each not in calls)]


def calls_in(turn: Sequence[BaseMessage]) -> set[str]:
    return {call for message in turn for call in calls_of(message)}


def results_in(turn: Sequence[BaseMessage]) -> set[str]:
    told = {message.tool_call_id for message in turn if isinstance(message, ToolMessage)}
    blocks = [block for message in turn for block in blocks_of(message)]
    return told | {b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"}


# -- the model -------------------------------------------------------------------------------------


class Provider(GenericFakeChatModel):
    """Asked to "use the tool: X", it calls ``work`` with X; else it answers "re: request".

    It keeps what it was shown.
    """

    shown: list[list[BaseMessage]]

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        for rules in RULES.values():
            rules(messages)
        self.shown.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=answer_to(messages))])


def answer_to(messages: Sequence[BaseMessage]) -> AIMessage:
    last = messages[-1]
    text = str(last.content)
    if isinstance(last, HumanMessage) and text.startswith("use the tool: "):
        args = {"how": text.removeprefix("use the tool: ")}
        call = {"name": "work", "args": args, "id": f"call-{len(messages)}"}
        return AIMessage("", tool_calls=[call])
    return AIMessage(f"re: {text}")


def provider() -> Provider:
    return Provider(messages=iter([]), shown=[])
