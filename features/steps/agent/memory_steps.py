from __future__ import annotations

from collections.abc import Callable
from typing import Any

from behave import given, register_type, then, when
from behave.runner import Context
from langchain_core.messages import AIMessage

from rxlanggraph.agent import BaseAgent, Memory, Message
from support.agent import agent_talk
from support.agent.agent_talk import Looker, check_whole, texts, turn_of, user
from support.concurrency.raising import error_of
from support.controls import agent_naive
from support.step_types import one_of

KINDS: dict[str, Callable[..., Any]] = {
    "a memory": Memory,
    "a memory that is a list": agent_naive.BareMemory,
    "a memory that an asyncio.Lock guards": agent_naive.LockedMemory,
    "a memory that keeps the end of a list": agent_naive.TailMemory,
}
WAYS = {
    "tasks": agent_talk.from_tasks,
    "loops": agent_talk.from_loops,
    "threads": agent_talk.from_threads,
}


register_type(MemoryKind=one_of(KINDS))


# -- given -----------------------------------------------------------------------------------------


@given("{kind:MemoryKind}")
def step_kind(context: Context, kind: str) -> None:
    context.memory = KINDS[kind]()


@given("{kind:MemoryKind} of at most {count:d} messages")
def step_kind_of_at_most_count_messages(context: Context, kind: str, count: int) -> None:
    context.memory = KINDS[kind](max_messages=count)


# -- several at once -------------------------------------------------------------------------------


@when("user, assistant and tool add {count:d} messages each at once, from {where}")
def step_user_assistant_and_tool_add_count_messages_each_at_once(
    context: Context, count: int, where: str
) -> None:
    context.sent = {
        "user": [Message("user", f"question {n}") for n in range(count)],
        "assistant": [
            Message("assistant", [{"type": "text", "text": str(n)}]) for n in range(count)
        ],
        "tool": [
            Message("tool", f"result {n}", tool_call_id=f"c{n}", tool_name="t")
            for n in range(count)
        ],
    }
    pieces = [[[message] for message in messages] for messages in context.sent.values()]
    context.errors = WAYS[where](context.memory, pieces)


@then("all {count:d} are there, each intact, each role's in its own order")
def step_all_count_are_there_each_intact_each_roles_in_its_own(
    context: Context, count: int
) -> None:
    there = context.memory.get_messages()
    assert len(there) == count, (len(there), context.errors[:1])
    for role, sent in context.sent.items():
        assert [message for message in there if message.role == role] == sent, role
    assert not context.errors, context.errors


@when(
    "{writers:d} {where:w} at once add {count:d} turns of a call and 2 results each, "
    "and as many other messages"
)
def step_writers_where_at_once_add_count_turns_of_a_call_and_2(
    context: Context, writers: int, where: str, count: int
) -> None:
    context.expected = writers * count * 4
    pieces = [
        [piece for n in range(count) for piece in (turn_of(f"{writer}-{n}"), [user(n)])]
        for writer in range(writers)
    ]
    looker = Looker(context.memory, check_whole)
    context.errors = WAYS[where](context.memory, pieces)
    context.looked = error_of(looker.stop)


@then("every turn is in one piece, and nothing is missing")
def step_every_turn_is_in_one_piece_and_nothing_is_missing(context: Context) -> None:
    there = context.memory.get_messages()
    assert len(there) == context.expected, len(there)
    check_whole(there)


@then("concurrent readers saw only whole turns")
def step_concurrent_readers_saw_only_whole_turns(context: Context) -> None:
    assert context.looked is None, context.looked
    assert not context.errors, context.errors


@when("a list of two messages is added, a snapshot taken, the list emptied, and a message added")
def step_a_list_of_two_messages_is_added_a_snapshot_taken_the_list(context: Context) -> None:
    messages = [user(1), user(2)]
    context.memory.add_all(messages)
    context.snapshot = context.memory.get_messages()
    messages.clear()
    context.memory.add(user(3))


@then("the snapshot has two messages, and the memory three")
def step_the_snapshot_has_two_messages_and_the_memory_three(context: Context) -> None:
    assert texts(context.snapshot) == ["1", "2"]
    assert texts(context.memory.get_messages()) == ["1", "2", "3"] and len(context.memory) == 3


@when("a list is added in which the third message has a wrong role")
def step_a_list_is_added_in_which_the_third_message_has_a_wrong(context: Context) -> None:
    messages = ["one", "two", {"role": "boss", "content": "three"}]
    context.error = error_of(lambda: context.memory.add_all(messages))


NO_LISTS: dict[str, Any] = {
    "a text": "hello",
    "a mapping": {"role": "user", "content": "hello"},
    "a LangChain message": AIMessage("hello"),
    "a list of numbers": [1, 2],
    "a number": 1,
    "a message": user("hello"),
}


@when("{what} is added as if it were a list")
def step_what_is_added_as_if_it_were_a_list(context: Context, what: str) -> None:
    context.error = error_of(lambda: context.memory.add_all(NO_LISTS[what]))


@when('"{one}" and "{other}" are added to an agent as if they were lists')
def step_are_added_to_an_agent_as_if_they_were_lists(
    context: Context, one: str, other: str
) -> None:
    context.agent = BaseAgent("agent")
    context.errors = [
        error_of(lambda what=what: context.agent.add_messages(NO_LISTS[what]))
        for what in (one, other)
    ]
