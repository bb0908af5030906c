"""Conversations: made at once by many, and what must be true of what is kept."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import MappingProxyType
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from rxlanggraph.agent import Message, from_langchain
from support.concurrency.waiting import LIMIT, Gate, in_threads, thread

__all__ = [
    "NAMES",
    "Looker",
    "call_ids",
    "calling",
    "check_tools",
    "check_whole",
    "from_loops",
    "from_tasks",
    "from_threads",
    "quoted",
    "texts",
    "turn_of",
    "user",
]


class Unshown:
    def __repr__(self) -> str:
        raise ValueError("this cannot be shown")


def deep(levels: int) -> list[Any]:
    """Lists in lists."""
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


CALL = {"name": "t", "args": {"a": 1}, "id": "c", "type": "tool_call"}
#: What the tables of the feature may name.
NAMES: dict[str, Any] = {
    "AIMessage": AIMessage,
    "AIMessageChunk": AIMessageChunk,
    "FunctionMessage": FunctionMessage,
    "HumanMessage": HumanMessage,
    "Message": Message,
    "SystemMessage": SystemMessage,
    "ToolMessage": ToolMessage,
    "CALL": CALL,
    "BROKEN": {**CALL, "args": "{", "type": "invalid_tool_call", "error": None},
    "USAGE": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    "DEEP": deep(10_000),
    "DEEP_CALL": {"id": "c", "function": {"name": "t", "arguments": "[" * 100_000}},
    "HUGE": b"x" * 10_000_000,
    "READ_ONLY_CALL": MappingProxyType(CALL),
    "Unshown": Unshown,
    "from_langchain": from_langchain,
    "LOCK": threading.Lock(),  # can be neither copied nor pickled
    "len": len,
}


def calling(*ids: str, content: str = "call") -> Message:
    return Message("assistant", content, tool_calls=[{**CALL, "id": each} for each in ids])


def turn_of(name: str) -> list[Message]:
    ids = (f"{name}-a", f"{name}-b")
    results = [Message("tool", f"to {each}", tool_call_id=each) for each in ids]
    return [calling(*ids), *results]


def user(text: object) -> Message:
    return Message("user", str(text))


def texts(messages: Sequence[Message]) -> list[Any]:
    return [message.content for message in messages]


def quoted(text: str) -> list[str]:
    """The words of a step that stand in quotes, of which the outer ones are missing."""
    return re.findall('"([^"]*)"', f'"{text}"')


# -- many at once ----------------------------------------------------------------------------------

Way = Callable[[Any, Sequence[Sequence[Sequence[Message]]]], list[BaseException]]


async def add(memory: Any, messages: Sequence[Message]) -> None:
    added = memory.add_all(messages)
    if isinstance(added, Awaitable):  # one of the controls
        await added


async def add_each(memory: Any, writers: Sequence[Sequence[Sequence[Message]]]) -> list[Any]:
    """Each piece of each writer in a task of its own, in order; what went wrong."""
    tasks = [asyncio.create_task(add(memory, piece)) for pieces in writers for piece in pieces]
    # A loop that keeps turning also notices what another thread has put on it the wrong way.
    for _ in range(20 * len(tasks)):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    return [each for each in ended if each is not None]


def from_tasks(memory: Any, writers: Sequence[Sequence[Sequence[Message]]]) -> list[BaseException]:
    return asyncio.run(add_each(memory, writers))


def from_loops(memory: Any, writers: Sequence[Sequence[Sequence[Message]]]) -> list[BaseException]:
    def work(number: int) -> list[BaseException]:
        return asyncio.run(add_each(memory, [writers[number]]))

    return [error for errors in in_threads(len(writers), work) for error in errors]


def from_threads(
    memory: Any, writers: Sequence[Sequence[Sequence[Message]]]
) -> list[BaseException]:
    def work(number: int) -> None:
        for piece in writers[number]:
            memory.add_all(piece)

    in_threads(len(writers), work)
    return []


class Looker:
    """Looks again and again, in a thread, until it is told to stop."""

    def __init__(self, memory: Any, check: Callable[[Sequence[Message]], None]) -> None:
        self._over = Gate()
        self._looked = Gate()
        self._looking = thread(self._look, memory, check)
        self._looked.wait()

    def _look(self, memory: Any, check: Callable[[Sequence[Message]], None]) -> int:
        looks = 0
        while not self._over.is_open:
            check(memory.get_messages())
            looks += 1
            self._looked.open()
        return looks

    def stop(self) -> int:
        self._over.open()
        return self._looking.result(LIMIT)


# -- what must be true -----------------------------------------------------------------------------


def call_ids(message: Message) -> list[str]:
    return [call["id"] for call in message.tool_calls]


def check_whole(messages: Sequence[Message]) -> None:
    """Every call is followed by its results, and every result belongs to one."""
    rest = iter(messages)
    for message in rest:
        assert message.role != "tool", f"{message} stands alone"
        for expected in call_ids(message):
            result = next(rest, None)
            assert result is not None, f"the result of {expected} is missing"
            assert result.tool_call_id == expected, f"{result} came between"


def check_tools(shown: Sequence[Message], added: Sequence[Message]) -> None:
    """No result stands without its call, and no call without the results that there are."""
    ids = {each.id for each in shown}
    owners: dict[str | None, Message] = {}
    for message in added:
        owners.update(dict.fromkeys(call_ids(message), message))
        owner = owners.get(message.tool_call_id) if message.role == "tool" else None
        if owner is not None:
            assert (owner.id in ids) == (message.id in ids), (owner, message)
