from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langchain_core.messages import AIMessage, BaseMessage

from rxlanggraph.agent import BaseAgent, Memory, Message
from support.agent.agent_memories import Words
from support.agent.agent_providers import RULES, Refused, provider
from support.agent.agent_tools import GRAPHS, Tools
from support.concurrency.tasks import run

# A conversation in pieces; after each but the last of an exchange a model is asked.
Piece = tuple[list[Message], bool]


def conversation(seed: int, form: str) -> Iterator[Piece]:
    chance = random.Random(seed)
    if chance.random() < 0.3:
        yield [Message("system", "be nice")], False
    for number in range(12):
        yield [Message("user", f"question {number}")], True
        for turn in range(chance.choice([0, 0, 1, 1, 2, 4])):
            ids = [f"{number}-{turn}-{each}" for each in range(chance.randint(1, 3))]
            yield tool_turn(ids, form), True
        yield [Message("assistant", f"answer {number}")], False


def tool_turn(ids: Sequence[str], form: str) -> list[Message]:
    calls = [{"name": "look", "args": {}, "id": each} for each in ids]
    uses = [{"type": "tool_use", "name": "look", "input": {}, "id": each} for each in ids]
    results = [Message("tool", f"to {each}", tool_call_id=each) for each in ids]
    if form == "messages":
        return [Message("assistant", "", tool_calls=calls), *results]
    if form == "calls that cannot be read":  # which is what their results say
        bad: Any = [{"name": "look", "args": "{", "id": each, "error": None} for each in ids]
        return [Message.of(AIMessage("", invalid_tool_calls=bad)), *results]
    blocks = [{"type": "tool_result", "tool_use_id": each, "content": "found"} for each in ids]
    also = calls if form == "both" else ()  # as LangChain's adapter has it
    return [Message("assistant", uses, tool_calls=also), Message("user", blocks)]


class Newest:
    """What is shown by who cuts a list."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._messages: list[Message] = []

    def add_all(self, messages: Sequence[Message]) -> None:
        self._messages += messages

    def to_langchain(self) -> list[BaseMessage]:
        memory = Memory()
        memory.add_all(self._messages[-self._count :])
        return memory.to_langchain()


@given("{count:d} random conversations with tools as {form}")
def random_conversations(context: Context, count: int, form: str) -> None:
    context.talks = [list(conversation(seed, form)) for seed in range(count)]


@when("each is added to a memory of at most {count:d} {unit}")
def each_is_added_to_a_memory(context: Context, count: int, unit: str) -> None:
    def memory() -> Any:
        if unit == "newest messages":
            return Newest(count)
        if unit == "words":
            return Memory(max_tokens=count, token_counter=Words())
        return Memory(max_messages=count)

    context.asked = []
    for talk in context.talks:
        added = memory()
        for piece, asks in talk:
            added.add_all(piece)
            if asks:
                context.asked.append(added.to_langchain())


@then("each time a model is asked, {rules} would take what it is shown")
def step_each_time_a_model_is_asked_rules_would_take_what_it_is(
    context: Context, rules: str
) -> None:
    for shown in context.asked:
        for name in rules.split(", "):
            try:
                RULES[name](shown)
            except Refused as refusal:
                raise AssertionError(f"{name}: {refusal}: {shown}") from refusal


@given(
    "an agent over a graph with tools, with a memory of at most {n:d} messages and "
    "a strict provider"
)
def step_an_agent_over_a_graph_with_tools_with_a_memory_of_at_most(
    context: Context, n: int
) -> None:
    context.model = provider()
    graph = GRAPHS["create_agent"](context.model, Tools().all())
    context.agent = BaseAgent("bounded", graph=graph, memory=Memory(max_messages=n))


@when("it is asked {count:d} times, and uses its tool each second time")
def it_is_asked_and_uses_its_tool(context: Context, count: int) -> None:
    async def main() -> list[Any]:
        requests = [f"use the tool: {n}" if n % 2 else f"question {n}" for n in range(count)]
        return [await context.agent.run(request) for request in requests]

    context.answers = run(main())


@then("it is answered each time")
def it_is_answered_each_time(context: Context) -> None:
    expected = [f"re: did {n}" if n % 2 else f"re: question {n}" for n in range(20)]
    assert context.answers == expected, context.answers
